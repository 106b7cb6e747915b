//! Leases inside containers, of a real DHCP server at the other end of a veth.

use std::{
    fs,
    path::Path,
    process::{Child, Command as Program, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_host::Place;
use penstock_model::{
    Dns,
    dhcp::{self, DhcpLease, lease_file},
};
use penstock_plan::action::GuestDefinition;

use crate::bench::{Bench, TIMEOUT, ip, shell, small_root};

/// A server, until it is dropped.
struct Server(Child);

impl Server {
    /// At end 1 of the bench, on the host, with these options beside its own.
    fn start(bench: &Bench, options: &[&str]) -> Server {
        let link = bench.link(1);
        ip(&["address", "replace", "10.7.7.1/24", "dev", &link]);
        ip(&["link", "set", &link, "up"]);
        let log = fs::File::create(bench.state.path().join("dnsmasq.log")).unwrap();
        let leases = format!("--dhcp-leasefile={}", bench.state.path().join("leases").display());
        let child = Program::new("dnsmasq")
            .args([
                "--keep-in-foreground",
                "--log-facility=-",
                "--conf-file=/dev/null",
                "--port=0",
                "--no-ping",
                "--user=root",
            ])
            .args(["--bind-interfaces", "--except-interface=lo", "--dhcp-authoritative", "--pid-file="])
            .args([
                &format!("--interface={link}"),
                &leases,
                "--dhcp-range=10.7.7.50,10.7.7.99,255.255.255.0,2m",
            ])
            .args(options)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lease that is noted inside, which the interface has.
#[track_caller]
fn leased(place: &impl Place) -> DhcpLease {
    let note = String::from_utf8(place.read(&lease_file("eth0"), 4096).unwrap()).unwrap();
    let lease = DhcpLease::read(&note).unwrap_or_else(|| panic!("{note:?} is no lease"));
    let found = place.interfaces().unwrap();
    let eth0 = found.iter().find(|report| report.interface.name.as_str() == "eth0").unwrap();
    assert!(eth0.interface.addresses.contains(&lease.address), "{lease:?}: {:?}", eth0.interface.addresses);
    let routes: Vec<String> = eth0.routes.iter().flatten().map(ToString::to_string).collect();
    if let Some(router) = lease.router {
        assert!(routes.contains(&format!("default via {router}")), "{lease:?}: {routes:?}");
    }
    lease
}

fn wanting(bench: &Bench, name: &str) -> GuestDefinition {
    let mut definition = bench.guest(name, 0);
    definition.functions[0].addresses.retain(|address| address.ip().is_ipv6());
    definition.functions[0].dhcp = true;
    definition
}

/// With the default root: address, router and name servers are there when it has started; a server that says more than it is asked for
/// changes nothing else.
pub fn default_root() {
    let bench = Bench::new();
    let host_name = || fs::read("/proc/sys/kernel/hostname").unwrap();
    let before = host_name();
    let server = Server::start(
        &bench,
        &[
            "--dhcp-option=option:router,10.7.7.1",
            "--dhcp-option=option:dns-server,10.7.7.53,10.7.7.54,10.7.7.55,10.7.7.56",
            "--dhcp-option-force=15,x;touch /run/evil $(touch /run/evil)",
            "--dhcp-option-force=12,evil.example",
            "--dhcp-option-force=121,0.0.0.0/1,10.7.7.66",
            "--dhcp-option-force=119,lab.example,-a.example,lan",
        ],
    );
    let definition = wanting(&bench, "leased");
    let place = bench.start(&definition);
    let lease = leased(&place);
    assert_eq!((lease.client, lease.router), ("udhcpc", Some([10, 7, 7, 1].into())));
    let text = String::from_utf8(place.read("/etc/resolv.conf", 4096).unwrap()).unwrap();
    let servers = "nameserver 10.7.7.53\nnameserver 10.7.7.54\nnameserver 10.7.7.55\n";
    assert_eq!(text, format!("# Of the lease of eth0.\n{servers}search lab.example lan\n"));
    assert_eq!(shell(&place, "test -e /run/evil").0, 1);
    assert_eq!(shell(&place, "hostname").1.trim(), definition.guest.as_str());
    let (_, routes) = shell(&place, "ip -4 route");
    let route = format!("default via 10.7.7.1 dev eth0 src {} metric 1024", lease.address.ip());
    assert!(!routes.contains("10.7.7.66") && routes.contains(&route), "{routes}");
    assert_eq!(host_name(), before, "nothing of it has reached the host");
    // What else stands there may change at any time.
    let of_host = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    assert!(!of_host.contains("10.7.7.53") && !of_host.contains("# Of the lease"), "{of_host}");

    // The kernel ends the address with its lease: 120 s.
    let (_, addresses) = shell(&place, "ip -4 address show dev eth0");
    let lifetime = addresses.split_once("valid_lft ").and_then(|(_, rest)| rest.split_once("sec"));
    let lifetime = lifetime.and_then(|(seconds, _)| seconds.parse::<u32>().ok());
    assert!(lifetime.is_some_and(|seconds| (90..=120).contains(&seconds)), "{addresses}");

    // Its client lives on, and a start that finds it running is content.
    assert!(client_runs(&place));
    bench.start(&definition);
    assert_eq!(shell(&place, "kill -9 $(cat /run/penstock-dhcp/pid.eth0)").0, 0);
    assert!(within(Duration::from_secs(2), || !client_runs(&place)), "it has ended");
    bench.stop(&definition);
    bench.is_back(0);

    // What the model says of name servers stays.
    let dns = Some(Dns { servers: vec!["192.0.2.53".parse().unwrap()], search: Vec::new() });
    let place = bench.start(&GuestDefinition { dns, ..definition.clone() });
    leased(&place);
    let text = String::from_utf8(place.read("/etc/resolv.conf", 4096).unwrap()).unwrap();
    assert!(text.contains("nameserver 192.0.2.53\n") && !text.contains("10.7.7"), "{text}");
    bench.stop(&definition);
    drop(server);

    // A server that is late ends no start: the client asks on, and has its lease when one answers.
    bench.containers.define(&definition, Duration::from_secs(5)).unwrap();
    let began = Instant::now();
    bench.containers.start(&definition.guest, TIMEOUT).unwrap();
    // With what the shell that starts the client may take.
    assert!(began.elapsed() < TIMEOUT + Duration::from_secs(15), "{:?}", began.elapsed());
    let place = bench.containers.place(&definition.guest).expect("it runs");
    assert!(client_runs(&place) && place.read(&lease_file("eth0"), 4096).is_err());
    // It has gone round once: nothing of what it says grows for ever.
    thread::sleep(Duration::from_secs(8));
    let _server = Server::start(&bench, &["--dhcp-option=option:router,10.7.7.1"]);
    assert!(
        within(Duration::from_secs(30), || place.read(&lease_file("eth0"), 4096).is_ok()),
        "{}",
        shell(&place, "cat /run/penstock-dhcp/log.eth0").1
    );
    leased(&place);
    bench.stop(&definition);
    bench.is_back(0);
}

fn client_runs(place: &impl Place) -> bool {
    dhcp::client_runs(|path, limit| place.read(path, limit).ok(), "eth0")
}

/// Whether this comes true in time.
fn within(time: Duration, is_so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    loop {
        match is_so() {
            true => return true,
            false if began.elapsed() > time => return false,
            false => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Each client, from a root that has no other, and what is said where it has none.
pub fn udhcpc() {
    each_client("udhcpc");
}

pub fn busybox() {
    each_client("busybox");
}

pub fn dhcpcd() {
    each_client("dhcpcd");
}

pub fn dhclient() {
    each_client("dhclient");
}

fn each_client(client: &str) {
    let program = penstock_host::process::find(client).expect("it was looked for");
    let bench = Bench::new();
    let root = small_root();
    for program in ["/usr/bin/sed", "/bin/mkdir", "/bin/rm", "/bin/mv", "/bin/chmod"] {
        copy(Path::new(program), root.path());
    }
    let mut definition = wanting(&bench, client);
    definition.root = Some(root.path().to_str().unwrap().to_owned());
    let _server = Server::start(&bench, &["--dhcp-option=option:router,10.7.7.1"]);
    let ip = penstock_host::process::find("ip").unwrap();
    if client == "udhcpc" {
        let why = bench.refused(&definition);
        assert!(why.contains("there is no program ip inside"), "{why}");
        copy(&ip, root.path());
        let why = bench.refused(&definition);
        assert!(why.contains("there is no DHCP client inside"), "{why}");
    } else {
        copy(&ip, root.path());
    }
    copy(&program, root.path());
    for directory in ["var/lib/dhcpcd", "var/run"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    let place = bench.start(&definition);
    let lease = leased(&place);
    assert_eq!(lease.client, client);
    assert!(client_runs(&place));
    assert!(!root.path().join("etc/resolv.conf").exists(), "its resolver is its own");
    bench.stop(&definition);
    bench.is_back(0);

    // It takes an address of the model for a lease's, and gives it up with the lease.
    if client == "dhcpcd" {
        definition.functions[0].addresses.push("192.0.2.1/24".parse().unwrap());
        let why = bench.refused(&definition);
        assert!(why.contains("is not taken beside fixed addresses of IPv4"), "{why}");
        bench.is_back(0);
    }
}

/// Copies a program with its libraries to where it is in a root.
fn copy(program: &Path, root: &Path) {
    let libraries = Program::new("ldd").arg(program).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let files = libraries.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for file in files.chain([program]) {
        let to = root.join(file.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        assert!(
            Program::new("cp").arg("-L").arg(file).arg(to).status().unwrap().success(),
            "{}",
            file.display()
        );
    }
}
