//! The hook on machines made of namespaces: the VF is a veth interface, and `penstock` a script that moves it. This program is the hook, too,
//! when a test starts it as a container runtime does.
#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    io::{Write, stdin},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::getpid,
};
use penstock_host::{Root, chain};
use penstock_kubernetes::{
    attach::{AttachStep, Hook},
    claim::{
        ClaimUid,
        parameters::VfMode,
        state::{AttachRecord, AttachStore, ClaimStore, PodReference, PreparedClaim, PreparedDevice},
    },
};
use penstock_testkit::{namespace::Namespace, needs, script, trials::Trials};
use serde_json::json;
use tempfile::TempDir;

/// The directory of the machine that the hook is to be on.
const MACHINE: &str = "PENSTOCK_ATTACH_TEST_MACHINE";
/// The step at which it is to die.
const DIES: &str = "PENSTOCK_ATTACH_TEST_DIES";
/// How long it may take, in milliseconds.
const WITHIN: &str = "PENSTOCK_ATTACH_TEST_WITHIN";
/// The claim of all tests.
const UID: &str = "3c2c3dbf-8d5a-4dd5-9e3a-0a5f6d3c6f11";
/// The one device of it.
const DEVICE: &str = "net0-3";

/// `penstock cni`, of one VF.
const PENSTOCK: &str = r#"#!/bin/sh
d=$(dirname "$0")
cat > "$d/input"
echo "$CNI_COMMAND" >> "$d/log"
refuse() { echo "{\"cniVersion\": \"1.1.0\", \"code\": $1, \"msg\": \"$2\"}"; exit 1; }
[ "$1" = cni ] || exit 9
[ ! -e "$d/fails" ] || refuse 102 "$(cat "$d/fails")"
case $CNI_COMMAND in
ADD)
    [ ! -e "$d/given" ] || refuse 101 "container $CNI_CONTAINERID has it"
    ip link set vf0 netns "$CNI_NETNS" name "$CNI_IFNAME" 2>/dev/null || refuse 100 "there is no PCI function 0000:01:10.0"
    echo "$CNI_NETNS" > "$d/given"
    echo '{"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "x"}]}' ;;
CHECK) [ ! -e "$d/bound" ] || { [ "$(cat "$d/bound")" = vfio-pci ] || refuse 103 "it has no driver"; exit 0; }
    nsenter --net="$CNI_NETNS" ip link show "$CNI_IFNAME" > /dev/null 2>&1 || refuse 103 "the container has no interface $CNI_IFNAME" ;;
DEL)
    if [ -e "$d/given" ]; then
        nsenter --net="$(cat "$d/given")" ip link set "$CNI_IFNAME" netns "/proc/$$/ns/net" name vf0
        rm "$d/given"
    fi ;;
*) exit 9 ;;
esac
"#;

fn main() -> ExitCode {
    if let Some(machine) = env::var_os(MACHINE) {
        return be_the_hook(PathBuf::from(machine));
    }
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let missing = missing.or_else(|| trials.lacking("root", needs::root));
    let tests: [(&str, fn()); 10] = [
        ("a_pod_gets_its_vf_and_keeps_it_over_restarts_in_netns", a_pod_gets_its_vf),
        ("without_its_vf_a_container_does_not_start_in_netns", without_its_vf),
        ("a_hook_killed_at_any_step_is_run_again_in_netns", a_hook_killed_at_any_step),
        (
            "a_namespace_with_the_number_of_another_is_another_in_netns",
            a_namespace_with_the_number_of_another,
        ),
        ("another_pod_of_the_claim_takes_nothing_away_in_netns", another_pod_of_the_claim),
        ("a_vf_for_a_program_is_of_one_pod_in_netns", a_vf_for_a_program),
        ("the_hosts_network_is_refused_in_netns", the_hosts_network),
        ("a_claim_that_is_not_prepared_here_is_refused_in_netns", a_claim_that_is_not_prepared),
        ("a_hook_that_waited_through_an_unprepare_leaves_nothing_in_netns", waited_through_an_unprepare),
        ("a_hook_ends_within_its_time_in_netns", within_its_time),
    ];
    trials.add(&missing, tests);
    trials.run()
}

fn be_the_hook(machine: PathBuf) -> ExitCode {
    let dies = |step: AttachStep| {
        if env::var(DIES).is_ok_and(|at| format!("{step:?}") == at) {
            kill(getpid(), Signal::SIGKILL).unwrap();
        }
    };
    let within = env::var(WITHIN).ok().and_then(|within| within.parse().ok()).map(Duration::from_millis);
    let hook = Hook::new(&machine.join("state"), Root::at(machine.join("root")));
    let hook = Hook { within: within.unwrap_or(hook.within), on_step: dies, ..hook };
    match hook.attach(UID, DEVICE, stdin()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

struct Machine {
    host: Namespace,
    directory: TempDir,
}

/// How a hook ended: whether the container may start, and what it said.
#[derive(Debug)]
struct Ended {
    holds: bool,
    killed: bool,
    errors: String,
}

impl Ended {
    fn of(child: Child) -> Ended {
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Ended { holds: output.status.success(), killed: output.status.code().is_none(), errors }
    }
}

impl Machine {
    fn new() -> Machine {
        let host = Namespace::new();
        host.batch("ip", "link add vf0 address 02:00:00:00:00:20 type veth peer name wire\n");
        let machine = Machine { host, directory: tempfile::tempdir().unwrap() };
        let boot = machine.path("root/proc/sys/kernel/random");
        fs::create_dir_all(&boot).unwrap();
        fs::write(boot.join("boot_id"), "this-run\n").unwrap();
        let penstock = machine.path("bin/penstock");
        fs::create_dir_all(penstock.parent().unwrap()).unwrap();
        script::write(penstock, PENSTOCK);
        ClaimStore::open(&machine.path("state")).unwrap().write(&machine.claim()).unwrap();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn claim(&self) -> PreparedClaim {
        PreparedClaim {
            format: PreparedClaim::FORMAT,
            uid: UID.parse().unwrap(),
            namespace: "default".to_owned(),
            name: "data".to_owned(),
            pod_claim: None,
            driver: "sriov.penstock.dev".to_owned(),
            pods: vec![PodReference { name: "pod".to_owned(), uid: "p".to_owned() }],
            boot: "this-run".to_owned(),
            penstock: self.path("bin/penstock"),
            run: self.path("run"),
            devices: vec![PreparedDevice {
                pool: "node-1".to_owned(),
                device: DEVICE.to_owned(),
                requests: vec!["vf".to_owned()],
                function: "0000:01:10.0".parse().unwrap(),
                mode: VfMode::Netdev,
                interface: "net1".parse().unwrap(),
                mac: None,
                group: None,
                configuration: json!({"cniVersion": "1.1.0", "name": UID, "deviceID": "0000:01:10.0"}),
            }],
        }
    }

    /// Runs the hook for a container in `pod`; `bundle` is where its specification is.
    fn hook(&self, pod: u32, bundle: Option<&Path>, dies: Option<&str>) -> Ended {
        let child = self.begin(pod, bundle, &dies.map(|step| (DIES, step)).into_iter().collect::<Vec<_>>());
        let ended = Ended::of(child);
        assert_eq!(dies.is_some(), ended.killed, "{ended:?}");
        ended
    }

    /// A hook that has been told of its container.
    fn begin(&self, pod: u32, bundle: Option<&Path>, variables: &[(&str, &str)]) -> Child {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.host.id)).arg(env::current_exe().unwrap());
        command.env(MACHINE, self.directory.path());
        command.envs(variables.iter().copied());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let state = json!({"ociVersion": "1.0.2", "id": "c", "status": "creating", "pid": pod, "bundle": bundle,
            "annotations": {"io.kubernetes.cri.sandbox-name": "second", "io.kubernetes.cri.sandbox-uid": "p-2",
                "io.kubernetes.cri.sandbox-namespace": "default"}});
        child.stdin.take().unwrap().write_all(state.to_string().as_bytes()).unwrap();
        child
    }

    fn starts(&self, pod: &Namespace) {
        let ended = self.hook(pod.id, None, None);
        assert!(ended.holds, "{ended:?}");
        assert!(has(pod));
    }

    fn refused(&self, pod: u32, words: &str) {
        let ended = self.hook(pod, None, None);
        assert!(!ended.holds && ended.errors.contains(words), "{words}: {ended:?}");
    }

    fn record(&self) -> Option<AttachRecord> {
        AttachStore::open(&self.path("run")).unwrap().read(&UID.parse::<ClaimUid>().unwrap(), DEVICE).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("bin/log")).unwrap_or_default()
    }
}

fn has(pod: &Namespace) -> bool {
    pod.run("ip -o link show").contains(" net1@")
}

fn a_pod_gets_its_vf() {
    let machine = Machine::new();
    let pod = Namespace::new();
    machine.starts(&pod);
    let record = machine.record().unwrap();
    assert_eq!((record.failure, record.attached.is_some()), (None, true));
    assert_eq!(record.netns, PathBuf::from(format!("/proc/{}/ns/net", pod.id)));
    // Started anew three times, and a second container: it is looked at, and stays.
    for _ in 0..4 {
        machine.starts(&pod);
    }
    assert_eq!(machine.log(), "ADD\nCHECK\nCHECK\nCHECK\nCHECK\n");
    let mode = fs::metadata(machine.path("run")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // The sandbox is made anew: the kernel has given the VF back.
    machine.host.batch("ip", "link add vf0 type veth peer name wire9\n");
    fs::remove_file(machine.path("bin/given")).unwrap();
    drop(pod);
    let gone = machine.record().unwrap().netns;
    for _ in 0..500 {
        if !gone.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pod = Namespace::new();
    machine.starts(&pod);
    // The runtime names the sandbox's own file.
    let other = Machine::new();
    let bundle = other.path("bundle");
    fs::create_dir_all(&bundle).unwrap();
    let sandbox = other.path("sandbox");
    std::os::unix::fs::symlink(format!("/proc/{}/ns/net", pod.id), &sandbox).unwrap();
    let specification =
        json!({"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": sandbox}]}});
    fs::write(bundle.join("config.json"), specification.to_string()).unwrap();
    pod.run("ip link delete net1");
    assert!(other.hook(pod.id, Some(&bundle), None).holds);
    assert_eq!(other.record().unwrap().netns, sandbox);
}

fn without_its_vf() {
    let machine = Machine::new();
    let pod = Namespace::new();
    // Stolen before the container was made.
    machine.host.run("ip link set vf0 name stolen");
    for _ in 0..2 {
        machine.refused(pod.id, "there is no PCI function 0000:01:10.0");
        assert_eq!(
            machine.record().unwrap().failure.as_deref(),
            Some("there is no PCI function 0000:01:10.0")
        );
    }
    assert!(!has(&pod));
    machine.host.run("ip link set stolen name vf0");
    machine.starts(&pod);
    assert_eq!(machine.record().unwrap().failure, None);
    // Stolen between two containers.
    pod.run("ip link set net1 name other");
    machine.refused(pod.id, "the container has no interface net1");
    assert!(machine.record().unwrap().failure.is_some());
    pod.run("ip link set other name net1");
    machine.starts(&pod);
    assert_eq!(machine.record().unwrap().failure, None, "what is over is not told any more");
    // The plugin is not there at all.
    let machine = Machine::new();
    fs::remove_file(machine.path("bin/penstock")).unwrap();
    machine.refused(pod.id, "penstock");
    // Nothing that is understood.
    let machine = Machine::new();
    script::write(machine.path("bin/penstock"), "#!/bin/sh\necho nonsense\n");
    machine.refused(pod.id, "without an answer");
}

fn a_hook_killed_at_any_step() {
    for step in [AttachStep::Begun, AttachStep::Added, AttachStep::Written] {
        let machine = Machine::new();
        let pod = Namespace::new();
        machine.hook(pod.id, None, Some(&format!("{step:?}")));
        machine.starts(&pod);
        assert_eq!(machine.record().unwrap().failure, None, "{step:?}");
        let wanted = match step {
            AttachStep::Begun => "ADD\n",
            AttachStep::Added => "ADD\nADD\nDEL\nADD\n",
            AttachStep::Written => "ADD\nCHECK\n",
        };
        assert_eq!(machine.log(), wanted, "{step:?}");
    }
}

/// The kernel has given the number of a sandbox's namespace, which had the VF, to the sandbox that follows it.
fn a_namespace_with_the_number_of_another() {
    let machine = Machine::new();
    let pod = Namespace::new();
    let number = fs::metadata(format!("/proc/{}/ns/net", pod.id)).unwrap();
    let record = AttachRecord {
        format: AttachRecord::FORMAT,
        namespace: (number.dev(), number.ino()),
        netns: "/proc/0/ns/net".into(),
        attached: Some(json!({})),
        failure: Some("the container has no interface net1".to_owned()),
        at: "2026-01-01T00:00:00Z".to_owned(),
    };
    let records = AttachStore::open(&machine.path("run")).unwrap();
    records.write(&UID.parse().unwrap(), DEVICE, &record).unwrap();
    machine.starts(&pod);
    assert_eq!((machine.log(), machine.record().unwrap().failure), ("ADD\n".to_owned(), None));
}

fn another_pod_of_the_claim() {
    let machine = Machine::new();
    let (first, second) = (Namespace::new(), Namespace::new());
    machine.starts(&first);
    for _ in 0..2 {
        machine.refused(second.id, "another pod of the claim has the VF");
        assert!(has(&first) && !has(&second));
        // It is no failure of the first.
        let record = machine.record().unwrap();
        assert!(record.failure.is_none() && record.attached.is_some(), "{record:?}");
        let records = AttachStore::open(&machine.path("run")).unwrap();
        let refusal = records.refusal(&UID.parse().unwrap(), DEVICE).unwrap().unwrap();
        assert!(refusal.why.contains("another pod of the claim has the VF"), "{refusal:?}");
        let pod = PodReference { name: "second".to_owned(), uid: "p-2".to_owned() };
        assert_eq!(refusal.pod, Some(pod));
    }
    // Also where the record was lost.
    fs::remove_dir_all(machine.path("run")).unwrap();
    for _ in 0..2 {
        machine.refused(second.id, "has it");
        assert!(has(&first) && !has(&second));
    }
}

/// Prepare has bound the VF: the hook looks at it, and keeps it for one pod.
fn a_vf_for_a_program() {
    for dies in [None, Some(AttachStep::Begun), Some(AttachStep::Added), Some(AttachStep::Written)] {
        let machine = Machine::new();
        let mut claim = machine.claim();
        (claim.devices[0].mode, claim.devices[0].group) = (VfMode::Vfio, Some(9));
        ClaimStore::open(&machine.path("state")).unwrap().write(&claim).unwrap();
        fs::write(machine.path("bin/bound"), "vfio-pci\n").unwrap();
        let (first, second) = (Namespace::new(), Namespace::new());
        if let Some(step) = dies {
            machine.hook(first.id, None, Some(&format!("{step:?}")));
        }
        for _ in 0..2 {
            let ended = machine.hook(first.id, None, None);
            assert!(ended.holds, "{dies:?}: {ended:?}");
        }
        machine.refused(second.id, "another pod of the claim has the VF");
        fs::write(machine.path("bin/bound"), "none\n").unwrap();
        machine.refused(first.id, "it has no driver");
        assert!(machine.log().lines().all(|line| line == "CHECK"), "{}", machine.log());
    }
}

fn the_hosts_network() {
    let machine = Machine::new();
    machine.refused(machine.host.id, "a pod with hostNetwork cannot have a VF");
    assert_eq!(machine.log(), "");
    // Beside a pod that has the VF: nothing is wrong with that one.
    let machine = Machine::new();
    let first = Namespace::new();
    machine.starts(&first);
    let record = machine.record();
    machine.refused(machine.host.id, "a pod with hostNetwork cannot have a VF");
    assert!(record.is_some() && machine.record() == record, "{:?}", machine.record());
    let records = AttachStore::open(&machine.path("run")).unwrap();
    let refusal = records.refusal(&UID.parse().unwrap(), DEVICE).unwrap().unwrap();
    assert!(refusal.why.contains("hostNetwork") && refusal.pod.is_some(), "{refusal:?}");
    assert!(has(&first));
}

/// The claim's end has the lock when the hook comes.
fn waited_through_an_unprepare() {
    let machine = Machine::new();
    let pod = Namespace::new();
    let uid: ClaimUid = UID.parse().unwrap();
    let records = AttachStore::open(&machine.path("run")).unwrap();
    let lock = records.lock(&uid, Duration::ZERO).unwrap();
    let hook = machine.begin(pod.id, None, &[]);
    let began = Instant::now();
    let opened = format!("{UID}.lock");
    let waits = || {
        let files = fs::read_dir(format!("/proc/{}/fd", hook.id())).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file.ends_with(&opened))
    };
    while !waits() {
        assert!(began.elapsed() < Duration::from_secs(60), "the hook does not come to the lock");
        thread::yield_now();
    }
    ClaimStore::open(&machine.path("state")).unwrap().remove(&uid).unwrap();
    records.remove(&uid).unwrap();
    drop(lock);
    let ended = Ended::of(hook);
    assert!(!ended.holds && ended.errors.contains("is not prepared on this node"), "{ended:?}");
    let left: Vec<_> =
        fs::read_dir(machine.path("run")).unwrap().flatten().map(|file| file.file_name()).collect();
    assert!(left.iter().all(|name| name == "agent.sock"), "{left:?}");
    assert_eq!((machine.log(), has(&pod)), (String::new(), false));
}

/// Whatever is slow: all of it together has one time, and it is told what was.
fn within_its_time() {
    let machine = Machine::new();
    let pod = Namespace::new();
    script::write(machine.path("bin/penstock"), "#!/bin/sh\nexec sleep infinity\n");
    let began = Instant::now();
    let ended = Ended::of(machine.begin(pod.id, None, &[(WITHIN, "300")]));
    assert!(!ended.holds && ended.errors.contains("penstock cni"), "{ended:?}");
    assert!(machine.record().unwrap().failure.is_some(), "{ended:?}");
    // A call alone may take 40 s, and who is at the claim is waited for 20 s.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let records = AttachStore::open(&machine.path("run")).unwrap();
    let _lock = records.lock(&UID.parse().unwrap(), Duration::ZERO).unwrap();
    let began = Instant::now();
    let ended = Ended::of(machine.begin(pod.id, None, &[(WITHIN, "0")]));
    assert!(!ended.holds && ended.errors.contains("another call has been at work"), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

fn a_claim_that_is_not_prepared() {
    let machine = Machine::new();
    let pod = Namespace::new();
    let store = ClaimStore::open(&machine.path("state")).unwrap();
    store.write(&PreparedClaim { boot: "an-earlier-run".to_owned(), ..machine.claim() }).unwrap();
    machine.refused(pod.id, "kubelet has to prepare it again");
    store.write(&PreparedClaim { devices: Vec::new(), ..machine.claim() }).unwrap();
    machine.refused(pod.id, "has no device net0-3");
    store.remove(&UID.parse().unwrap()).unwrap();
    machine.refused(pod.id, "is not prepared on this node");
    assert_eq!((machine.log(), has(&pod)), (String::new(), false));
}
