//! Evidence of runs as they could have been, for the tests of its renderings.
#![allow(dead_code, missing_docs, reason = "each test uses the runs that it needs")]

pub mod measured;
pub mod real_time;

use std::time::Duration;

use penstock_model::{
    Bdf, FunctionName, GuestKind, Mac, Outcome, Verdict, Verdicts, VfIndex,
    verdict::{ARRIVES, ISOLATED, Subject, Vantage},
};
use penstock_report::{
    Accelerator, Evidence, Hashes, Machine, MachineFunction, MachineGuest, MachineNic, MachineVf, ModelFile,
    Phase, Run, StepOutcome, StepRecord, Versions,
};

pub fn verdict(subject: Subject, attribute: &str, vantage: Vantage, value: &str) -> Verdict {
    Verdict {
        subject,
        attribute: attribute.to_owned(),
        item: None,
        vantage,
        wanted: value.to_owned(),
        seen: value.to_owned(),
        outcome: Outcome::Pass,
        best_effort: false,
        out_of_sight: false,
        emulated: false,
    }
}

pub fn nic(name: &str, bdf: &str, mac: &str, driver: &str, by: &str, vfs: u16) -> MachineNic {
    let pf: Bdf = bdf.parse().unwrap();
    let mac: Mac = mac.parse().unwrap();
    MachineNic {
        name: name.parse().unwrap(),
        bdf: Some(pf),
        mac: Some(mac),
        driver: Some(driver.to_owned()),
        emulated_by: Some(by.to_owned()),
        loopback: Some(true),
        eswitch: None,
        vfs: (0..vfs)
            .map(|index| MachineVf {
                index: VfIndex::new(index).unwrap(),
                bdf: pf.of_vf(0x80, 2, index),
                mac: VfIndex::new(index).map(|index| Mac::derived(mac, index)),
            })
            .collect(),
    }
}

pub fn guest(name: &str, kind: GuestKind, functions: &[(&str, &str)]) -> MachineGuest {
    MachineGuest {
        name: name.parse().unwrap(),
        kind,
        functions: functions
            .iter()
            .enumerate()
            .map(|(place, (function, address))| MachineFunction {
                function: function.parse().unwrap(),
                interface: format!("eth{place}").parse().unwrap(),
                addresses: address.parse().into_iter().collect(),
            })
            .collect(),
        nics: Default::default(),
    }
}

/// Every attribute of every function and guest as the machine has it, and every path.
fn all_pass(machine: &Machine) -> Verdicts {
    let mut verdicts = vec![verdict(Subject::Machine, "iommu", Vantage::Host, "on")];
    for nic in &machine.nics {
        let about = || Subject::Nic(nic.name.clone());
        verdicts.push(verdict(about(), "vfs", Vantage::Host, &nic.vfs.len().to_string()));
        verdicts.push(verdict(about(), "loopback", Vantage::Host, "on"));
        for vf in &nic.vfs {
            let name = FunctionName { nic: nic.name.clone(), vf: Some(vf.index) };
            let mac = vf.mac.unwrap().to_string();
            verdicts.push(verdict(Subject::Function(name.clone()), "mac", Vantage::Host, &mac));
            verdicts.push(verdict(Subject::Function(name), "spoofchk", Vantage::Host, "on"));
        }
    }
    for guest in &machine.guests {
        let inside = || Vantage::Guest(guest.name.clone());
        verdicts.push(verdict(Subject::Guest(guest.name.clone()), "running", Vantage::Host, "yes"));
        for owned in &guest.functions {
            let about = || Subject::Function(owned.function.clone());
            verdicts.push(verdict(about(), "interface", inside(), &owned.interface.to_string()));
            for address in &owned.addresses {
                let address = address.to_string();
                verdicts.push(verdict(about(), "address", inside(), &address).of_item(&address));
            }
        }
    }
    let functions: Vec<_> = machine
        .guests
        .iter()
        .flat_map(|guest| guest.functions.iter().map(move |owned| (&guest.name, owned)))
        .collect();
    for (guest, from) in &functions {
        for (_, to) in &functions {
            if from.function == to.function {
                continue;
            }
            let together = from.addresses.iter().any(|a| to.addresses.iter().any(|b| a.same_network(*b)));
            let path = Subject::Path { from: from.function.clone().into(), to: to.function.clone().into() };
            let wanted = if together { ARRIVES } else { ISOLATED };
            verdicts.push(verdict(path, "reach", Vantage::Guest((*guest).clone()), wanted));
        }
    }
    Verdicts::try_from(verdicts).expect("each has a key of its own")
}

fn step(id: u32, what: &str, why: &str, millis: u64) -> StepRecord {
    StepRecord {
        id,
        what: what.to_owned(),
        why: why.to_owned(),
        took: Some(Duration::from_millis(millis)),
        outcome: StepOutcome::Done,
        detail: None,
    }
}

fn phases(phases: &[(&str, u64)]) -> Vec<Phase> {
    phases
        .iter()
        .map(|(name, millis)| Phase { name: (*name).to_owned(), took: Duration::from_millis(*millis) })
        .collect()
}

fn frame(model: &str, millis: u64, exit: u8) -> Evidence {
    Evidence {
        run: Run {
            id: "2026-11-20T19-41-07-xeon-d".to_owned(),
            started: "2026-11-20T19:41:07Z".to_owned(),
            took: Duration::from_millis(millis),
            command: ["penstock", "rehearse", model].map(str::to_owned).to_vec(),
            exit: Some(exit),
        },
        versions: Versions {
            penstock: "0.1.0".to_owned(),
            commit: Some("7ab4963".to_owned()),
            kernel: Some("6.12.57+deb13-amd64".to_owned()),
            qemu: Some("11.1.3".to_owned()),
            accelerator: Some(Accelerator {
                name: "tcg".to_owned(),
                why: "/dev/kvm opens, but a board did not boot under it within 20 s".to_owned(),
            }),
        },
        hashes: Hashes {
            model: Some("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned()),
            image: Some("60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752".to_owned()),
            binary: Some("fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13".to_owned()),
            inventory: Some("a4e624d686e03ed2767c0abd85c14426b0b1157d2ce81d27bb4fe4f6f01d688a".to_owned()),
        },
        model: ModelFile { name: model.to_owned(), text: String::new() },
        ..Evidence::default()
    }
}

/// One NIC, one container, one VF.
pub fn small() -> Evidence {
    let machine = Machine {
        name: "smallest".to_owned(),
        emulated: true,
        nics: vec![nic("NET0", "0000:01:00.0", "52:54:00:00:00:01", "igb", "igb", 1)],
        guests: vec![guest("web", GuestKind::Container, &[("NET0#0", "10.0.0.2/24")])],
        cables: Vec::new(),
    };
    let mut evidence = frame("examples/smallest.yaml", 9_400, 0);
    evidence.model.text = "nics: {NET0: {vfs: 1}}\nguests: {web: {functions: [NET0#0]}}\n".to_owned();
    evidence.verdicts = all_pass(&machine);
    evidence.machine = machine;
    evidence.steps = vec![
        step(1, "0000:01:00.0: driver autoprobe off", "VFs get their addresses before a driver sees them", 2),
        step(2, "0000:01:00.0: 1 VFs", "NET0 has 1 VF", 212),
    ];
    evidence.phases = phases(&[("boot", 6_100), ("apply", 1_900), ("verify", 1_350)]);
    evidence.serial_log =
        Some("[    0.000000] Linux version 6.12\n\u{1b}[1;32mready\u{1b}[0m\r\n".to_owned());
    evidence
}

/// The two-port board of the publication: five guests, a cable.
pub fn xeon_d() -> Evidence {
    let mut nics = vec![
        nic("NET0", "0000:04:00.0", "0c:c4:7a:9a:61:ea", "virtio-pci", "virtio-net", 9),
        nic("NET1", "0000:04:00.1", "0c:c4:7a:9a:61:eb", "igb", "igb", 7),
    ];
    nics[0].loopback = None;
    let machine = Machine {
        name: "xeon-d".to_owned(),
        emulated: true,
        nics,
        guests: vec![
            guest(
                "pf0",
                GuestKind::Container,
                &[("NET0", "10.20.30.1/24"), ("NET0#3", "10.20.30.103/24"), ("NET0#8", "10.20.30.108/24")],
            ),
            guest("pf1", GuestKind::Container, &[("NET1", "10.20.31.1/24")]),
            guest(
                "rt-2",
                GuestKind::Vm,
                &[
                    ("NET0#0", "10.20.30.200/24"),
                    ("NET0#1", "10.20.30.201/24"),
                    ("NET0#2", "10.20.30.202/24"),
                    ("NET1#4", "10.20.31.204/24"),
                    ("NET1#5", "10.20.31.205/24"),
                ],
            ),
            guest("rt-3", GuestKind::Vm, &[("NET1#0", "10.20.31.100/24")]),
            guest(
                "linux-2",
                GuestKind::Container,
                &[
                    ("NET0#4", "10.20.30.104/24"),
                    ("NET0#5", "10.20.30.105/24"),
                    ("NET0#6", "10.20.30.106/24"),
                    ("NET1#2", "10.20.31.102/24"),
                    ("NET1#3", "10.20.31.103/24"),
                ],
            ),
        ],
        cables: vec![["NET0".parse().unwrap(), "NET1".parse().unwrap()]],
    };
    let mut evidence = frame("examples/xeon-d.yaml", 48_730, 0);
    evidence.verdicts = all_pass(&machine);
    evidence.verdicts.update(|verdict| {
        let on_virtio = matches!(&verdict.subject, Subject::Function(name) if name.nic.as_str() == "NET0");
        if verdict.attribute == "spoofchk" && on_virtio {
            verdict.outcome = Outcome::Unsupported;
            verdict.seen = "virtio reports no attributes of VFs".to_owned();
            verdict.best_effort = true;
        }
    });
    evidence.machine = machine;
    evidence.model.text =
        "machine: xeon-d\n\nnics:\n  NET0: {match: {mac: \"0c:c4:7a:9a:61:ea\"}, vfs: 9}\n".to_owned();
    evidence.steps = vec![
        step(1, "0000:04:00.0: driver autoprobe off", "VFs get their MACs before a driver sees them", 3),
        step(2, "0000:04:00.0: 9 VFs", "NET0 has 9 VFs", 412),
        step(3, "0000:04:00.1: driver autoprobe off", "VFs get their MACs before a driver sees them", 2),
        step(4, "0000:04:00.1: 7 VFs", "NET1 has 7 VFs", 655),
        step(5, "0000:04:00.1 vf 4: mac 02:00:00:00:01:04", "NET1#4 belongs to rt-2", 11),
        step(6, "0000:04:10.9: bind igbvf", "NET1#4 belongs to rt-2", 240),
        step(7, "guest rt-2: start", "its functions are ready", 1_812),
    ];
    evidence.phases =
        phases(&[("boot", 18_400), ("copy", 1_150), ("apply", 9_870), ("guests", 6_050), ("verify", 11_900)]);
    evidence.serial_log = Some(
        "[    4.1] igb 0000:04:00.1: 7 VFs allocated\n[    9.8] igbvf 0000:04:10.9: probed\n".to_owned(),
    );
    evidence
}

/// The same, with a MAC set behind the tool's back, a leak, a lost path and something that could not be seen.
pub fn xeon_d_failing() -> Evidence {
    let mut evidence = xeon_d();
    evidence.run.exit = Some(1);
    let path = |from: &str, to: &str| Subject::Path { from: from.parse().unwrap(), to: to.parse().unwrap() };
    let wrong = [
        (Subject::Function("NET1#4".parse().unwrap()), "mac", "02:de:ad:be:ef:04", Outcome::Fail),
        (
            Subject::Function("NET1#0".parse().unwrap()),
            "address",
            "rt-3 did not answer within 5 s",
            Outcome::Unknown,
        ),
        (path("NET0#4", "NET0#0"), "reach", "no reply to 3 requests", Outcome::Fail),
        (path("NET0#4", "NET1#2"), "reach", ARRIVES, Outcome::Fail),
        (path("NET1#0", "NET1#5"), "reach", "rt-3 did not answer within 5 s", Outcome::Unknown),
    ];
    for (subject, attribute, seen, outcome) in wrong {
        evidence.verdicts.update(|verdict| {
            if verdict.subject == subject && verdict.attribute == attribute {
                (verdict.seen, verdict.outcome) = (seen.to_owned(), outcome);
            }
        });
    }
    evidence.steps[5].outcome = StepOutcome::Failed;
    evidence.steps[5].detail = Some("bind igbvf to 0000:04:10.9: not so after 5 s".to_owned());
    evidence.steps[6].outcome = StepOutcome::Skipped;
    evidence.steps[6].took = None;
    evidence.notes.push("the clock of the board was 3 s behind and was set".to_owned());
    evidence
}

/// A NIC of 200 VFs among five containers, some VFs free, and more than 10,000 paths.
pub fn many() -> Evidence {
    let names = ["alpha", "beta", "gamma", "delta", "epsilon"];
    let guests = names
        .iter()
        .enumerate()
        .map(|(place, name)| {
            let own: Vec<(String, String)> = (place * 40..place * 40 + 36)
                .map(|vf| (format!("NET0#{vf}"), format!("10.1.{}.{}/24", place % 2, vf + 1)))
                .collect();
            let own: Vec<(&str, &str)> = own.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            guest(name, GuestKind::Container, &own)
        })
        .collect();
    let mut vfs = nic("NET0", "0000:01:00.0", "52:54:00:00:00:01", "virtio-pci", "virtio-net", 200);
    vfs.loopback = None;
    let machine = Machine {
        name: "dense".to_owned(),
        emulated: true,
        nics: vec![vfs, nic("NET1", "0000:02:00.0", "52:54:00:00:00:02", "igb", "igb", 7)],
        guests,
        cables: Vec::new(),
    };
    let mut evidence = frame("dense.yaml", 31_000, 0);
    evidence.verdicts = all_pass(&machine);
    evidence.machine = machine;
    evidence.phases = phases(&[("boot", 14_000), ("apply", 7_900), ("verify", 9_000)]);
    evidence.steps = (1..=900)
        .map(|id| step(id, &format!("0000:01:{:02x}.{}: bring up", id / 8, id % 8), "a guest owns it", 4))
        .collect();
    evidence
}
