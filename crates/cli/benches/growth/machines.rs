//! Models, inventories and recorded machines of many sizes.

use std::{fs, path::Path};

use penstock_model::{Inventory, inventory::Lifelines};
use penstock_testkit::{binary, models, sysfs};
use serde_json::Value;

use super::{
    audit,
    choice::{Axis, Choice},
    curve::Curve,
    rounds::{self, Sized, Subject},
    settled, verified,
};

/// VFs of a guest, where guests are counted.
const EACH: u16 = 8;

const CHECK: Subject = Subject { name: "check", words: &["check", "model.yaml"] };
const CHECK_HERE: Subject =
    Subject { name: "check --inventory", words: &["check", "model.yaml", "--inventory", "new.json"] };
const PLAN: Subject = Subject { name: "plan", words: &["plan", "model.yaml", "--inventory", "new.json"] };
const EMPTY_PLAN: Subject =
    Subject { name: "empty plan", words: &["plan", "model.yaml", "--inventory", "settled.json"] };
const DEFINED: Subject = Subject { name: "empty plan, definitions compared", words: &[settled::PLAN] };
const VERIFY: Subject = Subject { name: "verdicts", words: &[verified::VERIFY] };
const STEPS: Subject =
    Subject { name: "plan --steps", words: &["plan", "model.yaml", "--steps", "--inventory", "new.json"] };
const JSON: Subject =
    Subject { name: "plan --json", words: &["plan", "model.yaml", "--json", "--inventory", "new.json"] };
const REMAKE: Subject =
    Subject { name: "VFs made anew", words: &["plan", "model.yaml", "--inventory", "fewer.json"] };
const SCAN: Subject = Subject { name: "scan", words: &["scan", "--root", "root"] };
const AUDIT: Subject = Subject { name: "audit", words: &["audit", "--root", "root"] };
const METRICS: Subject = Subject { name: "metrics", words: &["metrics", "model.yaml", "--root", "root"] };
const AUDIT_VMS: Subject = Subject { name: "audit of VMs", words: &["audit", "--root", "vms"] };

/// One NIC with so many VFs for up to eight containers.
pub fn by_vfs(choice: &Choice) -> Vec<Curve> {
    let subjects = [CHECK, CHECK_HERE, PLAN, EMPTY_PLAN, DEFINED, VERIFY, SCAN, AUDIT, METRICS];
    grow(Axis::Vfs, choice, &subjects, |directory, vfs| {
        write(directory, vfs, vfs.min(8));
        u32::from(vfs)
    })
}

/// So many containers with eight VFs each; for an audit as many VMs.
pub fn by_guests(choice: &Choice) -> Vec<Curve> {
    let subjects = [CHECK, CHECK_HERE, PLAN, EMPTY_PLAN, DEFINED, VERIFY, METRICS, AUDIT_VMS];
    grow(Axis::Guests, choice, &subjects, |directory, guests| {
        write(directory, guests * EACH, guests);
        let vms = audit::Extent { cpus: 8, irqs: 64, vms: usize::from(guests), threads: 8, processes: 0 };
        audit::plant_machine(&directory.join("vms"), &vms);
        u32::from(guests)
    })
}

/// One container with so many VFs, by the steps that its plan has.
pub fn by_steps(choice: &Choice) -> Vec<Curve> {
    grow(Axis::Steps, choice, &[PLAN, STEPS, JSON, REMAKE], |directory, vfs| {
        write(directory, vfs, 1);
        let plan = binary::command(directory).args(JSON.words).output().expect("the binary runs");
        let plan: Value = serde_json::from_slice(&plan.stdout).expect("a plan is JSON");
        let steps = plan["steps"].as_array().expect("it has steps").len();
        u32::try_from(steps).expect("few steps")
    })
}

/// Measures in a directory for each size, which `prepare` fills; it gives the size that counts.
fn grow(
    axis: Axis,
    choice: &Choice,
    subjects: &[Subject],
    prepare: impl Fn(&Path, u16) -> u32,
) -> Vec<Curve> {
    let all = tempfile::tempdir().expect("a temporary directory");
    let prepared = |number: u32| {
        let directory = all.path().join(number.to_string());
        fs::create_dir(&directory).expect("a directory");
        let size = prepare(&directory, u16::try_from(number).expect("a NIC has fewer VFs"));
        Sized { size, directory }
    };
    let sizes: Vec<Sized> = choice.sizes(axis).into_iter().map(prepared).collect();
    let program = binary::path().expect("the binary was built: `make build`");
    rounds::measure(axis, &program, subjects, &sizes, choice.repeats)
}

/// A model in `model.yaml`; the machine without VFs in `new.json`, with one too few in `fewer.json`, with all of them as a tree in `root`
/// and as the model has it in `settled.json`, where the guests were defined as in `definitions.json`.
fn write(directory: &Path, vfs: u16, guests: u16) {
    let put = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).expect("a file");
    let model = models::dealt_out(1, vfs, guests);
    put("model.yaml", model.as_bytes());
    // Nobody's connection is in danger there.
    let quiet = |found| Inventory {
        lifelines: Some(Lifelines::default()),
        interfaces: Some(Default::default()),
        bridges: Some(Default::default()),
        ..found
    };
    let json = |inventory: Inventory| serde_json::to_vec(&quiet(inventory)).expect("an inventory is JSON");
    put("new.json", &json(models::machine(1, vfs)));
    let definitions = settled::definitions(&model, &quiet(models::machine(1, vfs)));
    put("definitions.json", &serde_json::to_vec(&definitions).expect("definitions are JSON"));
    let root = directory.join("root");
    fs::create_dir(&root).expect("a directory");
    sysfs::plant(&models::tree(1, vfs), &root).expect("the tree is planted");
    let scan = binary::command(directory).args(["scan", "--json", "--root", "root"]).output();
    let scanned = serde_json::from_slice(&scan.expect("the binary runs").stdout).expect("an inventory");
    let mut settled = models::settled(scanned, guests);
    put("settled.json", &json(settled.clone()));
    // Another number of VFs comes about by making all of them anew.
    settled.guests.clear();
    for sriov in settled.pfs.iter_mut().filter_map(|pf| pf.sriov.as_mut()) {
        sriov.num_vfs -= 1;
        sriov.vfs.iter_mut().rev().take(1).for_each(|last| last.present = None);
    }
    put("fewer.json", &json(settled));
}
