//! The hook: the container runtime runs it for each container of a claim, before the container's first program (`createRuntime` of the OCI
//! runtime specification). It gives the pod its VF, or finds that it has it; else it fails, and the container does not start.
//!
//! It is short-lived and asks nobody but `penstock cni`: neither the agent nor the API server has to be there. The agent tells what came of it.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use penstock_host::{NetlinkError, NetworkNamespace, Root, boot, chain, files, interface_of};
use serde::Deserialize;
use thiserror::Error;

use crate::{
    cdi::HOOK_TIMEOUT,
    claim::{
        ClaimUid, StateError,
        network_plugin::{CallError, NetworkPlugin},
        parameters::VfMode,
        state::{
            AttachRecord, AttachStore, ClaimStore, PodReference, PodRefusal, PreparedClaim, PreparedDevice,
            SOCKET,
        },
    },
    identity::is_subdomain,
};

/// The runtime says this much of a container at most.
const STATE_LIMIT: u64 = 1 << 20;
/// A container's specification is not longer.
const SPECIFICATION_LIMIT: usize = 16 << 20;
/// The error of `penstock cni` for a VF that somebody has (docs/cni.md).
const TAKEN: u64 = 101;
/// How long a hook may take altogether: the runtime kills it at its timeout, and then nobody is told why.
const WITHIN: Duration = Duration::from_secs(HOOK_TIMEOUT as u64 * 3 / 4);
/// How long of that another call may be at the claim.
const LOCK: Duration = Duration::from_secs(20);

/// Why a container does not get its VF.
#[derive(Debug, Error)]
pub enum HookError {
    /// What is written down of claims could not be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The runtime's word on the container could not be read.
    #[error("the container's state could not be read from standard input")]
    Input(#[source] io::Error),
    /// The runtime's word on the container is not understood.
    #[error("the container's state on standard input is none of an OCI runtime")]
    NotOci(#[source] serde_json::Error),
    /// The claim is not prepared.
    #[error("claim {0} is not prepared on this node, or not any more")]
    NotPrepared(ClaimUid),
    /// The claim was prepared before the machine was started anew.
    #[error("claim {0} was prepared before this node was restarted: kubelet has to prepare it again")]
    Restarted(ClaimUid),
    /// The claim does not have the device.
    #[error("claim {uid} has no device {device}")]
    NoDevice {
        /// The claim.
        uid: ClaimUid,
        /// The device.
        device: String,
    },
    /// The container's network namespace could not be opened.
    #[error(transparent)]
    Namespace(#[from] files::FileError),
    /// The container shares the host's network.
    #[error("the container is in the host's own network namespace: a pod with hostNetwork cannot have a VF")]
    HostNetwork,
    /// The network namespace could not be looked at.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Another pod of the claim has the VF.
    #[error("another pod of the claim has the VF (network namespace {}): it is given to one pod at a time", netns.display())]
    OtherPod {
        /// A file of that pod's network namespace.
        netns: PathBuf,
    },
    /// `penstock cni` refused it.
    #[error(transparent)]
    Plugin(#[from] CallError),
}

impl HookError {
    /// Whether the container alone is at fault, before anything of the VF was looked at: a pod that has the VF is not concerned.
    fn is_of_the_container(&self) -> bool {
        match self {
            HookError::OtherPod { .. }
            | HookError::HostNetwork
            | HookError::NotOci(_)
            | HookError::Namespace(_) => true,
            HookError::State(_)
            | HookError::Input(_)
            | HookError::NotPrepared(_)
            | HookError::Restarted(_)
            | HookError::NoDevice { .. }
            | HookError::Netlink(_)
            | HookError::Plugin(_) => false,
        }
    }
}

/// The hook, and what a test replaces of it.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The agent's directory.
    pub state: PathBuf,
    /// The directory below which the machine is read; `/` for this machine.
    pub root: Root,
    /// How long it may take altogether.
    pub within: Duration,
    /// Called when a step is done.
    pub on_step: fn(AttachStep),
}

/// What the hook does, one after the other; each step is called when what it names is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachStep {
    /// That it is begun is written down.
    Begun,
    /// The VF is in the container's network namespace; one that a program drives is as it was bound.
    Added,
    /// That is written down.
    Written,
}

/// What the runtime says of a container (OCI runtime specification, "State").
#[derive(Debug, Deserialize)]
struct OciState {
    pid: u32,
    #[serde(default)]
    bundle: Option<PathBuf>,
}

/// The same, as far as it says whose container it is. Annotations of another kind keep nobody from a VF.
#[derive(Deserialize)]
struct AnnotatedState {
    annotations: BTreeMap<String, String>,
}

/// What of a container's specification names its network namespace.
#[derive(Deserialize)]
struct Specification {
    linux: Option<LinuxSpecification>,
}

#[derive(Deserialize)]
struct LinuxSpecification {
    #[serde(default)]
    namespaces: Vec<NamespaceSpecification>,
}

#[derive(Deserialize)]
struct NamespaceSpecification {
    #[serde(rename = "type")]
    kind: String,
    path: Option<PathBuf>,
}

/// A container's network namespace.
#[derive(Debug)]
struct ContainerNamespace {
    /// Held: its identity is its own for as long as this lives.
    held: NetworkNamespace,
    identity: (u64, u64),
    /// A file by which it can be entered.
    path: PathBuf,
}

/// Runs the hook for a device of a claim: reads the container's state from standard input, and prints why it failed.
pub fn run(claim: &str, device: &str, driver: &str, state: &Path) -> ExitCode {
    let hook = Hook::new(state, Root::system());
    match hook.attach(claim, device, io::stdin().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("{driver}: device {device} of claim {claim}: {}", chain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn complain(text: fmt::Arguments<'_>) {
    // Who reads the runtime's log may be gone.
    let _ =
        io::Write::write_all(&mut io::stderr(), format!("penstock-kubernetes attach: {text}\n").as_bytes());
}

impl Hook {
    /// The hook of the agent whose directory is `state`, on the machine below `root`.
    pub fn new(state: &Path, root: Root) -> Hook {
        Hook { state: state.to_owned(), root, within: WITHIN, on_step: |_| {} }
    }

    /// Gives the container of the state in `input` the device, or finds that its pod has it. A failure is written down for the agent.
    ///
    /// # Errors
    ///
    /// Whenever the pod does not have the device as it was asked for.
    pub fn attach(&self, claim: &str, device: &str, input: impl Read) -> Result<(), HookError> {
        let until = Instant::now() + self.within;
        // The runtime takes a hook that does not read for one that has ended badly, and says only that.
        let mut state = Vec::new();
        input.take(STATE_LIMIT).read_to_end(&mut state).map_err(HookError::Input)?;
        let uid: ClaimUid = claim.parse()?;
        let store = ClaimStore::existing(&self.state)?;
        let claim = store.map_or(Ok(None), |store| store.read(&uid))?;
        let Some(claim) = claim else { return Err(HookError::NotPrepared(uid)) };
        let records = AttachStore::open(&claim.run)?;
        let lock = records.lock(&uid, LOCK.min(until.saturating_duration_since(Instant::now())))?;
        let outcome = self.attach_locked(&claim, device, &state, &records, until);
        if let Err(error) = &outcome {
            // The container does not start, whether this can be written or not.
            let noted = match error {
                // It was taken back meanwhile: what is written now nobody would remove.
                HookError::NotPrepared(_) => records.unlock(&uid, lock),
                error if error.is_of_the_container() && is_given(&records, &uid, device) => {
                    note_refusal(&claim, device, &state, &records, chain(error))
                }
                _ => self.note_failure(&claim, device, &records, chain(error)),
            };
            if let Err(unwritten) = noted {
                complain(format_args!("that is not told on the claim: {}", chain(&unwritten)));
            }
        }
        wake_agent(&claim.run, &uid);
        outcome
    }

    fn attach_locked(
        &self,
        claim: &PreparedClaim,
        name: &str,
        state: &[u8],
        records: &AttachStore,
        until: Instant,
    ) -> Result<(), HookError> {
        let uid = &claim.uid;
        // It may have been taken back while the lock was waited for.
        let there = ClaimStore::existing(&self.state)?.map_or(Ok(None), |store| store.read(uid))?;
        if there.as_ref() != Some(claim) && there.is_none_or(|there| there.devices != claim.devices) {
            return Err(HookError::NotPrepared(uid.clone()));
        }
        if boot::id(&self.root).is_some_and(|boot| boot != claim.boot) {
            return Err(HookError::Restarted(uid.clone()));
        }
        let Some(device) = claim.device(name) else {
            return Err(HookError::NoDevice { uid: uid.clone(), device: name.to_owned() });
        };
        let container = container_namespace(&serde_json::from_slice(state).map_err(HookError::NotOci)?)?;
        let plugin = NetworkPlugin::until(&claim.penstock, until);
        let before = records.read(uid, name)?;
        let same = |record: &AttachRecord| record.namespace == container.identity;
        // The number of a namespace that has ended is given to another one: it counts while the file leads there by which it was known.
        if let Some(record) = before.as_ref().filter(|record| is_with(record)) {
            if !same(record) {
                return Err(HookError::OtherPod { netns: record.netns.clone() });
            }
            let given = record.attached.clone().unwrap_or_default();
            // A container that is started again, or another one of the pod.
            plugin.check(uid, device, &container.path, &given)?;
            if record.failure.is_some() {
                records.write(uid, name, &self::record(&container, Some(given), None))?;
            }
            return Ok(());
        }
        self.give(claim, device, records, &plugin, &container)
    }

    /// Gives the VF to the pod.
    fn give(
        &self,
        claim: &PreparedClaim,
        device: &PreparedDevice,
        records: &AttachStore,
        plugin: &NetworkPlugin,
        container: &ContainerNamespace,
    ) -> Result<(), HookError> {
        let (uid, name) = (&claim.uid, device.device.as_str());
        records.write(uid, name, &record(container, None, None))?;
        // Whoever was refused it has it now, or its pod is another one.
        records.write_refusal(uid, name, None)?;
        (self.on_step)(AttachStep::Begun);
        let given = match device.mode {
            VfMode::Netdev => match plugin.add(uid, device, &container.path) {
                // That hook was killed when the VF was given, and before that was written down.
                Err(CallError::Refused { code: TAKEN, .. }) if self.is_here(device, container)? => {
                    plugin.take_back_one(uid, device, &container.path)?;
                    plugin.add(uid, device, &container.path)?
                }
                given => given?,
            },
            // Prepare has bound it: the pod whose hook comes first has it.
            VfMode::Vfio => {
                let given = serde_json::Value::Object(serde_json::Map::new());
                plugin.check(uid, device, &container.path, &given)?;
                given
            }
        };
        (self.on_step)(AttachStep::Added);
        records.write(uid, name, &record(container, Some(given), None))?;
        (self.on_step)(AttachStep::Written);
        Ok(())
    }

    /// Whether the VF is in the container's network namespace, whoever says so.
    fn is_here(&self, device: &PreparedDevice, container: &ContainerNamespace) -> Result<bool, HookError> {
        let links = container.held.netlink().and_then(|mut netlink| netlink.links())?;
        // Before Linux 5.14 the kernel does not tell an interface's device.
        let silent = links.iter().all(|link| link.device.is_none());
        Ok(interface_of(device.function, &links, &self.root).is_some()
            || silent && links.iter().any(|link| link.interface.name == device.interface))
    }

    /// Writes down why a hook has failed, beside what the pod has.
    fn note_failure(
        &self,
        claim: &PreparedClaim,
        device: &str,
        records: &AttachStore,
        why: String,
    ) -> Result<(), StateError> {
        let none = || AttachRecord {
            format: AttachRecord::FORMAT,
            namespace: (0, 0),
            netns: PathBuf::new(),
            attached: None,
            failure: None,
            at: String::new(),
        };
        if claim.device(device).is_none() {
            return Ok(());
        }
        let before = records.read(&claim.uid, device)?.unwrap_or_else(none);
        records.write(&claim.uid, device, &AttachRecord { failure: Some(why), at: now(), ..before })
    }
}

/// Writes down that a pod was refused what another one has. Nothing is wrong with that one, and its record stays as it is.
fn note_refusal(
    claim: &PreparedClaim,
    device: &str,
    state: &[u8],
    records: &AttachStore,
    why: String,
) -> Result<(), StateError> {
    let state: Option<AnnotatedState> = serde_json::from_slice(state).ok();
    let pod = state.and_then(|state| pod_of(&state.annotations, &claim.namespace));
    let refusal = PodRefusal { format: PodRefusal::FORMAT, pod, why, at: now() };
    records.write_refusal(&claim.uid, device, Some(&refusal))
}

/// The pod of a container in this namespace, as containerd and CRI-O annotate containers.
fn pod_of(annotations: &BTreeMap<String, String>, namespace: &str) -> Option<PodReference> {
    let of = |name: &str, uid: &str, of_namespace: &str| {
        (annotations.get(of_namespace)? == namespace)
            .then_some(PodReference {
                name: annotations.get(name)?.clone(),
                uid: annotations.get(uid)?.clone(),
            })
            .filter(|pod| is_subdomain(&pod.name, 253) && is_subdomain(&pod.uid, 64))
    };
    let containerd = [
        "io.kubernetes.cri.sandbox-name",
        "io.kubernetes.cri.sandbox-uid",
        "io.kubernetes.cri.sandbox-namespace",
    ];
    let crio = ["io.kubernetes.pod.name", "io.kubernetes.pod.uid", "io.kubernetes.pod.namespace"];
    [containerd, crio].iter().find_map(|[name, uid, namespace]| of(name, uid, namespace))
}

fn record(
    container: &ContainerNamespace,
    attached: Option<serde_json::Value>,
    failure: Option<String>,
) -> AttachRecord {
    AttachRecord {
        format: AttachRecord::FORMAT,
        namespace: container.identity,
        netns: container.path.clone(),
        attached,
        failure,
        at: now(),
    }
}

/// The time, in RFC 3339.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Whether a pod that lives on has a device, as far as its record can be read.
fn is_given(records: &AttachStore, uid: &ClaimUid, device: &str) -> bool {
    records.read(uid, device).is_ok_and(|record| record.as_ref().is_some_and(is_with))
}

/// Whether a network namespace that was given the VF lives on.
fn is_with(record: &AttachRecord) -> bool {
    let opened = NetworkNamespace::open(&record.netns).and_then(|opened| opened.identity());
    record.attached.is_some() && opened.is_ok_and(|of| of == record.namespace)
}

/// The container's network namespace, by a file that lives as long as the pod's sandbox where the runtime names one: the container's own
/// process ends earlier.
fn container_namespace(state: &OciState) -> Result<ContainerNamespace, HookError> {
    let held = NetworkNamespace::open(format!("/proc/{}/ns/net", state.pid))?;
    let identity = held.identity()?;
    // The runtime's own is the host's. Where this one may not look at the first process `penstock cni` refuses its own all the same.
    let first = NetworkNamespace::open("/proc/1/ns/net").ok();
    for own in [NetworkNamespace::current()?].into_iter().chain(first) {
        if own.identity()? == identity {
            return Err(HookError::HostNetwork);
        }
    }
    let of_sandbox = state.bundle.as_deref().and_then(sandbox_namespace).filter(|path| {
        let opened = NetworkNamespace::open(path).and_then(|opened| opened.identity());
        opened.is_ok_and(|of| of == identity)
    });
    let path = of_sandbox.unwrap_or_else(|| held.path().to_owned());
    Ok(ContainerNamespace { held, identity, path })
}

/// The file of the network namespace that a container's specification says to join.
fn sandbox_namespace(bundle: &Path) -> Option<PathBuf> {
    let (text, _) = files::read_at_most(bundle.join("config.json"), SPECIFICATION_LIMIT).ok()?;
    let specification: Specification = serde_json::from_slice(&text).ok()?;
    let namespaces = specification.linux?.namespaces;
    let path = namespaces.into_iter().find(|namespace| namespace.kind == "network")?.path?;
    path.is_absolute().then_some(path)
}

/// Tells the agent that there is something to tell. Where there is none it looks when it starts.
fn wake_agent(run: &Path, uid: &ClaimUid) {
    if let Ok(socket) = UnixDatagram::unbound()
        && socket.set_nonblocking(true).is_ok()
    {
        let _ = socket.send_to(uid.as_str().as_bytes(), run.join(SOCKET));
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use proptest::{prelude::*, sample::select};
    use serde_json::{Value, json};

    use super::*;
    use crate::any_json::any_json;

    /// Any value that may stand where another is expected.
    fn any_value() -> impl Strategy<Value = Value> {
        any_json(any::<i64>(), ".{0,12}", "[a-z]{0,8}")
    }

    /// A process that has no network namespace of its own: none, this one, and the host's first.
    fn any_pid() -> impl Strategy<Value = Value> {
        let ids =
            select(vec![0, 1, u64::from(std::process::id()), u64::from(u32::MAX), u64::from(u32::MAX) + 1]);
        prop_oneof![4 => ids.prop_map(Value::from), 1 => any_value()]
    }

    /// A document with some of its keys left out, others of another kind, and cut somewhere at times.
    fn any_bytes(keys: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Vec<u8>> {
        let entries: Vec<_> = keys
            .into_iter()
            .map(|(key, value)| prop::option::weighted(0.9, value.prop_map(move |value| (key, value))))
            .collect();
        (entries, prop::option::weighted(0.2, any::<prop::sample::Index>())).prop_map(|(entries, cut)| {
            let document: serde_json::Map<String, Value> =
                entries.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect();
            let mut bytes = Value::Object(document).to_string().into_bytes();
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            bytes
        })
    }

    fn any_state() -> impl Strategy<Value = Vec<u8>> {
        let bundles =
            select(vec![json!("/"), json!("/proc/self"), json!("bundle"), json!("/dev/null"), json!("")]);
        any_bytes(vec![
            ("ociVersion", Just(json!("1.2.0")).boxed()),
            ("pid", any_pid().boxed()),
            ("bundle", prop_oneof![bundles, any_value()].boxed()),
            ("annotations", any_value().boxed()),
        ])
    }

    /// The specification of a container, with namespaces of any kind.
    fn any_specification() -> impl Strategy<Value = Vec<u8>> {
        let path = prop_oneof![Just(json!("/var/run/netns/a")), Just(json!("a")), any_value()];
        let kind = prop_oneof![3 => Just(json!("network")), 1 => any_value()];
        let namespace = (kind, path).prop_map(|(kind, path)| json!({"type": kind, "path": path}));
        let namespaces = prop::collection::vec(namespace, 0..4).prop_map(|all| json!({"namespaces": all}));
        any_bytes(vec![
            ("linux", prop_oneof![4 => namespaces, 1 => any_value()].boxed()),
            ("process", any_value().boxed()),
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        /// Whatever the runtime says, a VF goes to nobody whose network namespace is not provably a container's.
        #[test]
        fn a_state_without_a_container_of_its_own_gets_no_vf(state in prop_oneof![9 => any_state(), 1 => prop::collection::vec(any::<u8>(), 0..64)]) {
            if let Ok(state) = serde_json::from_slice::<OciState>(&state) {
                let found = container_namespace(&state);
                prop_assert!(found.is_err(), "{state:?} has {found:?}");
            }
        }

        /// Whatever a specification holds, the file that it names is a whole path, or there is none.
        #[test]
        fn a_specification_names_a_whole_path_or_none(specification in any_specification()) {
            let bundle = tempfile::tempdir().unwrap();
            std::fs::write(bundle.path().join("config.json"), specification).unwrap();
            if let Some(path) = sandbox_namespace(bundle.path()) {
                prop_assert!(path.is_absolute());
            }
        }
    }

    #[test]
    fn a_container_names_its_pod_as_its_runtime_does() {
        let annotations = |words: &[(&str, &str)]| {
            words.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let containerd = |namespace: &'static str| {
            annotations(&[
                ("io.kubernetes.cri.sandbox-name", "b"),
                ("io.kubernetes.cri.sandbox-uid", "0c5f-1"),
                ("io.kubernetes.cri.sandbox-namespace", namespace),
            ])
        };
        let crio = annotations(&[
            ("io.kubernetes.pod.name", "b"),
            ("io.kubernetes.pod.uid", "0c5f-1"),
            ("io.kubernetes.pod.namespace", "default"),
        ]);
        let pod = PodReference { name: "b".to_owned(), uid: "0c5f-1".to_owned() };
        assert_eq!(pod_of(&containerd("default"), "default"), Some(pod.clone()));
        assert_eq!(pod_of(&crio, "default"), Some(pod));
        assert_eq!(pod_of(&containerd("another"), "default"), None, "an Event goes to the claim's namespace");
        let odd = annotations(&[
            ("io.kubernetes.pod.name", "../b"),
            ("io.kubernetes.pod.uid", "u"),
            ("io.kubernetes.pod.namespace", "default"),
        ]);
        assert_eq!(pod_of(&odd, "default"), None);
    }

    #[test]
    fn a_specification_that_is_no_file_is_not_waited_for() {
        let bundle = tempfile::tempdir().unwrap();
        let config = bundle.path().join("config.json");
        nix::unistd::mkfifo(&config, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(sandbox_namespace(bundle.path()), None);
        std::fs::remove_file(&config).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &config).unwrap();
        assert_eq!(sandbox_namespace(bundle.path()), None);
    }
}
