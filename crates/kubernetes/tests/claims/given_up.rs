//! Calls that kubelet does not wait for or that wait for each other, and claims that cannot be taken back.

use std::cell::RefCell;

use super::*;

/// What is to be done when a claim comes to a step.
type Act = (ClaimStep, Box<dyn Fn()>);

thread_local! {
    /// In this thread.
    static AT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

/// The machine's claims, with something to be done at a step.
fn claims_that(machine: &Machine, at: ClaimStep, act: impl Fn() + 'static) -> Claims {
    AT.set(Some((at, Box::new(act))));
    let on_step = |step| {
        AT.with_borrow(|at| {
            if let Some((when, act)) = at
                && *when == step
            {
                act();
            }
        });
    };
    Claims { on_step, ..machine.claims() }
}

fn for_a_program(uid: &str, device: &str) -> AllocatedClaim {
    let asked = json!({"mode": "vfio"});
    allocated(&claim(uid, device, asked), &uid.parse().unwrap(), DRIVER, "node-1").unwrap()
}

/// Kubelet hangs up when it is at work already.
pub fn goes_on_to_its_end() -> Outcome {
    use ClaimStep::{Bound, GroupWritten, MetadataWritten, Written};
    for step in [Written, Bound, GroupWritten, MetadataWritten] {
        let machine = Machine::new();
        machine.iommu(7, 9);
        let caller = CallerWaits::default();
        let hangs_up = caller.clone();
        let claims = claims_that(&machine, step, move || hangs_up.give_up());
        let prepared = claims.prepare(&for_a_program("u-1", "net0-0"), &devices(), &caller);
        let prepared = prepared.map_err(|error| format!("{step:?}: {}", chain(&error)))?;
        assert_eq!((prepared.devices[0].group, machine.driver().as_str()), (Some(9), "vfio-pci"), "{step:?}");
        machine.agent("unprepare", None);
        assert_eq!((machine.files(), machine.driver().as_str()), (Vec::new(), "igbvf"), "{step:?}");
    }
    Ok(())
}

/// Whatever has become of VFs that were taken back in part, the claim is not taken for ready.
pub fn is_bound_anew() -> Outcome {
    let machine = Machine::new();
    machine.iommu(7, 9);
    // When the VF is bound no file can be written for containers, and half of what was done is taken back.
    let paths = [machine.path("state/metadata"), machine.path("bin/refuses-GC")];
    let breaks = paths.clone();
    let claims = claims_that(&machine, ClaimStep::GroupWritten, move || {
        for path in &breaks {
            fs::write(path, "its driver hangs").unwrap();
        }
    });
    let claim = for_a_program("u-1", "net0-0");
    claims.prepare(&claim, &devices(), &CallerWaits::default()).unwrap_err();
    assert!(!held(&machine.path("state"))?.is_empty(), "it is known to be the claim's");
    let driver = machine.path("root/sys/bus/pci/devices/0000:01:10.0/driver");
    fs::remove_file(&driver)?;
    symlink("../../drivers/igbvf", driver)?;
    for path in paths {
        fs::remove_file(path)?;
    }
    let prepared = machine.claims().prepare(&claim, &devices(), &CallerWaits::default())?;
    assert_eq!((prepared.devices[0].group, machine.driver().as_str()), (Some(9), "vfio-pci"));
    // Its end was begun.
    for step in [ClaimStep::TakenBack, ClaimStep::CdiRemoved, ClaimStep::MetadataRemoved] {
        machine.agent("unprepare", Some(step));
        assert_eq!(machine.driver(), "igbvf");
        machine.iommu(7, 9);
        machine.agent("bind", None);
        assert_eq!(machine.driver(), "vfio-pci", "{step:?}");
    }
    Ok(())
}

/// A hook, or the claim's end, has the claim's lock for long.
pub fn waits_for_its_own_claim_alone() -> Outcome {
    let machine = Machine::new();
    machine.iommu(7, 9);
    machine.iommu_of("0000:01:10.2", 8, 10);
    let (store, claims) = (ClaimStore::open(&machine.path("state"))?, machine.claims());
    let prepare = |uid, device| {
        let prepared =
            machine.claims().prepare(&for_a_program(uid, device), &devices(), &CallerWaits::default());
        prepared.map_err(|error| chain(&error))
    };
    prepare("u-1", "net0-0")?;
    let uid = "u-1".parse()?;
    // It is where an earlier agent had it.
    let mut first = store.read(&uid)?.ok_or("it is not written")?;
    first.run = machine.path("run-before");
    store.write(&first)?;
    let records = AttachStore::open(&first.run)?;
    let lock = records.lock(&uid, Duration::ZERO)?;
    let again = for_a_program("u-1", "net0-0");
    let waits = std::thread::spawn(move || claims.prepare(&again, &devices(), &CallerWaits::default()));
    let began = std::time::Instant::now();
    while store.lock(Duration::ZERO).is_ok() {
        assert!(began.elapsed() < SOON, "the call does not come to the lock");
        std::thread::yield_now();
    }
    prepare("u-2", "net0-1")?;
    assert!(!waits.is_finished(), "it has waited as long as it may");
    // The claim ends: what was there before the lock is not there any more.
    let ended = std::process::Command::new(machine.path("bin/penstock"))
        .env("CNI_COMMAND", "GC")
        .stdin(std::process::Stdio::null())
        .status()?;
    assert!(ended.success() && machine.driver() == "igbvf");
    machine.iommu(7, 9);
    store.remove(&uid)?;
    records.remove(&uid)?;
    drop(lock);
    let prepared = waits.join().unwrap()?;
    assert_eq!((prepared.run.as_path(), machine.driver().as_str()), (&*machine.path("run"), "vfio-pci"));
    Ok(())
}

pub fn does_nothing_more() -> Outcome {
    run(async {
        let machine = Machine::new();
        let objects = Objects::default();
        objects.claims.lock().unwrap().push(claim("u-1", "net0-0", json!({})));
        let agent = Agent::serve(&machine, objects.clone()).await;
        let mut plugin = agent.plugin().await;
        let store = ClaimStore::open(&machine.path("state")).unwrap();
        // Another call is at work, and kubelet hangs up.
        let other = store.lock(Duration::ZERO).unwrap();
        let call = tokio::spawn(async move {
            plugin.node_prepare_resources(NodePrepareResourcesRequest { claims: vec![asked("u-1")] }).await
        });
        until("the call is there", || *objects.asked.lock().unwrap() > 0).await;
        assert_eq!(agent.timings.refused(), 0);
        call.abort();
        // It counts as one that failed.
        until("the call is given up", || agent.timings.refused() == 1).await;
        assert_eq!(agent.unprepare("u-1").await, "");

        // What goes on for it nevertheless finds that nobody waits.
        let caller = CallerWaits::default();
        let claims = machine.claims();
        let allocated =
            allocated(&claim("u-1", "net0-0", json!({})), &"u-1".parse().unwrap(), DRIVER, "node-1").unwrap();
        let worker = {
            let caller = caller.clone();
            std::thread::spawn(move || claims.prepare(&allocated, &devices(), &caller))
        };
        caller.give_up();
        machine.claims().unprepare(&"u-1".parse().unwrap()).unwrap();
        drop(other);
        let error = worker.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("kubelet gave the call up"), "{error}");
        // The abandoned call ends too, before or after this one.
        assert_eq!(agent.prepare("u-1").await.error, "");
        assert_eq!(agent.unprepare("u-1").await, "");
        assert_eq!(machine.files(), [""; 0]);
        assert!(!machine.log().contains("ADD"), "{}", machine.log());
        agent.end().await;
    })
}

pub fn a_record_that_cannot_be_read() -> Outcome {
    run(async {
        let machine = Machine::new();
        let (agent, _) = Agent::with_a_claim(&machine).await;
        let records = machine.path("root/run/penstock/cni");
        fs::create_dir_all(&records).unwrap();
        // Of nobody knows whom, but not of this claim's VF; and of another network.
        fs::write(records.join("0000:01:10.4.json"), "{").unwrap();
        fs::write(records.join("0000:01:10.0.json"), r#"{"network": "data"}"#).unwrap();
        assert_eq!(agent.unprepare("u-1").await, "");
        fs::remove_file(records.join("0000:01:10.0.json")).unwrap();
        assert_eq!(agent.prepare("u-1").await.error, "");
        fs::write(records.join("0000:01:10.0.json"), "{").unwrap();
        let error = agent.unprepare("u-1").await;
        assert!(
            error.contains("who has 0000:01:10.0 cannot be read in") && error.contains("remove the file"),
            "{error}"
        );
        assert!(machine.files().contains(&"state/claims/u-1.json".to_owned()));
        fs::remove_file(records.join("0000:01:10.0.json")).unwrap();
        assert_eq!((agent.unprepare("u-1").await, machine.files()), Default::default());
        // Nor does a claim's own file that is damaged keep it.
        assert_eq!(agent.prepare("u-1").await.error, "");
        fs::write(machine.path("state/claims/u-1.json"), "{").unwrap();
        assert_eq!((agent.unprepare("u-1").await, machine.files()), Default::default());
        agent.end().await;
    })
}
