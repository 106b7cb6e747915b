//! Kubelet's calls over the plugin's own sockets, with a recorded machine, a script as `penstock`, and an API server of two objects. This
//! program is the agent, too, when a test wants it killed in a step.
#![allow(clippy::disallowed_methods)]

#[path = "claims/beside.rs"]
mod beside;
#[path = "claims/drift.rs"]
mod drift;
#[path = "claims/given_up.rs"]
mod given_up;
#[path = "claims/machine.rs"]
mod machine;
#[path = "claims/orphans.rs"]
mod orphans;
#[path = "claims/refused.rs"]
mod refused;
#[path = "claims/told.rs"]
mod told;
#[path = "claims/updated.rs"]
mod updated;

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use machine::{DIES, DRIVER, MACHINE, Machine, claim, device_name, devices};
use nix::{
    sys::signal::{Signal, kill},
    unistd::getpid,
};
use penstock_host::{Root, chain};
use penstock_kubernetes::{
    change::NodeHost,
    claim::{
        CallerWaits, Claims,
        allocation::{AllocatedClaim, allocated},
        held,
        prepare::ClaimStep,
        state::{AttachRecord, AttachStore, ClaimStore},
    },
    client::ApiError,
    devices::Devices,
    health::{ClaimDrift, DeviceCondition, DeviceHealth, DriftEvent, HealthReport},
    metrics::ClaimTimings,
    plugin::{
        ServeError, Settings,
        claim_api::{ClaimApi, ClaimApiError},
        orphans::OrphanSettings,
        registration,
        reporter::ClaimDriftReport,
        serve_on,
    },
    protocol::{
        dra_health_v1alpha1::{
            NodeWatchResourcesRequest, dra_resource_health_client::DraResourceHealthClient,
        },
        dra_v1::{
            self, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
            dra_plugin_client::DraPluginClient,
        },
        pluginregistration_v1::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
    },
};
use penstock_testkit::{
    needs,
    trials::{Outcome, Trials},
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tonic::transport::{Channel, Endpoint};

/// How long something is waited for that takes milliseconds.
const SOON: Duration = Duration::from_secs(60);

type Check = fn() -> Outcome;

fn main() -> ExitCode {
    if let Some(machine) = env::var_os(MACHINE) {
        return be_the_agent(PathBuf::from(machine));
    }
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("the plugin", || needs::programs(&["sh", "sed", "grep", "readlink", "ln"]));
    let tests: [(&str, Check); 29] = [
        ("kubelet_registers_the_driver_and_hears_of_health", kubelet_registers),
        ("a_claim_is_prepared_and_unprepared_over_the_sockets", a_claim_is_prepared),
        ("what_a_claim_cannot_have_is_refused_with_the_reason", what_a_claim_cannot_have),
        ("an_agent_killed_at_any_step_is_asked_again", an_agent_killed_at_any_step),
        ("a_vf_for_a_program_is_bound_and_comes_back", a_vf_for_a_program),
        ("an_agent_killed_while_it_binds_a_vf_is_asked_again", an_agent_killed_while_it_binds),
        ("a_claim_is_prepared_anew_after_a_restart_of_the_node", after_a_restart),
        ("what_hooks_have_written_is_told_on_the_claim", told::what_hooks_have_written),
        ("a_claim_that_kubelet_has_forgotten_is_taken_back", orphans::forgotten),
        ("one_agent_serves_a_node", one_agent),
        ("a_request_is_named_as_containers_name_it", told::a_request_of_alternatives),
        ("a_device_that_no_container_asks_for_is_told", told::a_device_that_no_container_asks_for),
        ("a_refusal_is_told_once_and_not_late", told::a_refusal_is_told_once),
        ("a_claim_that_cannot_be_read_keeps_no_other_from_being_told", told::beside_one_that_cannot_be_read),
        ("a_hook_is_heard_while_the_api_server_is_slow", told::hooks_that_run_meanwhile),
        ("what_could_not_be_looked_at_is_not_told_to_differ", told::what_could_not_be_looked_at),
        (
            "a_device_that_could_not_be_looked_at_silences_no_other",
            told::beside_a_device_that_could_not_be_looked_at,
        ),
        ("a_vf_that_a_change_destroys_is_given_to_no_new_claim", beside::of_a_change),
        ("two_claims_of_a_pod_for_programs_have_no_interface_to_share", beside::for_programs),
        ("a_mac_address_of_a_neighbour_is_refused", beside::a_mac_address_of_a_neighbour),
        ("an_address_of_an_earlier_run_of_the_kernel_is_nobodys", beside::of_an_earlier_run),
        ("a_prepare_that_was_given_up_does_nothing_more", given_up::does_nothing_more),
        ("a_prepare_that_is_given_up_at_work_goes_on_to_its_end", given_up::goes_on_to_its_end),
        ("a_vf_for_a_program_that_was_taken_back_is_bound_anew", given_up::is_bound_anew),
        ("a_prepare_waits_for_its_own_claim_alone", given_up::waits_for_its_own_claim_alone),
        ("a_record_that_cannot_be_read_keeps_its_own_claim_alone", given_up::a_record_that_cannot_be_read),
        ("claims_go_on_after_an_update_of_the_agent", updated::after_an_update),
        ("a_claim_that_is_refused_says_so_until_it_is_prepared", refused::is_told_on_the_claim),
        ("nothing_is_prepared_for_a_node_on_another_machine", refused::for_another_machine),
    ];
    trials.add(&missing, tests);
    let missing = missing
        .or_else(needs::root)
        .or_else(needs::network_namespace)
        .or_else(|| needs::programs(&["ip", "nsenter"]));
    let tests: [(&str, Check); 1] =
        [("what_a_pod_has_and_is_not_as_it_was_given_is_told_in_netns", drift::is_told)];
    trials.add(&missing, tests);
    trials.run()
}

/// Prepares or unprepares claim `u-1`, as its argument says.
fn be_the_agent(machine: PathBuf) -> ExitCode {
    let dies = |step: ClaimStep| {
        if env::var(DIES).is_ok_and(|at| format!("{step:?}") == at) {
            kill(getpid(), Signal::SIGKILL).unwrap();
        }
    };
    let machine = Machine { directory: machine, _keep: None };
    let claims = Claims { on_step: dies, ..machine.claims() };
    let done = match env::args().nth(1).as_deref() {
        Some(verb @ ("prepare" | "bind")) => {
            let uid = "u-1".parse().unwrap();
            let mut asked = json!({"vlan": 100});
            if verb == "bind" {
                asked["mode"] = json!("vfio");
            }
            let claim = allocated(&claim("u-1", "net0-0", asked), &uid, DRIVER, "node-1").unwrap();
            claims
                .prepare(&claim, &devices(), &CallerWaits::default())
                .map(drop)
                .map_err(|error| chain(&error))
        }
        _ => claims.unprepare(&"u-1".parse().unwrap()).map_err(|error| chain(&error)),
    };
    done.map_or_else(|error| panic!("{error}"), |()| ExitCode::SUCCESS)
}

/// An API server.
#[derive(Clone, Default)]
struct Objects {
    claims: Arc<Mutex<Vec<ResourceClaim>>>,
    host_network: Arc<Mutex<bool>>,
    /// What else pods' specifications have.
    of_pods: Arc<Mutex<Value>>,
    told: Arc<Mutex<Vec<Value>>>,
    /// Whether it is away.
    away: Arc<Mutex<bool>>,
    /// How often it was asked for a claim.
    asked: Arc<Mutex<usize>>,
    /// How often it was begun to tell it of a claim, and what that waits for.
    telling: Arc<Mutex<usize>>,
    slow: Arc<tokio::sync::RwLock<()>>,
    /// Whether it refuses for good what it is told of claims.
    refuses: Arc<Mutex<bool>>,
}

impl ClaimApi for Objects {
    async fn claim(&self, _: &str, name: &str) -> Result<Option<ResourceClaim>, ClaimApiError> {
        *self.asked.lock().unwrap() += 1;
        if *self.away.lock().unwrap() {
            let source = serde_json::from_str::<Value>("").unwrap_err();
            return Err(ClaimApiError::Object { attempt: "reach the API server".to_owned(), source });
        }
        let all = self.claims.lock().unwrap();
        Ok(all.iter().find(|claim| claim.metadata.name.as_deref() == Some(name)).cloned())
    }

    async fn pod(&self, _: &str, name: &str) -> Result<Option<Pod>, ClaimApiError> {
        let host_network = *self.host_network.lock().unwrap();
        let mut pod = json!({"metadata": {"name": name, "uid": "p-1"}, "spec": {"containers": [], "hostNetwork": host_network}});
        for (key, value) in self.of_pods.lock().unwrap().as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        Ok(serde_json::from_value(pod).ok())
    }

    async fn tell_claim(&self, _: &str, _: &str, status: &Value) -> Result<(), ClaimApiError> {
        *self.telling.lock().unwrap() += 1;
        let _answers = self.slow.read().await;
        self.told.lock().unwrap().push(status.clone());
        if *self.refuses.lock().unwrap() {
            let (message, reason) = ("no such field".to_owned(), "Invalid".to_owned());
            let source = ApiError::Refused { message, reason, code: 422 };
            return Err(ClaimApiError::Api { attempt: "patch the claim".to_owned(), source });
        }
        Ok(())
    }

    async fn tell_event(&self, _: &str, event: &Value) -> Result<(), ClaimApiError> {
        self.told.lock().unwrap().push(event.clone());
        Ok(())
    }
}

/// An agent that serves, and what kubelet has of it.
struct Agent {
    health: watch::Sender<Arc<HealthReport>>,
    /// What it tells of what pods have.
    drifted: watch::Receiver<Arc<ClaimDrift>>,
    news: Mutex<mpsc::Receiver<DriftEvent>>,
    /// Where it is.
    node_host: watch::Sender<NodeHost>,
    shutdown: watch::Sender<bool>,
    served: tokio::task::JoinHandle<Result<(), ServeError>>,
    sockets: [PathBuf; 2],
    timings: ClaimTimings,
    _devices: watch::Sender<Arc<Devices>>,
}

/// What a hook writes that has found no VF.
fn failed_hook() -> AttachRecord {
    AttachRecord {
        format: AttachRecord::FORMAT,
        namespace: (0, 0),
        netns: "/nowhere".into(),
        attached: None,
        failure: Some("there is no PCI function".to_owned()),
        at: "2026-01-01T00:00:00Z".to_owned(),
    }
}

impl Agent {
    /// One that has prepared a claim of the first VF.
    async fn with_a_claim(machine: &Machine) -> (Agent, Objects) {
        let objects = Objects::default();
        objects.claims.lock().unwrap().push(claim("u-1", "net0-0", json!({})));
        let agent = Agent::serve(machine, objects.clone()).await;
        assert_eq!(agent.prepare("u-1").await.error, "");
        (agent, objects)
    }

    async fn serve(machine: &Machine, objects: Objects) -> Agent {
        Agent::serve_with(machine, objects, OrphanSettings::default()).await
    }

    async fn serve_with(machine: &Machine, objects: Objects, orphans: OrphanSettings) -> Agent {
        let (of_devices, devices) = watch::channel(Arc::new(devices()));
        let (of_health, health) = watch::channel(Arc::default());
        let (of_shutdown, shutdown) = watch::channel(false);
        let (now, drifted) = watch::channel(Arc::default());
        let (news, told_news) = mpsc::channel(64);
        let (of_node_host, node_host) = watch::channel(NodeHost::ThisMachine);
        let kubelet = machine.path("kubelet");
        let timings = ClaimTimings::default();
        let settings = Settings {
            client: objects,
            driver: DRIVER.to_owned(),
            node: "node-1".to_owned(),
            pool: "node-1".to_owned(),
            penstock: machine.path("bin/penstock"),
            program: "/usr/local/bin/penstock-kubernetes".into(),
            state: machine.path("state"),
            kubelet: kubelet.clone(),
            cdi: machine.path("cdi"),
            devices,
            health,
            drift: ClaimDriftReport { now, news },
            node_host,
            shutdown,
            timings: timings.clone(),
            orphans,
        };
        let served = tokio::spawn(serve_on(Root::at(machine.path("root")), machine.path("run"), settings));
        let registry = kubelet.join("plugins_registry").join(registration::socket_name(DRIVER));
        Agent {
            health: of_health,
            drifted,
            news: Mutex::new(told_news),
            node_host: of_node_host,
            shutdown: of_shutdown,
            served,
            sockets: [registry, kubelet.join("plugins").join(DRIVER).join("dra.sock")],
            timings,
            _devices: of_devices,
        }
    }

    /// A connection as kubelet makes it, with this authority.
    async fn connect(&self, socket: &Path, authority: &str) -> Channel {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let endpoint = endpoint.origin(authority.parse().unwrap());
        let began = tokio::time::Instant::now();
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) => assert!(began.elapsed() < SOON, "{}", chain(&error)),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn plugin(&self) -> DraPluginClient<Channel> {
        DraPluginClient::new(self.connect(&self.sockets[1], "http://localhost").await)
    }

    async fn prepare(&self, uid: &str) -> NodePrepareResourceResponse {
        let asked = vec![asked(uid)];
        let answer =
            self.plugin().await.node_prepare_resources(NodePrepareResourcesRequest { claims: asked }).await;
        answer.unwrap().into_inner().claims.remove(uid).unwrap()
    }

    async fn unprepare(&self, uid: &str) -> String {
        let asked = vec![asked(uid)];
        let answer = self
            .plugin()
            .await
            .node_unprepare_resources(NodeUnprepareResourcesRequest { claims: asked })
            .await;
        answer.unwrap().into_inner().claims.remove(uid).unwrap().error
    }

    async fn end(self) {
        self.shutdown.send(true).unwrap();
        tokio::time::timeout(SOON, self.served).await.unwrap().unwrap().unwrap();
        assert!(self.sockets.iter().all(|socket| !socket.exists()));
    }
}

/// Waits for what is about to be.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = tokio::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn asked(uid: &str) -> dra_v1::Claim {
    dra_v1::Claim { namespace: "default".to_owned(), uid: uid.to_owned(), name: format!("claim-{uid}") }
}

fn run(test: impl Future<Output = ()>) -> Outcome {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test);
    Ok(())
}

fn kubelet_registers() -> Outcome {
    run(async {
        let machine = Machine::new();
        let agent = Agent::serve(&machine, Objects::default()).await;
        // The authority of kubelet 1.36: the socket's path, percent-encoded.
        let path = agent.sockets[0].display().to_string();
        let authority = format!("http://{}", path.replace('/', "%2F"));
        let mut registration = RegistrationClient::new(agent.connect(&agent.sockets[0], &authority).await);
        let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", DRIVER));
        assert_eq!(info.endpoint, agent.sockets[1].display().to_string());
        assert_eq!(info.supported_versions, ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]);
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        registration.notify_registration_status(status).await.unwrap();
        for socket in &agent.sockets {
            assert_eq!(fs::metadata(socket).unwrap().permissions().mode() & 0o777, 0o600);
        }

        let channel = agent.connect(&agent.sockets[1], "http://localhost").await;
        let mut health = DraResourceHealthClient::new(channel);
        let mut stream =
            health.node_watch_resources(NodeWatchResourcesRequest {}).await.unwrap().into_inner();
        assert_eq!(stream.message().await.unwrap().unwrap().devices, []);
        let drifted = DeviceHealth {
            condition: DeviceCondition::Unhealthy,
            message: "vlan is 7, not 100".to_owned(),
            since: SystemTime::now(),
        };
        agent.health.send(Arc::new([(device_name("net0-0"), drifted)].into())).unwrap();
        let told = stream.message().await.unwrap().unwrap().devices.remove(0);
        assert_eq!(
            (told.health, told.message.as_str(), told.health_check_timeout_seconds),
            (2, "vlan is 7, not 100", 30)
        );
        assert!(told.last_updated_time > 0);
        drop((stream, health, registration));
        agent.end().await;
    })
}

fn a_claim_is_prepared() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        objects.claims.lock().unwrap().push(claim("u-1", "net0-0", json!({"vlan": 100})));
        let agent = Agent::serve(&machine, objects.clone()).await;
        let first = agent.prepare("u-1").await;
        assert_eq!(first.error, "");
        let device = &first.devices[0];
        assert_eq!((device.device_name.as_str(), device.pool_name.as_str()), ("net0-0", "node-1"));
        assert_eq!(
            device.cdi_device_ids,
            [format!("{DRIVER}/vf=u-1-net0-0"), format!("{DRIVER}/vf=u-1_metadata_vf")]
        );
        let cdi = machine.cdi();
        assert_eq!(cdi["devices"][0]["containerEdits"]["hooks"][0]["args"][3], "u-1");
        let status: Value = serde_json::from_slice(&fs::read(machine.path("bin/input")).unwrap()).unwrap();
        assert_eq!((&status["deviceID"], &status["vlan"]), (&json!("0000:01:10.0"), &json!(100)));
        assert_eq!(status["free"], true, "the host may have begun to use it");
        assert_eq!(held(&machine.path("state")).unwrap().into_iter().collect::<Vec<_>>(), ["net0-0"]);
        // Kubelet was restarted, and then the runtime's directory emptied.
        fs::remove_dir_all(machine.path("cdi")).unwrap();
        assert_eq!(agent.prepare("u-1").await, first);
        assert_eq!(machine.log(), "STATUS u-1\n", "nothing is looked at again");
        let files = machine.files();
        assert_eq!(
            files,
            [format!("cdi/{DRIVER}-u-1.json"), "state/claims/u-1.json".into(), "state/metadata/u-1".into()]
        );
        // One that cannot be taken back stays written down.
        machine.refuses(Some("the VF is busy"));
        let error = agent.unprepare("u-1").await;
        assert!(error.contains("the VF is busy (try this)"), "{error}");
        assert_eq!(machine.files().len(), 4, "and the claim's lock");
        machine.refuses(None);
        for _ in 0..2 {
            assert_eq!(agent.unprepare("u-1").await, "");
            assert_eq!(machine.files(), [""; 0]);
        }
        assert!(held(&machine.path("state")).unwrap().is_empty());
        agent.end().await;
    })
}

fn what_a_claim_cannot_have() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        let agent = Agent::serve(&machine, objects.clone()).await;
        assert!(
            agent.prepare("u-1").await.error.contains("there is no ResourceClaim default/claim-u-1 any more")
        );
        for (device, parameters, words) in [
            ("net0-0", json!({"vlna": 1}), "\"vlan\" is one"),
            ("net0-0", json!({"mode": "vfio"}), "0000:01:10.0 has no IOMMU group, which VFIO needs"),
            ("net0-1", json!({}), "has the driver vfio-pci, and a pod is to have it as a network interface"),
            ("net0-1", json!({"mode": "vfio"}), "has no IOMMU group"),
            ("net0-2", json!({}), "there is no PCI function 0000:01:10.4 any more"),
            ("net0-9", json!({}), "this node has no device net0-9"),
            ("net0-pf", json!({}), "this node has no device net0-pf"),
        ] {
            *objects.claims.lock().unwrap() = vec![claim("u-1", device, parameters.clone())];
            let answer = agent.prepare("u-1").await;
            assert!(answer.error.contains(words), "{device} {parameters}: {}", answer.error);
            assert_eq!((machine.files(), answer.devices), (Vec::new(), Vec::new()), "{device} {parameters}");
        }
        *objects.claims.lock().unwrap() = vec![claim("u-1", "net0-0", json!({}))];
        machine.refuses(Some("the driver tells nothing of its VFs"));
        assert!(
            agent
                .prepare("u-1")
                .await
                .error
                .contains("device net0-0: the driver tells nothing of its VFs (try this)")
        );
        machine.refuses(None);
        *objects.host_network.lock().unwrap() = true;
        assert!(agent.prepare("u-1").await.error.contains("pod default/pod has hostNetwork"));
        *objects.host_network.lock().unwrap() = false;
        assert_eq!(machine.files(), [""; 0]);
        // A claim of the same name is another one.
        *objects.claims.lock().unwrap() = vec![claim("u-2", "net0-0", json!({}))];
        objects.claims.lock().unwrap()[0].metadata.name = Some("claim-u-1".to_owned());
        assert!(agent.prepare("u-1").await.error.contains("deleted and made anew"));
        // One device twice.
        *objects.claims.lock().unwrap() =
            vec![claim("u-1", "net0-0", json!({})), claim("u-2", "net0-0", json!({}))];
        assert_eq!(agent.prepare("u-1").await.error, "");
        let error = agent.prepare("u-2").await.error;
        assert!(error.contains("is prepared for claim default/claim-u-1 (u-1)"), "{error}");
        assert_eq!(agent.unprepare("u-1").await, "");
        assert_eq!(agent.prepare("u-2").await.error, "");
        assert_eq!(agent.unprepare("u-2").await, "");
        // Somebody else's.
        fs::remove_dir_all(machine.path("root/sys/bus/pci/devices/0000:01:10.0/net/vf0")).unwrap();
        let error = agent.prepare("u-1").await.error;
        assert!(error.contains("has no interface on the host"), "{error}");
        assert_eq!(machine.files(), [""; 0]);
        // Bytes that are no UID.
        assert!(agent.prepare("../u").await.error.contains("is no UID"));
        assert!(agent.unprepare("../u").await.contains("is no UID"));
        agent.end().await;
    })
}

fn an_agent_killed_at_any_step() -> Outcome {
    let whole = {
        let machine = Machine::new();
        machine.agent("prepare", None);
        machine.files()
    };
    assert_eq!(whole.len(), 3);
    for step in [ClaimStep::Written, ClaimStep::MetadataWritten, ClaimStep::CdiWritten] {
        let machine = Machine::new();
        machine.agent("prepare", Some(step));
        machine.agent("prepare", None);
        assert_eq!(machine.files(), whole, "{step:?}");
        machine.agent("unprepare", None);
        assert_eq!(machine.files(), [""; 0], "{step:?}");
        // The pod was deleted, and kubelet does not ask again.
        machine.agent("prepare", Some(step));
        machine.agent("unprepare", None);
        assert_eq!(machine.files(), [""; 0], "{step:?}");
    }
    for step in
        [ClaimStep::TakenBack, ClaimStep::CdiRemoved, ClaimStep::MetadataRemoved, ClaimStep::Forgotten]
    {
        let machine = Machine::new();
        machine.agent("prepare", None);
        machine.agent("unprepare", Some(step));
        machine.agent("unprepare", None);
        assert_eq!(machine.files(), [""; 0], "{step:?}");
        machine.agent("prepare", None);
        machine.agent("unprepare", Some(step));
        machine.agent("prepare", None);
        let mut files = machine.files();
        files.retain(|name| !name.ends_with(".lock"));
        assert_eq!(files, whole, "{step:?}");
    }
    Ok(())
}

fn a_vf_for_a_program() -> Outcome {
    run(async {
        let machine = Machine::new();
        machine.iommu(7, 9);
        let objects = Objects::default();
        let asked = json!({"mode": "vfio", "mac": "02:00:00:00:00:07", "vlan": 100});
        let claims = vec![claim("u-1", "net0-0", asked.clone()), claim("u-2", "net0-0", asked)];
        *objects.claims.lock().unwrap() = claims;
        let agent = Agent::serve(&machine, objects).await;
        let first = agent.prepare("u-1").await;
        assert_eq!((first.error.as_str(), machine.driver().as_str()), ("", "vfio-pci"));
        // The number that the group has when the VF is bound.
        let nodes = &machine.cdi()["devices"][0]["containerEdits"]["deviceNodes"];
        assert_eq!(
            nodes,
            &json!([{"path": "/dev/vfio/vfio", "permissions": "rw"}, {"path": "/dev/vfio/9", "permissions": "rw"}])
        );
        let asked: Value = serde_json::from_slice(&fs::read(machine.path("bin/input")).unwrap()).unwrap();
        assert_eq!(
            (&asked["driver"], &asked["mac"], &asked["vlan"]),
            (&json!("vfio-pci"), &json!("02:00:00:00:00:07"), &json!(100))
        );
        assert_eq!(agent.prepare("u-1").await, first);
        assert_eq!(machine.log(), "STATUS u-1\nGC u-1\nADD u-1\n", "it is bound once");
        let error = agent.prepare("u-2").await.error;
        assert!(error.contains("is prepared for claim default/claim-u-1"), "{error}");
        // What a program has open stays the claim's until it has ended.
        machine.refuses_verb("-GC", Some("0000:01:10.0 is still open in dpdk (7)"));
        let error = agent.unprepare("u-1").await;
        assert!(error.contains("is still open in dpdk (7)") && machine.driver() == "vfio-pci", "{error}");
        machine.refuses_verb("-GC", None);
        assert_eq!((agent.unprepare("u-1").await.as_str(), machine.driver().as_str()), ("", "igbvf"));
        assert_eq!(machine.files(), [""; 0]);

        // It cannot be bound: nothing is left of it.
        machine.refuses_verb("-ADD", Some("its probe failed"));
        let error = agent.prepare("u-2").await.error;
        assert!(error.contains("could not be bound to vfio-pci: its probe failed (try this)"), "{error}");
        assert_eq!((machine.files(), machine.driver().as_str()), (Vec::new(), "igbvf"));
        machine.refuses_verb("-ADD", None);
        // Bound, and then something else is in its group, and it cannot be taken back at once.
        let neighbour = machine.path("root/sys/kernel/iommu_groups/9/devices/0000:01:10.4");
        fs::create_dir_all(&neighbour).unwrap();
        machine.iommu(7, 9);
        let error = agent.prepare("u-2").await.error;
        assert!(error.contains("in one IOMMU group with 0000:01:10.4"), "{error}");
        assert_eq!((machine.files(), machine.driver().as_str()), (Vec::new(), "igbvf"));
        // Seen before anything is done.
        fs::create_dir_all(machine.path("root/sys/kernel/iommu_groups/7/devices/0000:01:10.4")).unwrap();
        machine.iommu(7, 9);
        fs::remove_file(machine.path("bin/log")).unwrap();
        let error = agent.prepare("u-2").await.error;
        assert!(error.contains("in one IOMMU group with 0000:01:10.4"), "{error}");
        assert_eq!(machine.log(), "");
        agent.end().await;
    })
}

fn an_agent_killed_while_it_binds() -> Outcome {
    use ClaimStep::{Bound, CdiWritten, GroupWritten, MetadataWritten, Written};
    for step in [Written, Bound, GroupWritten, MetadataWritten, CdiWritten] {
        let machine = Machine::new();
        machine.iommu(7, 9);
        for again in [true, false] {
            machine.agent("bind", Some(step));
            assert!(!held(&machine.path("state"))?.is_empty(), "{step:?}: it is known to be the claim's");
            if again {
                machine.agent("bind", None);
                assert_eq!(machine.driver(), "vfio-pci", "{step:?}");
                let nodes = &machine.cdi()["devices"][0]["containerEdits"]["deviceNodes"];
                assert_eq!(nodes[1]["path"], "/dev/vfio/9", "{step:?}");
            }
            machine.agent("unprepare", None);
            assert_eq!((machine.files(), machine.driver().as_str()), (Vec::new(), "igbvf"), "{step:?}");
        }
        // The machine was started anew in between: all drivers are the host's, and groups have other numbers.
        machine.agent("bind", Some(step));
        machine.restart("run-2");
        let driver = machine.path("root/sys/bus/pci/devices/0000:01:10.0/driver");
        fs::remove_file(&driver)?;
        symlink("../../drivers/igbvf", driver)?;
        drop(fs::remove_file(machine.path("bin/bound-0000:01:10.0")));
        machine.iommu(11, 12);
        machine.agent("bind", None);
        let nodes = &machine.cdi()["devices"][0]["containerEdits"]["deviceNodes"];
        assert_eq!(
            (nodes[1]["path"].as_str(), machine.driver().as_str()),
            (Some("/dev/vfio/12"), "vfio-pci")
        );
        machine.agent("unprepare", None);
        assert_eq!((machine.files(), machine.driver().as_str()), (Vec::new(), "igbvf"), "{step:?}");
    }
    Ok(())
}

fn after_a_restart() -> Outcome {
    let machine = Machine::new();
    machine.agent("prepare", None);
    // Addresses may be others now.
    machine.restart("run-2");
    let pci = machine.path("root/sys/bus/pci/devices");
    fs::rename(pci.join("0000:01:10.0"), pci.join("0000:02:10.0"))?;
    let mut devices = devices();
    devices.functions.get_mut("net0-0").unwrap().bdf = "0000:02:10.0".parse()?;
    let uid = "u-1".parse()?;
    let claim = allocated(&claim("u-1", "net0-0", json!({"vlan": 100})), &uid, DRIVER, "node-1")?;
    let prepared = machine.claims().prepare(&claim, &devices, &CallerWaits::default())?;
    assert_eq!(prepared.devices[0].function, "0000:02:10.0".parse()?);
    assert_eq!((prepared.boot.as_str(), machine.log().as_str()), ("run-2", "STATUS u-1\nSTATUS u-1\n"));
    Ok(())
}

fn one_agent() -> Outcome {
    run(async {
        let machine = Machine::new();
        let first = Agent::serve(&machine, Objects::default()).await;
        first.plugin().await;
        let second = Agent::serve(&machine, Objects::default()).await;
        let refused = tokio::time::timeout(SOON, second.served).await.unwrap().unwrap().unwrap_err();
        assert!(refused.to_string().contains("another agent of this node is running"), "{refused}");
        // Its sockets are still the first one's.
        assert!(first.prepare("u-1").await.error.contains("there is no ResourceClaim"));
        first.end().await;
    })
}
