//! NICs of VMs at taps, in real network namespaces, with a script in the place of `virsh` and a program in that of QEMU, which opens the
//! taps that the domain names and sends a frame from each function. `ip` and `bridge` are the independent witness.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};
use penstock_guests::{Builtin, Containers, Guests, Vms};
use penstock_host::{Command, Root, tap};
use penstock_model::{DataPath, Emulation, Mac, NicName, TenantNic, Uplink, VfSettings, Vm};
use penstock_plan::{
    Execute, Fact, GuestAction, Observe,
    action::{GuestDefinition, GuestNic},
};
use penstock_testkit::{needs, script, trials::Trials};

const TIMEOUT: Duration = Duration::from_secs(20);

const VIRSH: &str = r#"#!/bin/sh
# -q -c CONNECTION VERB...
verb=$4
case $verb in
create)
    rm -f "$HERE/opened"
    python3 "$HERE/qemu" "$HERE" -name guest=penstock-a,debug-threads=on >/dev/null 2>"$HERE/errors" &
    echo $! >"$HERE/root/run/libvirt/qemu/penstock-a.pid"
    for _ in $(seq 200); do if [ -e "$HERE/opened" ]; then break; fi; sleep 0.05; done
    cat "$HERE/errors" >&2
    touch "$HERE/paused"
    ;;
list) if [ -e "$HERE/paused" ]; then echo penstock-a; fi ;;
destroy)
    kill "$(cat "$HERE/root/run/libvirt/qemu/penstock-a.pid")"
    rm -f "$HERE/root/run/libvirt/qemu/penstock-a.pid" "$HERE/paused"
    ;;
esac
"#;

/// Opens taps as libvirt and QEMU do: TUNSETIFF with a header before each frame, and several queues where the domain has them.
const QEMU: &str = r#"import fcntl, os, re, struct, sys, time
here = sys.argv[1]
domain = open(here + "/state/penstock-a/domain.xml").read()
ports = []
for interface in re.findall(r"<interface type='ethernet'>(.*?)</interface>", domain, re.S):
    mac = re.search(r"<mac address='(.*?)'/>", interface).group(1)
    name = re.search(r"<target dev='(.*?)' managed='no'/>", interface).group(1)
    queues = int((re.search(r"queues='(\d+)'", interface) or [0, "1"])[1])
    for _ in range(queues):
        port = os.open("/dev/net/tun", os.O_RDWR)
        flags = 0x0002 | 0x1000 | 0x4000 | (0x0100 if queues > 1 else 0)
        fcntl.ioctl(port, 0x400454CA, struct.pack("16sH22x", name.encode(), flags))
    ports.append((port, bytes.fromhex(mac.replace(":", ""))))
open(here + "/opened", "w").close()
while True:
    for port, mac in ports:
        os.write(port, bytes(10) + b"\xff" * 6 + mac + b"\x88\xb5" + bytes(46))
    time.sleep(0.05)
"#;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("taps and bridges", || {
        let device = Path::new("/dev/net/tun").exists();
        let none = || (!device).then(|| "there is no /dev/net/tun".to_owned().into());
        needs::network_namespace().or_else(none).or_else(|| needs::programs(&["bridge", "python3"]))
    });
    let checks: [(&str, fn()); 8] = [
        ("taps_come_before_their_vm_and_go_after_it_in_netns", taps_come_and_go),
        ("taps_that_cannot_be_made_leave_none_in_netns", none_is_left),
        ("a_tap_that_was_only_begun_is_ours_in_netns", begun),
        ("a_switch_is_gone_only_with_its_tap_in_netns", switch_is_gone),
        ("a_vm_that_ended_by_itself_leaves_no_tap_of_another_definition_in_netns", redefined),
        ("taps_of_a_vm_that_was_started_with_another_state_stay_in_netns", of_another_state),
        ("a_tap_changes_nothing_of_its_bridge_in_netns", a_bridge_stays_as_it_is),
        ("a_tap_that_the_host_would_hear_is_none_in_netns", unheard_or_none),
    ];
    trials.add(&missing, checks);
    trials.run()
}

/// A host of its own, in a network namespace of its own with the bridge br0, whose one port is a NIC with a long MTU.
struct Host {
    directory: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        // Of this thread, and of what it starts.
        unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
        for line in [
            "link add br0 type bridge",
            "link add nic type veth peer name far",
            "link set nic address 02:00:00:00:00:aa mtu 9000 master br0 up",
            "link set far up",
            "link set br0 up",
        ] {
            run("ip", line);
        }
        let host = Host { directory: tempfile::tempdir().unwrap() };
        for directory in ["root/run/libvirt/qemu", "root/var/log/libvirt/qemu", "root/dev/net", "builtin"] {
            fs::create_dir_all(host.path(directory)).unwrap();
        }
        symlink("/proc", host.path("root/proc")).unwrap();
        for file in ["root/dev/kvm", "root/dev/net/tun", "builtin/vmlinuz", "builtin/initramfs"] {
            fs::write(host.path(file), "").unwrap();
        }
        fs::write(host.path("qemu"), QEMU).unwrap();
        let here = host.path("").to_string_lossy().trim_end_matches('/').to_owned();
        script::write(host.path("virsh"), VIRSH.replace("$HERE", &here));
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn guests(&self) -> Guests {
        self.guests_in("state")
    }

    fn guests_in(&self, state: &str) -> Guests {
        let (root, state) = (|| Root::at(self.path("root")), self.path(state));
        let builtin = Builtin { directories: vec![self.path("builtin")] };
        let vms = Vms::new(root(), state.clone(), builtin).through(self.path("virsh"));
        Guests::of(state.clone(), Containers::new(root(), state), vms)
    }

    fn pid_file(&self) -> PathBuf {
        self.path("root/run/libvirt/qemu/penstock-a.pid")
    }

    /// The VM ends by itself.
    fn kill(&self) {
        let pid: u32 = fs::read_to_string(self.pid_file()).unwrap().trim().parse().unwrap();
        Command::new("kill").args(["-9", &pid.to_string()]).succeed().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while penstock_host::running::Running::of(pid).is_some() {
            assert!(Instant::now() < deadline, "it dies");
            thread::sleep(Duration::from_millis(5));
        }
        fs::remove_file(self.pid_file()).unwrap();
    }
}

impl Drop for Host {
    /// No process outlives its test.
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.pid_file()) {
            let _ = Command::new("kill").args(["-9", pid.trim()]).run();
        }
    }
}

fn run(program: &str, line: &str) -> String {
    Command::new(program).args(line.split(' ')).succeed().expect(line).text()
}

fn mac(number: u8) -> Mac {
    Mac::new([0x02, 0, 0, 0, 0, number])
}

fn net0() -> NicName {
    "net0".parse().unwrap()
}

/// A VM with a NIC of two VFs at taps of `bridge`, whose addresses begin with number `first`.
fn definition(bridge: &str, first: u8, queues: u16) -> GuestDefinition {
    let vf = |number: u8| VfSettings { mac: Some(mac(number)), ..VfSettings::default() };
    let nic = TenantNic {
        emulation: Emulation::Virtio,
        mac: mac(first),
        vfs: vec![vf(first + 1), vf(first + 2)],
        path: DataPath::Tap,
        uplink: Some(Uplink::Interface(bridge.parse().unwrap())),
        uplink_settings: None,
        settings: VfSettings::default(),
        addresses: Vec::new(),
        routes: Vec::new(),
        dhcp: false,
        mtu: None,
        queues,
        workers: 1,
        allow: None,
        vf_allow: Default::default(),
    };
    GuestDefinition {
        memory: Some(16 << 20),
        vm: Some(Vm::default()),
        nics: vec![GuestNic { name: net0(), nic, uplink_at: None }],
        ..GuestDefinition::bare("a".parse().unwrap())
    }
}

fn make() -> GuestAction {
    GuestAction::MakeTaps { guest: "a".parse().unwrap(), nic: net0() }
}

fn remove() -> GuestAction {
    GuestAction::RemoveTaps { guest: "a".parse().unwrap(), nic: net0() }
}

fn act(guests: &mut Guests, action: &GuestAction) {
    guests
        .execute(action, TIMEOUT)
        .unwrap_or_else(|error| panic!("{action}: {}", penstock_host::chain(&error)));
    let fact = action.after();
    assert_eq!(guests.holds(&fact).unwrap(), Ok(()), "{fact}");
}

/// The interfaces that are ports of br0, as `bridge` lists them, without the NIC.
fn ports() -> Vec<String> {
    let listed = run("bridge", "-o link show");
    let name = |line: &str| Some(line.split_whitespace().nth(1)?.trim_end_matches(':').to_owned());
    let mut ports: Vec<String> =
        listed.lines().filter_map(name).filter(|name| !name.starts_with("nic")).collect();
    ports.sort();
    ports
}

fn interfaces() -> Vec<String> {
    let listed = run("ip", "-o link show");
    let name = |line: &str| Some(line.split_whitespace().nth(1)?.trim_end_matches(':').to_owned());
    listed.lines().filter_map(name).filter(|name| name.starts_with("tap")).collect()
}

fn taps_come_and_go() {
    // Any container's root chooses the alias of an interface of his, which comes back with it.
    let alias = ["link", "set", "dev", "lo", "alias", "odd\u{1}\u{1b}\"\\"];
    Command::new("ip").args(alias).succeed().unwrap();
    for queues in [1, 2] {
        let host = Host::new();
        let guests = &mut host.guests();
        let guest = || "a".parse().unwrap();
        act(guests, &GuestAction::DefineGuest(definition("br0", 0x10, queues)));
        let gone = remove().after();
        assert_eq!(guests.holds(&gone).unwrap(), Ok(()));
        let none = guests.holds(&make().after()).unwrap();
        assert_eq!(none, Err("a/net0 has no tap".to_owned()));
        act(guests, &make());
        assert_eq!(ports(), ["tap020000000010", "tap020000000011", "tap020000000012"]);
        // Nobody but root opens one.
        assert!(run("ip", "-details link show dev tap020000000011").contains(" user root "), "{queues}");
        let there = guests.holds(&gone).unwrap();
        assert_eq!(there, Err("tap020000000010, the tap of a/net0, is there".to_owned()));
        assert!(tap::taps().unwrap().values().all(|tap| tap.up && !tap.attached));
        // Once more changes nothing.
        act(guests, &make());
        act(guests, &GuestAction::CreateGuest { guest: guest() });
        let deadline = Instant::now() + TIMEOUT;
        // A frame of each function comes to the bridge by its own port.
        for number in 0x10..=0x12_u8 {
            let tap = TenantNic::tap(mac(number));
            let learned = || run("bridge", &format!("fdb show dev {tap}")).contains(&mac(number).to_string());
            while !learned() {
                assert!(Instant::now() < deadline, "{tap}: {}", run("bridge", "fdb show"));
                thread::sleep(Duration::from_millis(20));
            }
        }
        assert!(tap::taps().unwrap().values().all(|tap| tap.attached && tap.forwarding));
        // They are not taken from under it.
        for action in [make(), remove()] {
            assert!(guests.execute(&action, TIMEOUT).is_err(), "{action}");
        }
        assert_eq!(guests.found().unwrap()["a"].taps, [net0()].into());
        act(guests, &GuestAction::StopGuest { guest: guest() });
        assert_eq!(ports().len(), 3, "libvirt leaves them");
        act(guests, &remove());
        act(guests, &remove());
        assert_eq!(interfaces(), Vec::<String>::new());
        act(guests, &GuestAction::UndefineGuest { guest: guest() });
    }
}

/// They were removed, and only then it was seen that the VM could not be made.
fn of_another_state() {
    let host = Host::new();
    let guests = &mut host.guests();
    act(guests, &GuestAction::DefineGuest(definition("br0", 0x10, 1)));
    let file = "penstock-a/definition.json";
    fs::create_dir_all(host.path("other/penstock-a")).unwrap();
    fs::copy(host.path("state").join(file), host.path("other").join(file)).unwrap();
    act(guests, &make());
    act(guests, &GuestAction::CreateGuest { guest: "a".parse().unwrap() });
    let other = &mut host.guests_in("other");
    let define = |first| GuestAction::DefineGuest(definition("br0", first, 1));
    // The last ones are the ways back of a step that was refused.
    let stop_switch = GuestAction::StopSwitch { guest: "a".parse().unwrap(), nic: net0() };
    for action in [make(), define(0x20), define(0x10), remove(), stop_switch] {
        let error = penstock_host::chain(&other.execute(&action, TIMEOUT).unwrap_err());
        assert!(error.contains("knows of no start of it"), "{action}: {error}");
        let taps = tap::taps().unwrap();
        assert!(taps.len() == 3 && taps.values().all(|tap| tap.attached), "{action}: {:?}", interfaces());
    }
    // Nor is anything taken back of what was refused, whether or not that VM is there by then. Who comes later is told.
    assert!(!host.guests_in("other").is_gone(&remove()));
    act(guests, &GuestAction::StopGuest { guest: "a".parse().unwrap() });
    assert!(other.is_gone(&remove()));
    act(other, &make());
    assert!(!other.is_gone(&remove()));
    act(guests, &remove());
}

fn none_is_left() {
    let host = Host::new();
    let guests = &mut host.guests();
    for (bridge, why) in
        [("br1", "this host has no Linux bridge br1"), ("nic", "this host has no Linux bridge nic")]
    {
        act(guests, &GuestAction::DefineGuest(definition(bridge, 0x10, 1)));
        let error = penstock_host::chain(&guests.execute(&make(), TIMEOUT).unwrap_err());
        assert!(error.contains(why), "{error}");
        assert_eq!(interfaces(), Vec::<String>::new());
    }
    // The name of the last is somebody else's.
    act(guests, &GuestAction::DefineGuest(definition("br0", 0x10, 1)));
    run("ip", "tuntap add dev tap020000000012 mode tap");
    let error = penstock_host::chain(&guests.execute(&make(), TIMEOUT).unwrap_err());
    assert!(error.contains("an interface tap020000000012 already, which is no tap of a/net0#1"), "{error}");
    assert_eq!(interfaces(), ["tap020000000012"]);
    // Nor is it taken away with ours.
    act(guests, &remove());
    assert_eq!(interfaces(), ["tap020000000012"]);
    // What somebody has taken out of the bridge is told.
    run("ip", "link delete dev tap020000000012");
    act(guests, &make());
    run("ip", "link set dev tap020000000011 nomaster");
    let seen = guests.holds(&make().after()).unwrap();
    assert_eq!(seen, Err("tap020000000011, the tap of a/net0#0, is a port of no bridge".to_owned()));
}

/// Killed between the tap and the alias that says whose it is: an undo left it, and no apply could make it any more.
fn begun() {
    let host = Host::new();
    let guests = &mut host.guests();
    act(guests, &GuestAction::DefineGuest(definition("br0", 0x10, 1)));
    let begin = || run("ip", "tuntap add dev tap020000000012 mode tap user 0");
    begin();
    let there = guests.holds(&remove().after()).unwrap();
    assert_eq!(there, Err("tap020000000012, the tap of a/net0#1, is there".to_owned()));
    act(guests, &remove());
    assert_eq!(interfaces(), Vec::<String>::new());
    begin();
    act(guests, &make());
    assert_eq!(ports().len(), 3);
    act(guests, &remove());
    begin();
    tap::make("a/net0#1", mac(0x12), 1, &"br0".parse().unwrap()).unwrap();
    act(guests, &remove());
    // One of another address, one that somebody has brought up, and one that anybody may open are not.
    for line in [
        "tuntap add dev tap020000000013 mode tap user 0",
        "tuntap add dev tap020000000012 mode tap user 0",
        "link set dev tap020000000012 up",
        "tuntap add dev tap020000000011 mode tap",
    ] {
        run("ip", line);
    }
    act(guests, &remove());
    assert_eq!(interfaces().len(), 3);
    assert!(guests.execute(&make(), TIMEOUT).is_err());
}

/// Of a VM and of a container: a switch that was ended and whose tap stays, or whose tap was made before it was killed.
fn switch_is_gone() {
    let host = Host::new();
    let guests = &mut host.guests();
    for (vm, path) in [(true, DataPath::SwitchTap), (false, DataPath::VirtioVdpa)] {
        let mut wanted = definition("br0", 0x10, 1);
        wanted.nics[0].nic.path = path;
        wanted.nics[0].nic.vfs.clear();
        wanted.vm = wanted.vm.filter(|_| vm);
        act(guests, &GuestAction::DefineGuest(wanted));
        let gone = Fact::SwitchRunning { guest: "a".parse().unwrap(), nic: net0(), running: false };
        assert_eq!(guests.holds(&gone).unwrap(), Ok(()), "{vm}");
        for command in ["tuntap add dev tap020000000010 mode tap user 0", "link set dev tap020000000010 up"] {
            run("ip", command);
            // Begun first, and then made.
            if command.ends_with(" up") {
                let alias = ["link", "set", "dev", "tap020000000010", "alias", "penstock a/net0"];
                Command::new("ip").args(alias).succeed().unwrap();
            }
            let why = guests.holds(&gone).unwrap().unwrap_err();
            assert!(why.contains("tap020000000010") && why.ends_with(" is there"), "{vm}: {why}");
        }
        run("ip", "link delete dev tap020000000010");
        act(guests, &GuestAction::UndefineGuest { guest: "a".parse().unwrap() });
    }
}

fn redefined() {
    let host = Host::new();
    let guests = &mut host.guests();
    act(guests, &GuestAction::DefineGuest(definition("br0", 0x10, 1)));
    act(guests, &make());
    act(guests, &GuestAction::CreateGuest { guest: "a".parse().unwrap() });
    assert!(guests.execute(&GuestAction::DefineGuest(definition("br0", 0x20, 1)), TIMEOUT).is_err());
    host.kill();
    assert_eq!(ports().len(), 3);
    // As it was defined, nothing changes; otherwise nobody would know of them.
    act(guests, &GuestAction::DefineGuest(definition("br0", 0x10, 1)));
    assert_eq!(ports().len(), 3);
    act(guests, &GuestAction::DefineGuest(definition("br0", 0x20, 1)));
    assert_eq!(interfaces(), Vec::<String>::new());
    act(guests, &make());
    assert_eq!(ports(), ["tap020000000020", "tap020000000021", "tap020000000022"]);
}

fn a_bridge_stays_as_it_is() {
    let host = Host::new();
    let guests = &mut host.guests();
    let shown = || {
        let text = run("ip", "-o link show dev br0");
        let after =
            |word: &str| text.split_whitespace().skip_while(|found| *found != word).nth(1).map(str::to_owned);
        (after("mtu"), after("link/ether"))
    };
    let before = shown();
    assert_eq!(before, (Some("9000".to_owned()), Some("02:00:00:00:00:aa".to_owned())));
    act(guests, &GuestAction::DefineGuest(definition("br0", 0x10, 1)));
    act(guests, &make());
    assert_eq!(shown(), before);
    assert!(!run("ip", "-o -6 address show").contains("tap"), "the host says nothing of itself to the VM");
    act(guests, &remove());
    assert_eq!(shown(), before);
}

/// Not every kernel has the filter (`cls_matchall`, `act_gact`).
fn unheard_or_none() {
    let _host = Host::new();
    let mac: Mac = "02:00:00:00:00:10".parse().unwrap();
    let named = || tap::taps().unwrap().remove("a/net0");
    match tap::make_unheard("a/net0", mac, 9000) {
        Ok(name) => {
            assert!(named().is_some_and(|tap| tap.unheard == Ok(true) && tap.up && tap.bridge.is_none()));
            run("tc", &format!("filter del dev {name} ingress"));
            assert!(named().is_some_and(|tap| tap.unheard == Ok(false)));
            tap::remove(&name).unwrap();
        }
        Err(error) => {
            let text = error.to_string();
            assert_eq!(
                text,
                "make the tap tap020000000010 of a/net0, from which the host's own stack gets nothing"
            );
        }
    }
    assert_eq!(named(), None);
}
