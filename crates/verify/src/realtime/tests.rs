use penstock_model::inventory::tuning::{Partition, ResctrlGroup};

use super::*;

const MODEL: &str = "nics: {A: {vfs: 2}}\n\
    realtime: {isolated: 2-4, wake_latency: 0, throttling: off}\n\
    guests:\n  \
    rt: {pin: 2-3, realtime: {policy: fifo, priority: 80, interrupts: 1, cache: 4, memory_bandwidth: 40%}, functions: [A#0]}\n";

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn function() -> Bdf {
    "0000:04:10.0".parse().unwrap()
}

fn irq(user: &str, at: &str, function: Option<Bdf>) -> Irq {
    Irq { users: vec![user.to_owned()], effective: Reading::Is(cpus(at)), function, ..Irq::default() }
}

/// A machine that is as the model asks.
fn machine() -> Inventory {
    let mut tuning = Tuning::default();
    let mut hold = |knob, value| drop(tuning.knobs.insert(knob, Reading::Is(value)));
    for cpu in 2..=4 {
        hold(Knob::ResumeLatency(cpu), Value::Word("n/a".to_owned()));
        hold(Knob::FairServer(cpu), Value::Number(0));
    }
    hold(Knob::RtRuntime, Value::Number(-1));
    hold(Knob::DefaultIrqAffinity, Value::Cpus(cpus("0-1")));
    hold(Knob::Workqueues, Value::Cpus(cpus("0-1")));
    let partition = |of: &str| Partition {
        state: "isolated".to_owned(),
        cpus: cpus(of),
        effective: cpus(of),
        exclusive: CpuSet::default(),
    };
    tuning.cgroups.partitions.insert("/lxc.payload.penstock-rt".to_owned(), partition("2-3"));
    tuning.cgroups.partitions.insert("/penstock-isolated".to_owned(), partition("4"));
    tuning.cgroups.isolated = Reading::Is(cpus("2-4"));
    tuning.irq_table = Reading::Is(());
    tuning.irqs.insert(30, irq("eth0", "0", None));
    tuning.irqs.insert(31, irq("virtio0-req.3", "3", None));
    tuning.irqs.insert(37, irq("eth1", "1", Some(function())));
    let shares = |mask: u64, share: u64, of: &str| ResctrlGroup {
        cpus: cpus(of),
        schemata: [("L3".to_owned(), [(0, mask)].into()), ("MB".to_owned(), [(0, share)].into())].into(),
    };
    tuning.resctrl = Reading::Is(Resctrl {
        masks: [("L3".to_owned(), 0xfff)].into(),
        bandwidth: Some((10, 10)),
        groups: [
            (String::new(), shares(0xff0, 100, "0-1,4")),
            ("penstock-rt".to_owned(), shares(0xf, 40, "2-3")),
        ]
        .into(),
        ..Resctrl::default()
    });
    let mut inventory = Inventory { tuning: Some(tuning), ..Inventory::default() };
    inventory.kernel.release = "6.12.107+deb13-amd64".to_owned();
    inventory
}

fn thread(name: &str, at: &str, policy: u32, priority: u32) -> VmThread {
    VmThread { name: name.to_owned(), cpus: cpus(at), policy, priority }
}

fn sight() -> GuestObservation {
    GuestObservation {
        threads: Ok(vec![thread("sh", "2-3", 1, 80), thread("sleep", "2", 1, 80)]),
        functions: [function()].into(),
    }
}

fn judge(inventory: &Inventory, sight: GuestObservation) -> Vec<Verdict> {
    let model = penstock_model::parse(&penstock_model::Source::new("m.yaml", MODEL)).unwrap().model;
    let verdicts = realtime(&model, inventory, &[("rt".parse().unwrap(), sight)].into());
    penstock_model::Verdicts::try_from(verdicts.clone()).expect("each has a key of its own");
    verdicts
}

fn not_passed(verdicts: &[Verdict]) -> Vec<String> {
    let otherwise = verdicts.iter().filter(|verdict| verdict.outcome != Outcome::Pass);
    otherwise.map(|v| format!("{} {}: {}", v.subject, v.attribute, v.outcome)).collect()
}

#[test]
fn a_machine_that_is_as_the_model_asks_passes_whole() {
    let verdicts = judge(&machine(), sight());
    assert_eq!(not_passed(&verdicts), Vec::<String>::new());
    for attribute in [
        "isolated",
        "interrupts",
        "default_smp_affinity",
        "workqueues",
        "throttling",
        "fair_server of CPU 4",
        "wake_latency of CPU 4",
        "partition",
        "policy",
        "threads",
        "cache",
        "memory_bandwidth",
        "wake_latency of CPU 2",
    ] {
        assert!(verdicts.iter().any(|verdict| verdict.attribute == attribute), "{attribute}");
    }
}

#[test]
fn whatever_is_otherwise_is_told() {
    type Change = fn(&mut Tuning, &mut GuestObservation);
    fn hold(tuning: &mut Tuning, knob: Knob, value: Value) {
        tuning.knobs.insert(knob, Reading::Is(value));
    }
    fn ours(tuning: &mut Tuning) -> &mut Partition {
        tuning.cgroups.partitions.get_mut("/lxc.payload.penstock-rt").unwrap()
    }
    fn shares(tuning: &mut Tuning) -> &mut BTreeMap<String, ResctrlGroup> {
        let Reading::Is(resctrl) = &mut tuning.resctrl else { panic!() };
        &mut resctrl.groups
    }
    let changes: [(Change, &[&str]); 16] = [
        (
            |t, _| ours(t).state = "isolated invalid (Cpu list in cpuset.cpus not exclusive)".to_owned(),
            &["rt partition: fail"],
        ),
        (|t, _| ours(t).effective = cpus("2"), &["rt partition: fail"]),
        (|t, _| drop(t.cgroups.partitions.remove("/lxc.payload.penstock-rt")), &["rt partition: fail"]),
        (
            |t, _| {
                t.cgroups.isolated = Reading::Absent;
                t.cgroups.partitions.remove("/penstock-isolated");
            },
            &["machine isolated: fail"],
        ),
        (|t, _| drop(t.irqs.insert(30, irq("eth0", "2", None))), &["machine interrupts: fail"]),
        (|t, _| drop(t.irqs.insert(37, irq("eth1", "2", Some(function())))), &["rt interrupts: fail"]),
        (|t, _| hold(t, Knob::Workqueues, Value::Cpus(cpus("0-2"))), &["machine workqueues: fail"]),
        (
            |t, _| hold(t, Knob::DefaultIrqAffinity, Value::Cpus(cpus("0-3"))),
            &["machine default_smp_affinity: fail"],
        ),
        // The trap: in this file 0 is no limit.
        (|t, _| hold(t, Knob::ResumeLatency(2), Value::Number(0)), &["rt wake_latency of CPU 2: fail"]),
        (
            |t, _| drop(t.knobs.insert(Knob::ResumeLatency(4), Reading::Absent)),
            &["machine wake_latency of CPU 4: unsupported"],
        ),
        (|t, _| hold(t, Knob::RtRuntime, Value::Number(950_000)), &["machine throttling: fail"]),
        (
            |t, _| drop(t.knobs.insert(Knob::FairServer(3), Reading::Denied)),
            &["machine fair_server of CPU 3: unknown"],
        ),
        (
            |t, _| drop(shares(t).get_mut("").unwrap().schemata.insert("L3".to_owned(), [(0, 0xfff)].into())),
            &["rt cache: fail"],
        ),
        (
            |t, _| {
                drop(
                    shares(t)
                        .get_mut("penstock-rt")
                        .unwrap()
                        .schemata
                        .insert("MB".to_owned(), [(0, 50)].into()),
                )
            },
            &["rt memory_bandwidth: fail"],
        ),
        (|_, s| s.threads.as_mut().unwrap().push(thread("late", "2", 0, 0)), &["rt policy: fail"]),
        (|_, s| s.threads.as_mut().unwrap().push(thread("stray", "0-3", 1, 80)), &["rt threads: fail"]),
    ];
    for (change, expected) in changes {
        let (mut inventory, mut sight) = (machine(), sight());
        change(inventory.tuning.as_mut().unwrap(), &mut sight);
        assert_eq!(not_passed(&judge(&inventory, sight)), expected);
    }
}

#[test]
fn an_interrupt_that_moves_when_it_comes_next_has_been_sent_away() {
    let mut inventory = machine();
    let tuning = inventory.tuning.as_mut().unwrap();
    tuning.irqs.insert(24, irq("dmar0", "2", None));
    tuning.knobs.insert(Knob::IrqAffinity(24), Reading::Is(Value::Cpus(cpus("0-1"))));
    let verdicts = judge(&inventory, sight());
    assert_eq!(not_passed(&verdicts), Vec::<String>::new());
    assert!(verdicts.iter().any(|verdict| verdict.seen.contains("24 (dmar0) until it comes the next time")));
    let tuning = inventory.tuning.as_mut().unwrap();
    tuning.knobs.insert(Knob::IrqAffinity(24), Reading::Is(Value::Cpus(cpus("0-3"))));
    assert_eq!(not_passed(&judge(&inventory, sight())), ["machine interrupts: fail"]);
}

#[test]
fn what_was_not_seen_is_unknown_and_not_left_out() {
    let whole = judge(&machine(), sight()).len();
    let blind = Inventory { tuning: None, ..machine() };
    let verdicts = judge(&blind, GuestObservation { threads: Err("it does not run".to_owned()), ..sight() });
    assert_eq!(verdicts.len(), whole);
    assert!(verdicts.iter().all(|verdict| verdict.outcome != Outcome::Pass), "{verdicts:#?}");
    // Nor is it when nobody knows which functions it has.
    for (threads, why) in [
        (Err("it does not run".to_owned()), "it does not run"),
        (sight().threads, "nobody knows its functions"),
    ] {
        let verdicts = judge(&machine(), GuestObservation { threads, functions: BTreeSet::new() });
        assert_eq!(verdicts.len(), whole);
        let interrupts =
            verdicts.iter().find(|v| v.attribute == "interrupts" && v.subject != Subject::Machine);
        assert!(interrupts.is_some_and(|v| v.outcome == Outcome::Unknown && v.seen == why), "{interrupts:?}");
    }
    // What is listed and could not be read may be anything.
    let mut dark = machine();
    dark.tuning.as_mut().unwrap().unread.resctrl.push("other/schemata may not be read".to_owned());
    assert_eq!(not_passed(&judge(&dark, sight())), ["rt cache: unknown", "rt memory_bandwidth: unknown"]);
    let mut dark = machine();
    let tuning = dark.tuning.as_mut().unwrap();
    tuning.unread.partitions.push("other/cpuset.cpus may not be read".to_owned());
    assert_eq!(not_passed(&judge(&dark, sight())), ["rt partition: unknown"]);
    let tuning = dark.tuning.as_mut().unwrap();
    (tuning.cgroups.isolated, tuning.cgroups.partitions) = (Reading::Absent, BTreeMap::new());
    assert_eq!(not_passed(&judge(&dark, sight())), ["machine isolated: unknown", "rt partition: unknown"]);
    // Without the table of interrupts none has a user.
    for table in [Reading::Denied, Reading::Absent, Reading::Unreadable("too long".to_owned())] {
        let mut dark = machine();
        let tuning = dark.tuning.as_mut().unwrap();
        tuning.irq_table = table;
        tuning.irqs.values_mut().for_each(|irq| irq.users.clear());
        assert_eq!(
            not_passed(&judge(&dark, sight())),
            ["machine interrupts: unknown", "rt interrupts: unknown"]
        );
    }
    // CPUs that could not be read of are not CPUs that are not isolated.
    let mut dark = machine();
    let cgroups = &mut dark.tuning.as_mut().unwrap().cgroups;
    cgroups.partitions.clear();
    for (reading, outcome) in [(Reading::Denied, "unknown"), (Reading::Is(cpus("2-3")), "fail")] {
        dark.tuning.as_mut().unwrap().cgroups.isolated = reading;
        let told = not_passed(&judge(&dark, sight()));
        assert!(told.contains(&format!("machine isolated: {outcome}")), "{told:?}");
    }
    let model =
        penstock_model::parse(&penstock_model::Source::new("m.yaml", "nics: {A: {vfs: 1}}\n")).unwrap().model;
    assert_eq!(realtime(&model, &machine(), &BTreeMap::new()), []);
}
