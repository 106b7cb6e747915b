//! Two functions for containers: the ends of a veth pair in place of VFs.

use std::{
    collections::BTreeMap,
    error::Error as _,
    fs,
    os::unix::fs::PermissionsExt,
    process::Command as Program,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use penstock_guests::{Builtin, Containers, Guests, Recognise, Vms};
use penstock_host::{Command, InterfaceReport, Netlink, Place, Root};
use penstock_model::{Bdf, GuestName, Mac, Mtu};
use penstock_plan::action::{GuestDefinition, GuestFunction};

/// How long a container may take to start or to stop.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Tells interfaces by their MAC address but for its first byte, which guests may change, as a VF is told by its PCI device.
pub struct ByMac {
    pub functions: BTreeMap<Bdf, Mac>,
    /// The PF of end 0, where that is to be a VF.
    pf: Option<Bdf>,
    /// Whether the functions are on this machine; a veth is gone for good when its namespace dies with it inside.
    pub exist: AtomicBool,
    /// Whether the host's life hangs on them.
    pub lifeline: AtomicBool,
    /// How often the whole machine was searched for that.
    pub looks: AtomicU32,
}

impl Recognise for ByMac {
    fn find(&self, function: Bdf, among: &[InterfaceReport]) -> Option<InterfaceReport> {
        let mac = self.functions.get(&function)?;
        let is = |report: &&InterfaceReport| report.interface.mac.octets()[1..] == mac.octets()[1..];
        among.iter().find(is).cloned()
    }

    fn physical_function(&self, function: Bdf) -> Option<Bdf> {
        self.pf.filter(|_| function == bdf(0))
    }

    fn exists(&self, function: Bdf) -> bool {
        self.functions.contains_key(&function) && self.exist.load(Ordering::Relaxed)
    }

    fn lifelines(&self) -> BTreeMap<Bdf, Vec<String>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let all = self.functions.keys().map(|function| (*function, vec!["all goes over it".to_owned()]));
        all.filter(|_| self.lifeline.load(Ordering::Relaxed)).collect()
    }
}

/// A veth pair whose two ends stand for two functions, and containers of their own.
pub struct Bench {
    pub number: u32,
    pub state: tempfile::TempDir,
    pub by: Arc<ByMac>,
    pub containers: Containers,
}

static BENCHES: AtomicU32 = AtomicU32::new(0);

impl Bench {
    pub fn new() -> Bench {
        Bench::with(None)
    }

    /// One whose end 0 is a VF, and whose PF, function 7, has its link.
    pub fn of_pf() -> Bench {
        let bench = Bench::with(Some(bdf(7)));
        let pf = format!("pf{}", bench.number);
        let wire = format!("{pf}x");
        ip(&["link", "add", &pf, "address", &bench.mac(7), "type", "veth", "peer", "name", &wire]);
        ip(&["link", "set", &pf, "up"]);
        ip(&["link", "set", &wire, "up"]);
        bench
    }

    fn with(pf: Option<Bdf>) -> Bench {
        let number = BENCHES.fetch_add(1, Ordering::Relaxed);
        let state = tempfile::tempdir().unwrap();
        // A container's root is an ordinary account of the host, and has to reach its own directory.
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut functions = BTreeMap::new();
        for end in [0, 1, 7] {
            let mac = format!("02:00:00:00:{number:02x}:{end:02x}");
            functions.insert(bdf(end), mac.parse().unwrap());
        }
        let by = Arc::new(ByMac {
            functions,
            pf,
            exist: AtomicBool::new(true),
            lifeline: AtomicBool::new(false),
            looks: AtomicU32::new(0),
        });
        let containers = Containers::new(Root::system(), state.path().join("guests"))
            .keeping_ids_in(state.path().join("ids"))
            .recognising(by.clone());
        let bench = Bench { number, state, by, containers };
        let (a, b) = (bench.link(0), bench.link(1));
        ip(&["link", "add", &a, "address", &bench.mac(0), "type", "veth", "peer", "name", &b]);
        ip(&["link", "set", &b, "address", &bench.mac(1)]);
        bench
    }

    /// What carries out a plan's steps for these containers.
    pub fn guests(&self) -> Guests {
        let state = self.state.path().join("guests");
        let vms = Vms::new(Root::system(), state.clone(), Builtin::default());
        Guests::of(state, self.containers.clone(), vms)
    }

    /// The name on the host of one end.
    pub fn link(&self, end: u32) -> String {
        format!("vf{}x{end}", self.number)
    }

    pub fn mac(&self, end: u32) -> String {
        self.by.functions[&bdf(end)].to_string()
    }

    /// The end as the host shows it.
    pub fn on_host(&self, end: u32) -> Option<InterfaceReport> {
        let all = Netlink::open().unwrap().interfaces().unwrap();
        self.by.find(bdf(end), &all)
    }

    #[track_caller]
    pub fn is_back(&self, end: u32) {
        let report = self.on_host(end).expect("the interface is on the host");
        assert_eq!(report.interface.name.as_str(), self.link(end));
        assert_eq!(report.interface.mtu, 1500);
        assert!(!report.interface.up);
        assert_eq!(report.interface.addresses, []);
    }

    /// A guest called `name` with the function of this end, at 10.7.7.1 or .2 inside.
    pub fn guest(&self, name: &str, end: u32) -> GuestDefinition {
        GuestDefinition {
            functions: vec![GuestFunction {
                addresses: vec![
                    format!("10.7.7.{}/24", end + 1).parse().unwrap(),
                    format!("fd07::{}/64", end + 1).parse().unwrap(),
                ],
                mtu: Mtu::new(1400),
                ..GuestFunction::bare(bdf(end), "eth0".parse().unwrap())
            }],
            ..GuestDefinition::bare(guest(&format!("{name}{}", self.number)))
        }
    }

    #[track_caller]
    pub fn start(&self, definition: &GuestDefinition) -> impl Place + use<> {
        self.containers.define(definition, TIMEOUT).unwrap();
        if let Err(error) = self.containers.start(&definition.guest, TIMEOUT) {
            panic!("{error}: {:?}", error.source());
        }
        self.containers.place(&definition.guest).expect("it runs")
    }

    #[track_caller]
    pub fn refused(&self, definition: &GuestDefinition) -> String {
        self.containers.define(definition, TIMEOUT).unwrap();
        let error = self.containers.start(&definition.guest, TIMEOUT).unwrap_err();
        assert!(!self.runs(definition));
        format!("{error} | {:?}", error.source().map(ToString::to_string))
    }

    pub fn stop(&self, definition: &GuestDefinition) {
        self.containers.stop(&definition.guest, TIMEOUT).unwrap();
    }

    pub fn runs(&self, definition: &GuestDefinition) -> bool {
        self.containers.found().unwrap()[&definition.guest].running
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A test that failed half-way must not leave a container behind.
        for guest in self.containers.found().unwrap_or_default().keys() {
            self.by.exist.store(false, Ordering::Relaxed);
            let _ = self.containers.stop(guest, Duration::from_secs(2));
        }
        for link in [self.link(0), format!("pf{}", self.number)] {
            let _ = Program::new("ip").args(["link", "del", &link]).output();
        }
    }
}

pub fn bdf(end: u32) -> Bdf {
    format!("0000:01:10.{end}").parse().unwrap()
}

pub fn guest(name: &str) -> GuestName {
    name.parse().unwrap()
}

#[track_caller]
pub fn ip(arguments: &[&str]) {
    let output = Program::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What a shell inside prints and how it ends.
#[track_caller]
pub fn shell(place: &impl Place, script: &str) -> (i32, String) {
    let output = place.run(&Command::new("sh").args(["-c", script])).unwrap();
    (output.status.code().unwrap_or(-1), output.text() + &output.errors())
}

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A directory with a shell in it and little else.
pub fn small_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for directory in ["bin", "dev", "proc", "sys", "etc", "usr/bin"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    for program in ["/bin/sh", "/bin/sleep", "/bin/cat", "/usr/bin/unshare"] {
        let libraries = Program::new("ldd").arg(program).output().unwrap();
        let libraries = String::from_utf8(libraries.stdout).unwrap();
        let files = libraries.split_whitespace().filter(|word| word.starts_with('/'));
        for file in files.chain([program]) {
            let to = root.path().join(file.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            // By another process, of which no child of this one can have it open for writing when it is to be run.
            let copied = Program::new("cp").arg(file).arg(to).status().unwrap();
            assert!(copied.success(), "{file} is not copied");
        }
    }
    root
}
