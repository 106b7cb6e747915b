//! An audit in the words of TuneD, and TuneD's profiles beside an audit.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use penstock_exchange::{
    Exported, TunedCoverage, TunedSource, TunedVerdict, compare_with_tuned, read_tuned, tuned_profile,
};
use penstock_model::audit::{Audit, AuditOutcome, Change, Layer, Remedy, Row};
use penstock_testkit::golden;
use proptest::{collection::vec, prelude::*};

fn row(rule: &str, verdict: AuditOutcome, ways: Vec<Remedy>) -> Row {
    Row {
        rule: rule.to_owned(),
        layer: Layer::Scheduling,
        subject: "machine".to_owned(),
        verdict,
        read: String::new(),
        wanted: String::new(),
        why: String::new(),
        price: None,
        ways,
        change: None,
        source: String::new(),
        needs_root: false,
    }
}

fn way(changes: impl IntoIterator<Item = Change>) -> Remedy {
    Remedy { changes: changes.into_iter().collect(), beware: None }
}

fn failed(rule: &str, changes: impl IntoIterator<Item = Change>) -> Row {
    row(rule, AuditOutcome::Fail, vec![way(changes)])
}

fn audit(rows: Vec<Row>) -> Audit {
    Audit { kernel: "6.12.43".to_owned(), cpus: "2-7".parse().unwrap(), rows, ..Audit::default() }
}

fn write(path: &str, value: &str) -> Change {
    Change::Write { path: path.to_owned(), value: value.to_owned() }
}

fn boot(add: &str, remove: &str) -> Change {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    Change::BootLine { add: words(add), remove: words(remove) }
}

fn option(module: &str, option: &str, value: &str) -> Change {
    Change::ModuleOption { module: module.to_owned(), option: option.to_owned(), value: value.to_owned() }
}

fn banned(path: &str) -> Change {
    Change::Setting {
        path: path.to_owned(),
        name: "IRQBALANCE_BANNED_CPULIST".to_owned(),
        value: "2-7".to_owned(),
        service: "irqbalance".to_owned(),
    }
}

/// One row of each kind of change, and what cannot be written.
fn of_each_kind() -> Audit {
    let disable = Change::Disable { units: vec!["ksmtuned.service".to_owned(), "fstrim.timer".to_owned()] };
    let by_hand = Change::ByHand { what: "in the firmware: C-states off".to_owned() };
    let beware = Remedy { beware: Some("it ends a service".to_owned()), ..way([disable]) };
    audit(vec![
        failed("stat-interval", [write("/proc/sys/vm/stat_interval", "10")]),
        failed("a-dot", [write("/proc/sys/net/ipv4/conf/eth0.5/rp_filter", "1")]),
        failed("rcu-expedited", [write("/sys/kernel/rcu_normal", "1")]),
        failed("huge-pages", [write("/sys/kernel/mm/transparent_hugepage/enabled", "never")]),
        failed("isolated", [boot("isolcpus=managed_irq,domain,2-7 nosoftlockup", "")]),
        failed(
            "clock",
            [option("kvm", "kvmclock_periodic_sync", "0"), option("kvm", "nx_huge_pages", "never")],
        ),
        row("merging", AuditOutcome::Conflict, vec![beware]),
        failed("irqbalance", [banned("/etc/sysconfig/irqbalance")]),
        // What passed is asked for nothing.
        row("fine", AuditOutcome::Pass, vec![way([write("/sys/fine", "1")])]),
        // The second way is the first that a profile can go whole.
        row(
            "two-ways",
            AuditOutcome::Fail,
            vec![
                way([by_hand.clone()]),
                way([write("/sys/module/pcie_aspm/parameters/policy", "performance")]),
            ],
        ),
        failed("irqbalance-debian", [banned("/etc/default/irqbalance")]),
        failed("firmware", [by_hand]),
        failed("mitigations", [boot("", "mitigations")]),
        failed("irqs", [write("/proc/irq/35/smp_affinity_list", "0-1")]),
        failed("model", [Change::Model { says: String::new() }]),
        failed("nothing-to-do", []),
        failed("another-interval", [write("/proc/sys/vm/stat_interval", "20")]),
        failed("hostile-value", [write("/sys/a", "1\n[script]\nscript=/tmp/x")]),
        failed("hostile-path", [write("/sys/*/uevent", "add")]),
        failed("hostile-word", [boot("a=${f:exec:/tmp/x}", "")]),
    ])
}

#[test]
fn an_audit_as_a_profile() {
    let Exported { files, left_out } = tuned_profile(&of_each_kind());
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!(file.name, "tuned.conf");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tuned");
    let left_out: String = left_out.iter().map(|line| format!("{line}\n")).collect();
    golden::compare(&folder.join("tuned.conf"), &file.text);
    golden::compare(&folder.join("left-out"), &left_out);
}

#[test]
fn where_nothing_is_wrong_there_is_no_profile() {
    let fine = audit(vec![row("fine", AuditOutcome::Pass, vec![way([write("/sys/fine", "1")])])]);
    assert_eq!(tuned_profile(&fine), Exported { files: Vec::new(), left_out: Vec::new() });
}

fn no_other(source: TunedSource<'_>) -> Result<String, String> {
    Err(format!("{source:?} is not there"))
}

fn compared(rows: Vec<Row>, profile: &str) -> TunedCoverage {
    let others = |source: TunedSource<'_>| match source {
        TunedSource::Profile("parent") => Ok(String::from(
            "[main]\nsummary=a parent\n[variables]\ncores=8-9\nmask=${f:cpulist2hex:${cores}}\n\
             [sysctl]\nvm.stat_interval=1\nkernel.timer_migration=0\n[cpu]\ngovernor=schedutil|performance\n\
             [bootloader]\ncmdline_a=+nosoftlockup skew_tick=1\n[script]\nscript=${i:PROFILE_DIR}/script.sh\n",
        )),
        TunedSource::Variables("/etc/tuned/v.conf") => Ok("# of this machine\ncores = 2-7\n".to_owned()),
        other => no_other(other),
    };
    let profile = read_tuned(profile, &others).unwrap();
    compare_with_tuned(&audit(rows), &profile)
}

const CHILD: &str = "[main]\ninclude=parent\n[variables]\ninclude=/etc/tuned/v.conf\n\
                     [sysctl]\nvm.stat_interval = 10  # as advised\n\
                     [sysfs]\n/sys/devices/virtual/workqueue/*/cpumask=${mask}\n/sys/module/*/parameters/policy=default\n\
                     [bootloader]\ncmdline_b=+isolcpus=${cores} nohz_full=${nobody}\ncmdline_c=-skew_tick=1\n\
                     [modules]\nkvm=+r nx_huge_pages=never\n\
                     [service]\nservice.ksmtuned=stop,disable\nservice.ksm=stop\n\
                     [net]\nchannels=combined 2\n";

#[test]
fn a_profile_is_compared_row_by_row() {
    let governor = write("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "performance");
    let units =
        |names: &[&str]| Change::Disable { units: names.iter().map(|&name| name.to_owned()).collect() };
    for (change, expected) in [
        (write("/proc/sys/vm/stat_interval", "10"), TunedVerdict::Sets),
        (write("/proc/sys/kernel/timer_migration", "0"), TunedVerdict::Sets),
        (governor, TunedVerdict::Sets),
        (boot("isolcpus=2-7", ""), TunedVerdict::Sets),
        (boot("isolcpus=8-9 nosoftlockup", ""), TunedVerdict::Differs),
        (boot("nosoftlockup", ""), TunedVerdict::Sets),
        (boot("skew_tick=1", ""), TunedVerdict::SetsNothing),
        (boot("nosoftlockup skew_tick=1", ""), TunedVerdict::SetsPart),
        (boot("nohz_full=2-7", ""), TunedVerdict::Computes),
        (boot("", "mitigations"), TunedVerdict::Cannot),
        (write("/sys/devices/virtual/workqueue/writeback/cpumask", "3"), TunedVerdict::Computes),
        (write("/sys/module/pcie_aspm/parameters/policy", "performance"), TunedVerdict::Differs),
        (option("kvm", "nx_huge_pages", "never"), TunedVerdict::Sets),
        (option("kvm", "halt_poll_ns", "0"), TunedVerdict::SetsNothing),
        (units(&["ksmtuned.service"]), TunedVerdict::Sets),
        (units(&["ksm.service"]), TunedVerdict::Differs),
        (Change::ByHand { what: "firmware".to_owned() }, TunedVerdict::Cannot),
    ] {
        let found = compared(vec![failed("rule", [change.clone()])], CHILD);
        assert_eq!(found.rows[0].verdict, expected, "{change}: {found:?}");
        assert_eq!(found.rows[0].why.is_empty(), expected == TunedVerdict::Sets, "{change}: {found:?}");
    }
}

#[test]
fn the_way_of_which_a_profile_does_most_counts_and_what_passed_does_not() {
    let ways = vec![way([boot("a=1", "")]), way([write("/proc/sys/vm/stat_interval", "10")])];
    let rows = vec![row("two", AuditOutcome::Fail, ways.clone()), row("fine", AuditOutcome::Pass, ways)];
    let found = compared(rows, CHILD);
    assert_eq!(found.rows.len(), 1);
    assert_eq!(found.rows[0].verdict, TunedVerdict::Sets);
}

#[test]
fn what_is_not_read_of_a_profile_is_told() {
    let unread = compared(Vec::new(), CHILD).unread.join("\n");
    for wanted in ["script.sh", "channels"] {
        assert!(unread.contains(wanted), "{wanted}: {unread}");
    }
    let narrowed = read_tuned("[cpu]\ndevices=cpu3\ngovernor=performance\n", &no_other).unwrap();
    assert!(narrowed.unread[0].contains("devices"), "{narrowed:?}");
    let other = read_tuned("[bootloader]\ncmdline=a\nskip_grub_config=1\n[vm]\nscript_pre=x.sh\n", &no_other)
        .unwrap();
    assert_eq!(other.unread.len(), 2, "{other:?}");
    let computed = read_tuned("[sysctl]\nenabled=${f:virt_check:1:0}\na=1\n", &no_other).unwrap();
    assert!(computed.unread[0].contains("whether it holds"), "{computed:?}");
}

#[test]
fn a_later_section_replaces_drops_or_switches_off() {
    let stat = || vec![failed("stat", [write("/proc/sys/kernel/timer_migration", "0")])];
    for (more, expected) in [
        ("[sysctl]\nreplace=1\nvm.swappiness=1\n", TunedVerdict::SetsNothing),
        ("[sysctl]\ndrop=kernel.timer_migration\n", TunedVerdict::SetsNothing),
        ("[sysctl]\nenabled=false\n", TunedVerdict::SetsNothing),
        ("[sysctl]\nkernel.timer_migration=1\n", TunedVerdict::Differs),
        ("[mine]\ntype=sysctl\nkernel.timer_migration=1\n", TunedVerdict::Differs),
        ("", TunedVerdict::Sets),
    ] {
        let found = compared(stat(), &format!("[main]\ninclude=parent\n{more}"));
        assert_eq!(found.rows[0].verdict, expected, "{more}");
    }
}

#[test]
fn a_profile_from_elsewhere_takes_neither_time_nor_memory() {
    let itself = |_: TunedSource<'_>| Ok("[main]\ninclude=b\n".to_owned());
    assert!(read_tuned("[main]\ninclude=b\n", &itself).is_err_and(|why| why.contains("includes itself")));
    let many = |source: TunedSource<'_>| match source {
        TunedSource::Profile(name) => Ok(format!("[main]\ninclude={name}a,{name}b\n")),
        TunedSource::Variables(_) => Err(String::new()),
    };
    assert!(read_tuned("[main]\ninclude=a\n", &many).is_err_and(|why| why.contains("more than 32")));
    let missing = read_tuned("[main]\ninclude=a\n", &no_other).unwrap_err();
    assert!(missing.contains("includes a: ") && missing.contains("is not there"), "{missing}");
    assert!(read_tuned("[main]\ninclude=-a\n", &no_other).is_ok_and(|found| found.unread.len() == 1));
    // Each variable has the one before it twice.
    let mut doubling = String::from("[variables]\nv0=0123456789\n");
    (1..5000).for_each(|n| doubling += &format!("v{n}=${{v{}}}${{v{}}}\n", n - 1, n - 1));
    doubling += "[sysctl]\na=${v4999}\n";
    assert!(read_tuned(&doubling, &no_other).is_ok());
    let options: String = (0..100_000).map(|n| format!("k{n}=1\n")).collect();
    assert!(read_tuned(&format!("[sysctl]\n{options}"), &no_other).is_err_and(|why| why.contains("options")));
    let sections: String = (0..100_000).map(|n| format!("[k{n}]\n")).collect();
    assert!(read_tuned(&sections, &no_other).is_err_and(|why| why.contains("options")));
    assert!(read_tuned("no profile", &no_other).is_err());
    let braces = format!("[sysctl]\na={}\n", "${".repeat(100_000));
    assert!(read_tuned(&braces, &no_other).is_ok());
}

fn change() -> impl Strategy<Value = Change> {
    let text = || "[ -~]{0,12}";
    prop_oneof![
        ("(/sys|/proc/sys|/proc|/sys/class)/[a-c./]{1,6}", text())
            .prop_map(|(path, value)| write(&path, &value)),
        (vec("[a-c.]{1,4}(=[ -~&&[^ ]]{0,6})?", 0..3), vec("[a-c]", 0..2))
            .prop_map(|(add, remove)| Change::BootLine { add, remove }),
        ("[a-b]{1,3}", "[a-b]{1,3}", "[a-z0-9]{0,3}")
            .prop_map(|(module, name, value)| option(&module, &name, &value)),
        vec("[a-b]{1,3}(\\.service|\\.timer)?", 0..3).prop_map(|units| Change::Disable { units }),
        Just(banned("/etc/sysconfig/irqbalance")),
    ]
}

proptest! {
    /// Each row is set by the profile that is made of the audit, unless something of it was left out.
    #[test]
    fn a_profile_made_of_an_audit_sets_what_the_audit_advises(changes in vec(vec(change(), 1..3), 0..6)) {
        let rows = changes.into_iter().enumerate().map(|(at, changes)| failed(&format!("rule-{at}"), changes));
        let audit = audit(rows.collect());
        let made = tuned_profile(&audit);
        let text = made.files.first().map_or("", |file| file.text.as_str());
        let profile = read_tuned(text, &no_other).unwrap();
        let found = compare_with_tuned(&audit, &profile);
        for (row, of) in found.rows.iter().zip(&audit.rows) {
            let left_out = made.left_out.iter().any(|line| line.starts_with(&format!("{} (", of.rule)));
            let nothing = of.ways.iter().all(|way| way.changes.iter().all(|change| match change {
                Change::BootLine { add, remove } => add.is_empty() && remove.is_empty(),
                Change::Disable { units } => units.is_empty(),
                _ => false,
            }));
            prop_assert!(row.verdict == TunedVerdict::Sets || left_out || nothing, "{row:?} of\n{text}");
        }
    }

    #[test]
    fn any_text_is_a_profile_or_refused(text in "([\\[\\]=$\\{\\}:a-c \\n+,#-]|cmdline|main|include|variables|\\$\\{f:){0,60}") {
        let again = |_: TunedSource<'_>| Ok(text.clone());
        let _ = read_tuned(&text, &again);
        let _ = read_tuned(&text, &no_other);
    }
}
