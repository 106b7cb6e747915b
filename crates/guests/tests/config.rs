//! Golden configurations: what LXC is told for each definition. `UPDATE_GOLDEN=1` writes them anew.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use penstock_guests::containers::{
    apparmor::Profile,
    config::{self, Config, ConfigError},
    devices::Granted,
    ids::Ids,
};
use penstock_host::device::Device;
use penstock_model::{
    DataPath, Dns, Emulation, InterfaceName, InterfaceRoute, Mac, Mtu, TenantNic, TxRate, Uplink, VfSettings,
};
use penstock_plan::action::{GuestDefinition, GuestFunction, GuestNic};

fn function(bdf: &str, interface: &str, mtu: Option<u32>, addresses: &[&str]) -> GuestFunction {
    GuestFunction {
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        mtu: mtu.map(|mtu| Mtu::new(mtu).unwrap()),
        ..GuestFunction::bare(bdf.parse().unwrap(), interface.parse().unwrap())
    }
}

fn definition(guest: &str) -> GuestDefinition {
    GuestDefinition::bare(guest.parse().unwrap())
}

fn render(definition: &GuestDefinition, links: &[&str], apparmor: Option<Profile>) -> String {
    let interfaces: Vec<InterfaceName> = links.iter().map(|link| link.parse().unwrap()).collect();
    config::render(&Config {
        definition,
        interfaces: &interfaces,
        nics: &[],
        devices: &[],
        directory: Path::new("/run/penstock/guests/penstock-linux-2"),
        ids: ids(definition),
        raise_limits: true,
        map_root: true,
        apparmor,
    })
    .unwrap()
}

/// The host's ids for it.
fn ids(definition: &GuestDefinition) -> Option<Ids> {
    (!definition.privileged).then_some(Ids { user: 1_048_576, group: 1_114_112 })
}

#[track_caller]
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    penstock_testkit::golden::compare(&path, text);
}

#[test]
fn a_guest_with_nothing_has_no_network() {
    golden("bare.conf", &render(&definition("linux-2"), &[], None));
}

#[test]
fn functions_come_with_names_addresses_and_mtu() {
    let definition = GuestDefinition {
        cpus: Some(2),
        memory: Some(256 << 20),
        functions: vec![
            function("0000:04:10.0", "eth0", Some(9000), &["10.20.31.204/24", "10.0.0.1/31", "10.0.0.9/32"]),
            function("0000:04:10.2", "data", None, &["fd00::4/64"]),
        ],
        ..definition("linux-2")
    };
    golden("functions.conf", &render(&definition, &["ens1f0v0", "eth0"], Some(Profile::Generated)));
}

#[test]
fn nics_of_its_own_come_behind_the_functions() {
    let nic = |name: &str, last: u8, mtu: Option<u32>, addresses: &[&str]| GuestNic {
        name: name.parse().unwrap(),
        nic: TenantNic {
            emulation: Emulation::Virtio,
            mac: Mac::new([2, 0, 0, 0, 1, last]),
            vfs: Vec::new(),
            settings: VfSettings::default(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            routes: Vec::new(),
            dhcp: false,
            mtu: mtu.and_then(Mtu::new),
            path: DataPath::VirtioVdpa,
            uplink: Some(Uplink::Interface("br0".parse().unwrap())),
            uplink_settings: None,
            queues: 1,
            workers: 1,
            allow: None,
            vf_allow: Default::default(),
        },
        uplink_at: None,
    };
    let mut definition = GuestDefinition {
        functions: vec![function("0000:04:10.0", "eth0", None, &["10.20.31.204/24"])],
        nics: vec![nic("net0", 1, Some(1400), &["10.20.50.1/24", "fd00::4/64"]), nic("net1", 2, None, &[])],
        ..definition("linux-2")
    };
    let nics = ["eth1", "eth2"].map(|name| name.parse().unwrap());
    let rendered = |definition: &GuestDefinition, links: &[&str]| {
        let interfaces: Vec<InterfaceName> = links.iter().map(|link| link.parse().unwrap()).collect();
        let config = Config {
            definition,
            interfaces: &interfaces,
            nics: &nics,
            devices: &[],
            directory: Path::new("/run/penstock/guests/penstock-linux-2"),
            ids: ids(definition),
            raise_limits: true,
            map_root: true,
            apparmor: None,
        };
        let text = config::render(&config).unwrap();
        text.lines().filter(|line| line.starts_with("lxc.net.")).collect::<Vec<_>>().join("\n") + "\n"
    };
    golden("nics.conf", &rendered(&definition, &["ens1f0v0"]));
    definition.functions.clear();
    let alone = rendered(&definition, &[]);
    assert!(alone.starts_with("lxc.net.0.type = phys\nlxc.net.0.link = eth1\n"), "{alone}");
}

#[test]
fn the_default_root_is_made_by_a_script() {
    let definition = definition("linux-2");
    let config = Config {
        definition: &definition,
        interfaces: &[],
        nics: &[],
        devices: &[],
        directory: Path::new("/run/penstock/guests/penstock-linux-2"),
        ids: ids(&definition),
        raise_limits: true,
        map_root: false,
        apparmor: None,
    };
    let script = config::root_script(&config).unwrap().expect("it has no directory of its own");
    for secret in ["shadow", "ssh", "/root", "/home", "/var/", "machine-id"] {
        assert!(
            !script.contains(&format!("/etc{secret}")) && !script.contains(&format!("etc/{secret}")),
            "{secret}"
        );
    }
    golden("root.sh", &script);
    let resolver =
        "rm -f etc/resolv.conf\ncp /run/penstock/guests/penstock-linux-2/resolv.conf etc/resolv.conf\n";
    assert!(!script.contains(resolver), "the model says nothing of name servers");
    let named = GuestDefinition { dns: Some(dns()), ..definition.clone() };
    let script = config::root_script(&Config { definition: &named, ..config.clone() }).unwrap().unwrap();
    assert!(script.ends_with(resolver), "{script}");
    let own = GuestDefinition { root: Some("/srv/a".to_owned()), ..definition.clone() };
    assert_eq!(config::root_script(&Config { definition: &own, ..config }), Ok(None));
}

fn dns() -> Dns {
    Dns { servers: vec!["192.0.2.53".parse().unwrap()], search: vec!["lan".parse().unwrap()] }
}

/// Nothing is written into a root of its own: the file lies over that of the root.
#[test]
fn name_servers_lie_over_the_file_of_a_root_of_its_own() {
    let mount = "lxc.mount.entry = /run/penstock/guests/penstock-linux-2/resolv.conf etc/resolv.conf none bind,ro 0 0\n";
    let own = GuestDefinition { root: Some("/srv/a".to_owned()), dns: Some(dns()), ..definition("linux-2") };
    assert!(render(&own, &[], None).contains(mount));
    for other in [GuestDefinition { root: None, ..own.clone() }, GuestDefinition { dns: None, ..own.clone() }]
    {
        assert!(!render(&other, &[], None).contains("resolv.conf"), "{other:?}");
    }
}

#[test]
fn a_privileged_container_keeps_the_hosts_ids_and_the_other_fences() {
    let privileged = GuestDefinition { privileged: true, ..definition("linux-2") };
    let text = render(&privileged, &[], None);
    assert!(!text.contains("lxc.idmap") && text.contains("lxc.no_new_privs = 1"), "{text}");
    golden("privileged.conf", &text);
    // Only an init of its own may gain rights.
    let own = GuestDefinition { root: Some("/srv/a".to_owned()), ..privileged };
    let text = render(&own, &[], None);
    assert!(!text.contains("no_new_privs") && !text.contains("idmap"), "{text}");
    assert!(text.contains("lxc.seccomp.profile") && text.contains("proc/irq"), "{text}");
}

#[test]
fn a_directory_with_an_init_of_its_own() {
    let definition = GuestDefinition {
        root: Some("/srv/guests/a guest".to_owned()),
        init: vec!["/sbin/init".to_owned()],
        functions: vec![function("0000:04:10.0", "eth0", None, &[])],
        ..definition("linux-2")
    };
    golden("directory.conf", &render(&definition, &["ens1f0v0"], Some(Profile::Unconfined("no parser"))));
}

fn granted(node: &str, inside: &str, write: bool) -> Granted {
    let device = Device { block: node != "/dev/ttyS1", major: 8, minor: 16 };
    Granted { device, node: node.into(), inside: inside.to_owned(), write }
}

fn route(to: &str, via: Option<&str>, priority: Option<u32>) -> InterfaceRoute {
    let via = via.map(|via| via.parse().unwrap());
    InterfaceRoute { priority, ..InterfaceRoute::new(to.parse().unwrap(), via) }
}

#[test]
fn devices_pins_rates_and_routes() {
    let limited = GuestFunction {
        egress_rate: Some(TxRate(100)),
        ingress_rate: Some(TxRate(2500)),
        routes: vec![route("0.0.0.0/0", Some("192.0.2.1"), None), route("fd00:1::/64", None, Some(50))],
        ..function("0000:04:10.0", "eth0", Some(9000), &["192.0.2.10/24"])
    };
    let odd = GuestFunction { egress_rate: Some(TxRate(1)), ..function("0000:04:10.4", "it's$0", None, &[]) };
    let definition = GuestDefinition {
        pin: Some("1-2,5".parse().unwrap()),
        functions: vec![limited, function("0000:04:10.2", "eth1", None, &[]), odd],
        ..definition("linux-2")
    };
    let interfaces: Vec<InterfaceName> = ["a", "b", "c"].map(|name| name.parse().unwrap()).to_vec();
    let config = Config {
        definition: &definition,
        interfaces: &interfaces,
        nics: &[],
        devices: &[
            granted("/dev/sdb", "/dev/disk/by-id/usb-a:b", true),
            granted("/dev/ttyS1", "/dev/serial #1", false),
        ],
        directory: Path::new("/run/penstock/guests/penstock-linux-2"),
        ids: None,
        raise_limits: true,
        map_root: false,
        apparmor: None,
    };
    golden("limited.conf", &config::render(&config).unwrap());
    golden("start.sh", &config::start_script(&config, &[1500, 1500, 1500]).unwrap().unwrap());
    let unlimited = GuestDefinition { functions: vec![], ..definition.clone() };
    let config = Config { definition: &unlimited, interfaces: &[], ..config };
    assert_eq!(config::start_script(&config, &[]), Ok(None));
}

#[test]
fn a_devices_path_cannot_smuggle_mounts_in() {
    let definition = definition("a");
    for path in [
        "/etc/shadow",
        "/dev/../etc/shadow",
        "/dev/./a",
        "/dev//a",
        "/dev/",
        "dev/a",
        "/dev/a\nlxc.cap.keep = all",
        "",
    ] {
        for devices in [[granted(path, "/dev/a", true)], [granted("/dev/a", path, true)]] {
            let rendered = config::render(&Config {
                definition: &definition,
                interfaces: &[],
                nics: &[],
                devices: &devices,
                directory: Path::new("/run/penstock/guests/penstock-a"),
                ids: None,
                raise_limits: true,
                map_root: false,
                apparmor: None,
            });
            assert!(matches!(rendered, Err(ConfigError::Device { .. })), "{path:?}: {rendered:?}");
        }
    }
}

#[test]
fn a_path_cannot_smuggle_keys_in() {
    let refused = |root: &str| {
        let definition = GuestDefinition { root: Some(root.to_owned()), ..definition("a") };
        config::render(&Config {
            definition: &definition,
            interfaces: &[],
            nics: &[],
            devices: &[],
            directory: Path::new("/run/penstock/guests/penstock-a"),
            ids: None,
            raise_limits: true,
            map_root: false,
            apparmor: None,
        })
        .unwrap_err()
    };
    for root in ["/srv/x\nlxc.cap.keep = all", "srv", "/", "//", "/srv ", ""] {
        assert!(matches!(refused(root), ConfigError::Root { .. }), "{root:?}");
    }
    for directory in ["/run/it's/a", "/run/a,b", "/run/a b", "run", "/run/$(reboot)"] {
        let refused = config::render(&Config {
            definition: &definition("a"),
            interfaces: &[],
            nics: &[],
            devices: &[],
            directory: Path::new(directory),
            ids: None,
            raise_limits: true,
            map_root: false,
            apparmor: None,
        });
        assert!(matches!(refused, Err(ConfigError::State { .. })), "{directory:?}");
    }
}

#[test]
fn the_default_first_process_is_idle() {
    assert_eq!(config::init(&definition("a"))[0], "/bin/sh");
    let own =
        GuestDefinition { init: vec!["/usr/bin/netserver".to_owned(), "-D".to_owned()], ..definition("a") };
    assert_eq!(config::init(&own), ["/usr/bin/netserver", "-D"]);
}
