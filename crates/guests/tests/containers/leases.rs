//! Leases inside containers, of a real DHCP server at the other end of a veth.

use std::{
    fs,
    path::Path,
    process::{Child, Command as Program, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_host::Place;
use penstock_model::{Dns, dhcp::Lease, dhcp::lease_file};
use penstock_plan::action::GuestDefinition;

use crate::bench::{Bench, ip, shell, small_root};

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
fn leased(place: &impl Place) -> Lease {
    let note = String::from_utf8(place.read(&lease_file("eth0"), 4096).unwrap()).unwrap();
    let lease = Lease::read(&note).unwrap_or_else(|| panic!("{note:?} is no lease"));
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
    let hosts = || (fs::read("/etc/resolv.conf").ok(), fs::read("/proc/sys/kernel/hostname").unwrap());
    let before = hosts();
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
    assert!(text.contains(servers) && !text.contains("10.7.7.56") && !text.contains("evil"), "{text}");
    assert!(
        text.lines().filter(|line| line.starts_with("search")).all(|line| line == "search lab.example lan"),
        "{text}"
    );
    assert_eq!(shell(&place, "test -e /run/evil").0, 1);
    assert_eq!(shell(&place, "hostname").1.trim(), definition.guest.as_str());
    let (_, routes) = shell(&place, "ip -4 route");
    assert!(
        !routes.contains("10.7.7.66") && routes.contains("default via 10.7.7.1 dev eth0 metric 1024"),
        "{routes}"
    );
    assert_eq!(hosts(), before, "nothing of it has reached the host");

    // Its client lives on, and a start that finds it running is content.
    assert_eq!(shell(&place, "grep -l udhcpc /proc/[0-9]*/comm").0, 0);
    bench.start(&definition);
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

    // Without an answer nothing is left running.
    let began = Instant::now();
    let why = bench.refused(&definition);
    assert!(why.contains("its interface eth0 has no lease") && why.contains("udhcpc"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(40));
    bench.is_back(0);
}

/// Each client, from a root that has no other; and what is said where it has none.
pub fn each_client() {
    for client in ["udhcpc", "dhcpcd", "dhclient"] {
        let Some(program) = penstock_host::process::find(client) else { continue };
        let bench = Bench::new();
        let root = small_root();
        for program in ["/usr/bin/sed", "/bin/mkdir", "/bin/rm", "/bin/mv", "/bin/chmod", "/usr/bin/tail"] {
            copy(Path::new(program), root.path());
        }
        let mut definition = wanting(&bench, client);
        definition.root = Some(root.path().to_str().unwrap().to_owned());
        let server = Server::start(&bench, &["--dhcp-option=option:router,10.7.7.1"]);
        if client == "udhcpc" {
            let why = bench.refused(&definition);
            assert!(why.contains("there is no program ip inside"), "{why}");
            copy(&penstock_host::process::find("ip").unwrap(), root.path());
            let why = bench.refused(&definition);
            assert!(why.contains("there is no DHCP client inside"), "{why}");
        } else {
            copy(&penstock_host::process::find("ip").unwrap(), root.path());
        }
        copy(&program, root.path());
        for directory in ["var/lib/dhcpcd", "var/run"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let place = bench.start(&definition);
        let lease = leased(&place);
        assert_eq!(lease.client, client);
        assert!(!root.path().join("etc/resolv.conf").exists(), "nothing is written into its root");
        bench.stop(&definition);
        bench.is_back(0);
        drop(server);
        thread::sleep(Duration::from_millis(50));
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
