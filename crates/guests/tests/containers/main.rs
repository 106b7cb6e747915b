//! Real containers, in a network namespace of their own, with ends of veth pairs in place of VFs.
#![allow(clippy::disallowed_methods)]

mod bench;
mod confinement;
mod killed;
mod leases;
mod monitor;
mod names;
mod taken_back;

use std::{
    error::Error as _,
    fs,
    path::Path,
    process::{Command as Program, ExitCode},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use bench::{Bench, TIMEOUT, bdf, ip, shell, small_root, until};
use nix::sched::{CloneFlags, unshare};
use penstock_guests::{Containers, Recognise};
use penstock_host::{Command, Place, PlaceError, Root};
use penstock_model::{ByteSize, Guest, InterfaceRoute, Outcome};
use penstock_plan::{Execute, ExecuteError, Fact, GuestAction, Observe, action::GuestDefinition};
use penstock_testkit::{needs, trials::Trials, xdp};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let lacking = trials.lacking("containers", || needs::containers(&["ip", "ping"]));
    let tests: [(&str, fn()); 46] = [
        ("a_function_goes_in_and_comes_back_in_netns", goes_in_and_comes_back),
        ("routes_are_there_before_the_first_process_in_netns", routes),
        ("name_servers_are_there_before_the_first_process_in_netns", names::default_root),
        ("name_servers_lie_over_the_file_of_a_root_in_netns", names::own_root),
        ("a_vf_is_brought_round_until_it_has_its_link_in_netns", brought_round),
        ("a_vf_without_the_link_of_its_pf_is_a_failure_in_netns", no_link),
        ("a_vf_with_another_address_than_its_pf_keeps_in_netns", other_address),
        ("commands_and_files_inside_in_netns", commands_and_files_inside),
        ("two_at_once_reach_each_other_in_netns", two_at_once),
        ("twice_is_as_good_as_once_in_netns", twice_is_as_good_as_once),
        ("a_running_guest_is_not_redefined_in_netns", not_redefined),
        ("a_first_process_that_ends_at_once_in_netns", ends_at_once),
        ("a_first_process_that_is_not_there_in_netns", no_such_init),
        ("a_first_process_that_will_not_end_in_netns", will_not_end),
        ("a_root_directory_in_netns", root_directory),
        ("a_root_directory_that_is_not_there_in_netns", no_root_directory),
        ("a_function_that_is_not_there_in_netns", no_such_function),
        ("hostile_links_in_netns", hostile_links),
        ("what_a_container_may_not_do_in_netns", confinement::may_not),
        ("each_fence_is_seen_in_netns", confinement::fences),
        ("a_privileged_container_with_a_root_makes_user_namespaces_in_netns", confinement::makes_namespaces),
        ("no_container_has_ids_of_another_in_netns", confinement::ids),
        ("the_host_makes_files_in_its_root_in_netns", confinement::makes_files),
        ("what_a_guest_did_to_its_interface_in_netns", meddled_with),
        ("what_a_guest_left_on_its_interface_goes_in_netns", taken_back::as_it_was),
        ("what_a_guest_called_its_interface_in_netns", taken_back::with_a_name_of_its_own),
        ("what_a_guest_of_an_older_version_left_goes_in_netns", taken_back::of_an_older_version),
        ("one_that_ended_by_itself_leaves_its_interface_up_in_netns", taken_back::ended_by_itself),
        ("an_interface_that_the_host_uses_since_is_left_alone_in_netns", taken_back::used_since),
        ("an_ending_that_was_not_seen_to_its_end_is_in_netns", taken_back::configured_while_it_ended),
        ("the_host_is_searched_for_lifelines_once_in_netns", taken_back::searched_once),
        ("an_interface_that_is_not_as_it_was_stays_down_in_netns", taken_back::not_as_it_was),
        ("a_name_that_is_anothers_alternative_one_in_netns", taken_back::with_a_name_that_is_taken),
        ("a_name_that_was_taken_meanwhile_in_netns", name_taken),
        ("lxc_dies_in_netns", monitor::dies),
        ("a_stopped_container_leaves_no_process_of_lxc_in_netns", monitor::leaves_no_process),
        ("penstock_dies_while_starting_in_netns", killed::while_starting),
        ("a_start_that_goes_on_without_penstock_is_stopped_in_netns", killed::start_goes_on),
        ("one_that_ended_by_itself_is_stopped_all_the_same_in_netns", killed::stopped_though_it_does_not_run),
        ("an_interface_that_never_left_the_host_stays_as_it_is_in_netns", killed::never_left),
        ("a_start_that_was_not_finished_is_in_netns", killed::start_is_finished),
        ("an_end_that_was_not_finished_is_given_up_in_netns", killed::end_is_given_up),
        ("nodes_of_a_start_that_was_not_noted_go_in_netns", killed::nodes_of_a_start_that_was_not_noted),
        ("a_process_of_lxc_that_is_stuck_goes_in_netns", killed::process_of_lxc_is_stuck),
        ("limits_in_netns", limits),
        ("nothing_is_left_in_netns", nothing_is_left),
    ];
    if lacking.is_none() && trials.run_at_all() {
        // Of the whole process, before it has a second thread: what LXC gives back comes back here.
        unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
    }
    trials.add(&lacking, tests);
    let is_on = "test \"$(cat /proc/sys/net/ipv6/conf/default/disable_ipv6)\" = 0";
    let is_on = || needs::refused(Command::new("unshare").args(["--net", "sh", "-c", is_on]));
    let without_ipv6 = lacking.clone().or_else(|| trials.lacking("IPv6 in a new network namespace", is_on));
    let raised: (&str, fn()) =
        ("an_interface_that_is_only_up_since_is_taken_back_in_netns", taken_back::raised_since);
    trials.add(&without_ipv6, [raised]);
    let server = || needs::programs(&["dnsmasq", "udhcpc"]);
    let without_server = lacking.clone().or_else(|| trials.lacking("a DHCP server and a client", server));
    let leases: [(&str, fn()); 2] = [
        ("a_lease_is_there_and_nothing_of_it_reaches_the_host_in_netns", leases::default_root),
        ("udhcpc_asks_from_a_root_of_its_own_in_netns", leases::udhcpc),
    ];
    trials.add(&without_server, leases);
    let clients: [(&str, &str, fn()); 3] = [
        ("busybox", "busybox_asks_from_a_root_of_its_own_in_netns", leases::busybox),
        ("dhcpcd", "dhcpcd_asks_from_a_root_of_its_own_in_netns", leases::dhcpcd),
        ("dhclient", "dhclient_asks_from_a_root_of_its_own_in_netns", leases::dhclient),
    ];
    for (client, name, test) in clients {
        let missing =
            without_server.clone().or_else(|| trials.lacking(client, || needs::programs(&[client])));
        trials.add(&missing, [(name, test)]);
    }
    let macvlan = "ip link add one type veth peer name two && ip link add link one type macvlan";
    let macvlan = || needs::refused(Command::new("unshare").args(["--net", "sh", "-c", macvlan]));
    let programs = || needs::programs(&["python3", "unshare", "nsenter"]).or_else(macvlan);
    let without_xdp = lacking.clone().or_else(|| trials.lacking("XDP programs", xdp::lacking));
    let without: (&str, fn()) =
        ("an_interface_comes_back_without_its_programs_in_netns", taken_back::without_its_programs);
    trials.add(&without_xdp, [without]);
    let lacking = lacking.or_else(|| trials.lacking("what stands on an interface", programs));
    let upon: (&str, fn()) = (
        "an_interface_that_the_host_has_built_upon_since_is_left_alone_in_netns",
        taken_back::built_upon_since,
    );
    trials.add(&lacking, [upon]);
    trials.run()
}

fn goes_in_and_comes_back() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let place = bench.start(&definition);
    assert!(bench.on_host(0).is_none(), "the interface has left the host");
    let inside = place.interfaces().unwrap();
    assert_eq!(inside.len(), 1);
    let interface = &inside[0].interface;
    assert_eq!(interface.name.as_str(), "eth0");
    assert_eq!(interface.mac.to_string(), bench.mac(0));
    assert_eq!(interface.mtu, 1400);
    assert!(interface.up);
    for address in &definition.functions[0].addresses {
        assert!(interface.addresses.contains(address), "{address}: {:?}", interface.addresses);
    }
    let (_, brd) = shell(&place, "ip -4 -o address show eth0");
    assert!(brd.contains("brd 10.7.7.255"), "{brd}");

    // A Penstock that starts afterwards knows it too.
    let other = Containers::new(Root::system(), bench.state.path().join("guests"))
        .keeping_ids_in(bench.state.path().join("ids"))
        .recognising(bench.by.clone());
    let found = &other.found().unwrap()[&definition.guest];
    assert!(found.running);
    assert_eq!(found.functions, [bdf(0)]);
    let status = &other.status().unwrap()[&definition.guest];
    assert_eq!(status.pid, place.namespace().unwrap());
    assert!(status.since.unwrap() > 1_600_000_000);

    bench.stop(&definition);
    bench.is_back(0);
    assert!(!bench.runs(&definition));
    assert!(bench.containers.place(&definition.guest).is_none());
    assert!(matches!(place.interfaces(), Err(PlaceError::Gone { .. })));
    assert!(matches!(place.run(&Command::new("true")), Err(PlaceError::Gone { .. })));
    assert!(matches!(place.read("/etc/passwd", 1), Err(PlaceError::Gone { .. })));
}

/// The other end of a veth gives the link that a PF gives a VF.
fn route(to: &str, via: Option<&str>, priority: Option<u32>) -> InterfaceRoute {
    let via = via.map(|via| via.parse().unwrap());
    InterfaceRoute { priority, ..InterfaceRoute::new(to.parse().unwrap(), via) }
}

fn routes() {
    let bench = Bench::new();
    let mut definition = bench.guest("routes", 1);
    let wanted = [
        route("0.0.0.0/0", Some("10.7.7.1"), None),
        route("::/0", Some("fe80::1"), None),
        route("198.51.100.0/24", Some("10.7.7.254"), Some(100)),
        route("198.51.100.0/24", Some("10.7.7.253"), Some(200)),
        route("203.0.113.0/24", None, None),
    ];
    definition.functions[0].routes = wanted.to_vec();
    // What the first process sees of IPv4, before anything else can have been done.
    definition.init =
        ["/bin/sh", "-c", "cat /proc/net/route >/run/seen; exec sleep 1000"].map(str::to_owned).to_vec();
    let place = bench.start(&definition);
    let interfaces = place.interfaces().unwrap();
    let found = interfaces.iter().find(|report| report.interface.name.as_str() == "eth0").unwrap();
    let there = found.routes.as_ref().expect("a container's routes are told");
    for route in &wanted {
        assert!(there.iter().any(|found| route.is_met_by(found)), "{route} in {there:#?}");
    }
    let (_, seen) = shell(&place, "grep -c ^eth0 /run/seen");
    assert_eq!(seen.trim(), "5", "four routes and that of its network");
    bench.stop(&definition);
    bench.is_back(1);

    // One that cannot be made ends the start, with what `ip` said, and gives the interface back.
    definition.functions[0].routes = vec![route("0.0.0.0/0", Some("192.0.2.1"), None)];
    let why = bench.refused(&definition);
    assert!(why.contains("cannot have the route default via 192.0.2.1 over its interface eth0: "), "{why}");
    bench.is_back(1);
}

fn brought_round() {
    let bench = Bench::of_pf();
    let mut definition = bench.guest("round", 0);
    let wanted = [
        route("198.51.100.0/24", Some("10.7.7.254"), None),
        route("203.0.113.0/24", Some("10.7.7.253"), Some(200)),
        route("fd08::/64", Some("fd07::99"), None),
    ];
    definition.functions[0].routes = wanted.to_vec();
    let other = bench.link(1);
    let place = std::thread::scope(|scope| {
        // Later than a VF is given time before it is brought down and up.
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(5));
            ip(&["link", "set", &other, "up"]);
        });
        bench.start(&definition)
    });
    let inside = place.interfaces().unwrap();
    let there = bench.by.find(bdf(0), &inside).unwrap().routes.unwrap();
    for route in &wanted {
        assert!(there.iter().any(|found| route.is_met_by(found)), "{route} in {there:#?}");
    }
    let found = bench.by.find(bdf(0), &inside).unwrap().interface;
    assert_eq!(found.carrier, Some(true));
    for address in &definition.functions[0].addresses {
        assert!(found.addresses.contains(address), "{address} among {:?}", found.addresses);
    }
    bench.stop(&definition);
}

fn no_link() {
    let bench = Bench::of_pf();
    let definition = bench.guest("dark", 0);
    bench.containers.define(&definition, TIMEOUT).unwrap();
    let error = bench.containers.start(&definition.guest, Duration::from_secs(20)).unwrap_err().to_string();
    assert!(
        error.contains("the interface eth0 of VF 0000:01:10.0 has no link inside it, although that of its PF 0000:01:10.7 is up"),
        "{error}"
    );
    assert!(!bench.runs(&definition));
    bench.is_back(0);
    // Without a link of the PF there is none to be had, and it starts.
    ip(&["link", "set", &format!("pf{}", bench.number), "down"]);
    bench.start(&definition);
    bench.stop(&definition);
}

fn other_address() {
    let bench = Bench::new();
    let mut definition = bench.guest("mac", 0);
    definition.functions[0].mac = Some("02:00:00:00:ff:ff".parse().unwrap());
    bench.start(&definition);
    bench.stop(&definition);
    definition.functions[0].mac_is_kept = true;
    let error = bench.refused(&definition);
    let (seen, link) = (bench.mac(0), bench.link(0));
    assert!(
        error.contains(&format!("the interface {link} of VF 0000:01:10.0 has the address {seen}, and its PF keeps 02:00:00:00:ff:ff for it")),
        "{error}"
    );
    bench.is_back(0);
    definition.functions[0].mac = bench.mac(0).parse().ok();
    bench.start(&definition);
    bench.stop(&definition);
}

fn commands_and_files_inside() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let place = bench.start(&definition);
    assert_eq!(place.describe(), format!("inside {}", definition.guest));
    assert_eq!(shell(&place, "hostname").1.trim(), definition.guest.as_str());
    let output = place
        .run(
            &Command::new("sh")
                .args([
                    "-c",
                    "cat; printf '%s|' \"$@\" \"$GREETING\" \"$PWD\"; exit 7",
                    "sh",
                    "a b",
                    "-n",
                    "'",
                ])
                .env("GREETING", "good day")
                .current_dir("/usr/bin")
                .input("from outside|"),
        )
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.text(), "from outside|a b|-n|'|good day|/usr/bin|");
    // Nothing of Penstock's own environment goes in.
    let (_, environment) = shell(&place, "env");
    assert!(!environment.contains("CARGO"), "{environment}");

    let started = Instant::now();
    let late = place.run(&Command::new("sleep").arg("4711").deadline(Duration::from_millis(300)));
    assert!(matches!(late, Err(PlaceError::Process { .. })), "{late:?}");
    assert!(started.elapsed() < Duration::from_secs(30));
    // The kernel and the first process take a moment to clear a killed one away.
    let sleepers = || {
        let (_, names) = shell(&place, "cat /proc/[0-9]*/comm");
        names.lines().filter(|name| *name == "sleep").count()
    };
    let until = Instant::now() + Duration::from_secs(30);
    while sleepers() != 1 && Instant::now() < until {}
    assert_eq!(sleepers(), 1, "only the idle process's own sleep is left");

    assert_eq!(shell(&place, "echo -n written > /etc/penstock-test && echo ok").1, "ok\n");
    assert_eq!(place.read("/etc/penstock-test", 5).unwrap(), b"writt");
    assert!(!Path::new("/etc/penstock-test").exists(), "the host's root is as it was");
    let mtu = place.read("/sys/class/net/eth0/mtu", 100).unwrap();
    assert_eq!(mtu, b"1400\n");
    let Err(PlaceError::File { why, .. }) = place.read("/no/such", 1) else {
        panic!("there is no such file");
    };
    assert!(why.contains("No such file"), "{why}");
}

fn two_at_once() {
    let bench = Bench::new();
    let mut guests = bench.guests();
    let definitions = [bench.guest("left-", 0), bench.guest("right-", 1)];
    let actions: Vec<GuestAction> = definitions.iter().cloned().map(GuestAction::DefineGuest).collect();
    let starts =
        definitions.each_ref().map(|definition| GuestAction::StartGuest { guest: definition.guest.clone() });
    for batch in [actions, starts.to_vec()] {
        let batch: Vec<&GuestAction> = batch.iter().collect();
        let answers = guests.execute_all(&batch, TIMEOUT);
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
    for definition in &definitions {
        let fact = Fact::GuestRunning { guest: definition.guest.clone(), running: true };
        assert_eq!(guests.holds(&fact).unwrap(), Ok(()));
    }
    let left = bench.containers.place(&definitions[0].guest).unwrap();
    let (status, said) = shell(&left, "ping -c 1 -w 30 10.7.7.2");
    assert_eq!(status, 0, "{said}");
    let stops =
        definitions.each_ref().map(|definition| GuestAction::StopGuest { guest: definition.guest.clone() });
    let stops: Vec<&GuestAction> = stops.iter().collect();
    assert!(guests.execute_all(&stops, TIMEOUT).iter().all(Result::is_ok));
    bench.is_back(0);
    bench.is_back(1);
}

fn twice_is_as_good_as_once() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let first = bench.start(&definition).namespace().unwrap();
    let second = bench.start(&definition).namespace().unwrap();
    assert_eq!(first, second, "it is the same container");
    bench.stop(&definition);
    bench.stop(&definition);
    bench.is_back(0);
    let third = bench.start(&definition).namespace().unwrap();
    assert_ne!(first, third);
    bench.stop(&definition);
    for _ in 0..2 {
        bench.containers.undefine(&definition.guest, TIMEOUT).unwrap();
    }
    let error = bench.containers.start(&definition.guest, TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("is not defined"), "{error}");
    bench.containers.stop(&definition.guest, TIMEOUT).unwrap();
}

fn not_redefined() {
    let bench = Bench::new();
    let mut guests = bench.guests();
    let definition = bench.guest("linux-", 0);
    bench.start(&definition);
    let other = GuestDefinition { functions: vec![], ..definition.clone() };
    let undefine = GuestAction::UndefineGuest { guest: definition.guest.clone() };
    for action in [GuestAction::DefineGuest(other), undefine] {
        let error = guests.execute(&action, TIMEOUT).unwrap_err();
        let why = error.source().unwrap().to_string();
        assert!(why.contains("stop it first"), "{why}");
    }
    guests.execute(&GuestAction::DefineGuest(definition), TIMEOUT).unwrap();
}

fn ends_at_once() {
    // Where it had no turn before the start was over, whoever waits for it is told instead: not each time.
    assert!((0..5).any(|_| is_refused_as_it_ends()), "a start never tells that its guest ended at once");
}

/// Whether the start told that the guest had ended. If not, whoever waited for the guest was told.
fn is_refused_as_it_ends() -> bool {
    let bench = Bench::new();
    let definition = GuestDefinition {
        init: ["sh", "-c", "echo no such database; exit 3"].map(str::to_owned).to_vec(),
        ..bench.guest("linux-", 0)
    };
    bench.containers.define(&definition, TIMEOUT).unwrap();
    let (said, wanted) = match bench.containers.start(&definition.guest, TIMEOUT) {
        Err(error) => (format!("{error} | {:?}", error.source().map(ToString::to_string)), "ended at once"),
        Ok(()) => {
            let mut died = None;
            until("it has died", || {
                died = bench.containers.await_ready(&definition.guest, TIMEOUT).err();
                died.is_some()
            });
            let said = died.map(|died| died.to_string()).unwrap_or_default();
            bench.stop(&definition);
            (said, "died")
        }
    };
    assert!(said.contains(wanted) && said.contains("console: no such database"), "{said}");
    assert!(!bench.runs(&definition));
    bench.is_back(0);
    wanted == "ended at once"
}

fn no_such_init() {
    let bench = Bench::new();
    // LXC gives nothing back when it cannot even run the first process, and a veth does not outlive its namespace.
    bench.by.exist.store(false, Ordering::Relaxed);
    let definition = GuestDefinition { init: vec!["/no/such/init".to_owned()], ..bench.guest("linux-", 0) };
    let said = bench.refused(&definition);
    assert!(said.contains("No such file or directory - Failed to exec \"/no/such/init\""), "{said}");
}

fn will_not_end() {
    let bench = Bench::new();
    let definition = GuestDefinition {
        init: ["sh", "-c", "trap '' TERM PWR; while :; do sleep 1; done"].map(str::to_owned).to_vec(),
        ..bench.guest("linux-", 0)
    };
    bench.start(&definition);
    let asked = Instant::now();
    bench.containers.stop(&definition.guest, Duration::from_secs(2)).unwrap();
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    bench.is_back(0);
}

fn root_directory() {
    let bench = Bench::new();
    let root = small_root();
    let at = |name: &str| root.path().join("etc").join(name);
    let init =
        "trap 'echo told >/etc/told; exit' PWR TERM; echo >/etc/listens; while :; do sleep 1000 & wait; done";
    let definition = GuestDefinition {
        root: Some(root.path().to_str().unwrap().to_owned()),
        init: ["/bin/sh", "-c", init].map(str::to_owned).to_vec(),
        ..bench.guest("linux-", 0)
    };
    let place = bench.start(&definition);
    assert_eq!(place.interfaces().unwrap().len(), 1);
    assert_eq!(shell(&place, "echo kept > /etc/kept").0, 0);
    // A first process is told only what it listens to.
    until("the first process listens", || at("listens").exists());
    bench.stop(&definition);
    bench.is_back(0);
    assert_eq!(fs::read_to_string(at("told")).expect("its first process was told to end"), "told\n");
    assert_eq!(fs::read_to_string(at("kept")).unwrap(), "kept\n");
}

fn no_root_directory() {
    let bench = Bench::new();
    let mut guests = bench.guests();
    let definition = GuestDefinition { root: Some("/no/such/root".to_owned()), ..bench.guest("linux-", 0) };
    let start = GuestAction::StartGuest { guest: definition.guest.clone() };
    guests.execute(&GuestAction::DefineGuest(definition), TIMEOUT).unwrap();
    let Err(ExecuteError::Missing { what, hint }) = guests.execute(&start, TIMEOUT) else {
        panic!("there is no such directory");
    };
    assert!(what.contains("/no/such/root") && hint.contains("make the directory"), "{what} {hint}");
    assert!(bench.on_host(0).is_some());
}

fn no_such_function() {
    let bench = Bench::new();
    let first = bench.guest("first-", 0);
    bench.start(&first);
    let said = bench.refused(&bench.guest("second-", 0));
    assert!(said.contains(&format!("guest {} has it", first.guest)), "{said}");
    let mut lost = bench.guest("third-", 1);
    lost.functions[0].function = "0000:09:00.0".parse().unwrap();
    let said = bench.refused(&lost);
    assert!(said.contains("0000:09:00.0") && said.contains("no such function"), "{said}");
}

fn hostile_links() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let place = bench.start(&definition);
    // In the host's /tmp, which a container does not see.
    let secret = bench.state.path().join("secret");
    fs::write(&secret, "the host's").unwrap();
    let script = format!(
        "ln -s {0} /etc/x-absolute; ln -s ../../../../..{0} /etc/x-relative; ln -s /proc/1/root/etc/passwd /etc/x-magic; \
         mkfifo /etc/x-fifo; ln -s /dev/zero /etc/x-device; ls -d /etc/x-fifo",
        secret.display()
    );
    assert_eq!(shell(&place, &script), (0, "/etc/x-fifo\n".to_owned()));
    let started = Instant::now();
    for (path, wanted) in [
        ("/etc/x-absolute", "No such file"),
        ("/etc/x-relative", "No such file"),
        ("/etc/x-magic", ""),
        ("/etc/x-fifo", "not a regular file"),
        ("/etc/x-device", "not a regular file"),
    ] {
        match place.read(path, 1000) {
            Err(PlaceError::File { why, .. }) => assert!(why.contains(wanted), "{path}: {why}"),
            other => panic!("{path} was read: {other:?}"),
        }
    }
    assert!(started.elapsed() < Duration::from_secs(10), "something was waited for");
}

fn meddled_with() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let place = bench.start(&definition);
    let (status, said) = shell(
        &place,
        "ip link set eth0 down && ip link set eth0 name mine mtu 1280 && ip address add 10.9.9.9/8 dev mine && \
         ip link set mine up",
    );
    assert_eq!(status, 0, "{said}");
    bench.stop(&definition);
    bench.is_back(0);
}

fn name_taken() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    bench.start(&definition);
    let name = bench.link(0);
    ip(&["link", "add", &name, "type", "veth", "peer", "name", &format!("{name}p")]);
    bench.stop(&definition);
    let report = bench.on_host(0).expect("it is back under another name");
    assert_ne!(report.interface.name.as_str(), name);
    assert!(!report.interface.up);
    ip(&["link", "del", &name]);
    ip(&["link", "del", report.interface.name.as_str()]);
}

fn limits() {
    let bench = Bench::new();
    let definition = GuestDefinition { cpus: Some(1), memory: Some(64 << 20), ..bench.guest("linux-", 0) };
    let definition = GuestDefinition { pin: Some("0".parse().unwrap()), ..definition };
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let controllers: Vec<&str> = controllers.split_whitespace().collect();
    if ["cpu", "memory", "cpuset"].iter().all(|name| controllers.contains(name)) {
        let place = bench.start(&definition);
        let wanted = Guest {
            cpus: Some(1),
            memory: Some(ByteSize(64 << 20)),
            pin: definition.pin.clone(),
            ..Guest::default()
        };
        let verdicts = bench.containers.verdicts(&definition.guest, &wanted);
        assert_eq!(verdicts.len(), 3);
        assert!(verdicts.iter().all(|verdict| verdict.outcome == Outcome::Pass), "{verdicts:?}");
        assert_eq!(shell(&place, "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status").1, "0\n");
        let wrong = Guest { cpus: Some(2), pin: Some("0-1".parse().unwrap()), ..Guest::default() };
        let wrong = bench.containers.verdicts(&definition.guest, &wrong);
        assert!(wrong.iter().all(|verdict| verdict.outcome == Outcome::Fail), "{wrong:?}");
    } else {
        let said = bench.refused(&definition);
        assert!(said.contains("cpus limit") && said.contains("cgroup v2"), "{said}");
        let pinned = GuestDefinition { cpus: None, memory: None, ..definition };
        let said = bench.refused(&pinned);
        assert!(said.contains("pin limit") && said.contains("cgroup v2"), "{said}");
        assert!(bench.on_host(0).is_some());
    }
}

fn nothing_is_left() {
    let bench = Bench::new();
    let definition = bench.guest("linux-", 0);
    let mounts = || {
        let text = fs::read_to_string("/proc/self/mounts").unwrap();
        let ours = bench.state.path().to_str().unwrap().to_owned();
        text.lines().filter(|line| line.contains(&ours)).count()
    };
    bench.start(&definition);
    assert_eq!(mounts(), 0, "what a container mounts is in its own namespace");
    bench.stop(&definition);
    bench.containers.undefine(&definition.guest, TIMEOUT).unwrap();
    let left: Vec<_> = fs::read_dir(bench.state.path().join("guests"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, [format!("{}.lock", definition.guest)]);
    let monitors = Program::new("ps").args(["ax", "-o", "args"]).output().unwrap();
    let monitors = String::from_utf8_lossy(&monitors.stdout).into_owned();
    assert!(!monitors.contains(bench.state.path().to_str().unwrap()), "{monitors}");
}
