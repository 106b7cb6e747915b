//! Whatever the evidence, it renders, it reads back, and it keeps to its bounds.

mod runs;

use std::time::Duration;

use penstock_model::{
    FunctionName, GuestKind, Mac, Outcome, Verdict, VfIndex,
    verdict::{ARRIVES, ISOLATED, Subject, Vantage},
};
use penstock_report::{
    Evidence, Machine, MachineFunction, MachineGuest, MachineNic, MachineVf, Phase, StepOutcome, StepRecord,
    html, markdown, sentence, summary,
};
use proptest::{collection::vec, option, prelude::*};

/// Text as a guest could send it.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        "[\\x00-\\x7f]{0,40}",
        Just("<script>\"'&`|\u{1b}[2J\u{202e}".to_owned()),
        Just(ARRIVES.to_owned()),
        Just(ISOLATED.to_owned()),
    ]
}

fn function() -> impl Strategy<Value = FunctionName> {
    ("[A-Za-z0-9][A-Za-z0-9._-]{0,47}|NET[01]", option::of(0u16..300))
        .prop_map(|(nic, vf)| FunctionName { nic: nic.parse().unwrap(), vf: vf.and_then(VfIndex::new) })
}

fn took() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        any::<u32>().prop_map(|millis| Duration::from_millis(millis.into())),
        // Longer ones would lose nanoseconds in a double.
        any::<u32>().prop_map(|seconds| Duration::from_secs(seconds.into())),
    ]
}

fn nic() -> impl Strategy<Value = MachineNic> {
    (
        "NET[0-3]|[A-Za-z0-9][A-Za-z0-9._-]{0,47}",
        option::of(text()),
        option::of(text()),
        any::<Option<bool>>(),
        0u16..270,
    )
        .prop_map(|(name, driver, emulated_by, loopback, vfs)| MachineNic {
            name: name.parse().unwrap(),
            bdf: "0000:04:00.1".parse().ok(),
            mac: Some(Mac::new([2, 0, 0, 0, 0, 1])),
            driver,
            emulated_by,
            loopback,
            // Gaps and repeated names are for the picture to survive.
            vfs: (0..vfs)
                .map(|index| MachineVf { index: VfIndex::new(index).unwrap(), bdf: None, mac: None })
                .collect(),
        })
}

fn guest() -> impl Strategy<Value = MachineGuest> {
    let owned =
        (function(), "[!-.0-9;-~&&[^%:/-]]{3,15}").prop_map(|(function, interface)| MachineFunction {
            function,
            interface: interface.parse().unwrap(),
            addresses: "fd00::4/64".parse().into_iter().collect(),
        });
    ("[A-Za-z0-9][A-Za-z0-9._-]{0,47}", any::<bool>(), vec(owned, 0..12)).prop_map(|(name, vm, functions)| {
        MachineGuest {
            name: name.parse().unwrap(),
            kind: if vm { GuestKind::Vm } else { GuestKind::Container },
            functions,
        }
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let subject = prop_oneof![
        Just(Subject::Machine),
        function().prop_map(|function| Subject::Nic(function.nic)),
        function().prop_map(Subject::Function),
        Just(Subject::Guest("g".parse().unwrap())),
        (function(), function()).prop_map(|(from, to)| Subject::Path { from, to }),
    ];
    let outcome = prop_oneof![
        Just(Outcome::Pass),
        Just(Outcome::Fail),
        Just(Outcome::Unsupported),
        Just(Outcome::Unknown)
    ];
    (subject, text(), any::<bool>(), text(), text(), outcome, any::<(bool, bool)>()).prop_map(
        |(subject, attribute, inside, wanted, seen, outcome, (best_effort, out_of_sight))| Verdict {
            subject,
            attribute,
            vantage: if inside { Vantage::Guest("g".parse().unwrap()) } else { Vantage::Host },
            wanted,
            seen,
            outcome,
            best_effort,
            out_of_sight,
        },
    )
}

fn step() -> impl Strategy<Value = StepRecord> {
    use StepOutcome::{Already, Done, Failed, Skipped, Undone, Unsupported};
    let outcome = prop::sample::select(vec![Done, Already, Unsupported, Skipped, Undone, Failed]);
    (any::<u32>(), text(), text(), option::of(took()), outcome, option::of(text())).prop_map(
        |(id, what, why, took, outcome, detail)| StepRecord { id, what, why, took, outcome, detail },
    )
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let machine =
        (text(), any::<bool>(), vec(nic(), 0..4), vec(guest(), 0..60), vec((0usize..4, 0usize..4), 0..12))
            .prop_map(|(name, emulated, nics, guests, cables)| {
                let name_of = |place: usize| nics.get(place).map(|nic: &MachineNic| nic.name.clone());
                let cables =
                    cables.into_iter().filter_map(|(a, b)| Some([name_of(a)?, name_of(b)?])).collect();
                Machine { name, emulated, cables, nics, guests }
            });
    let phases = vec((text(), took()).prop_map(|(name, took)| Phase { name, took }), 0..6);
    (
        machine,
        vec(verdict(), 0..80),
        vec(step(), 0..20),
        phases,
        vec(text(), 0..40),
        option::of(text()),
        any::<Option<u8>>(),
        took(),
    )
        .prop_map(|(machine, verdicts, steps, phases, notes, serial_log, exit, took)| {
            let mut evidence =
                Evidence { machine, verdicts, steps, phases, notes, serial_log, ..runs::small() };
            evidence.run.exit = exit;
            evidence.run.took = took;
            evidence
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_it_renders_and_reads_back(evidence in evidence()) {
        let page = html(&evidence);
        prop_assert!(page.ends_with("</html>") || page.ends_with("</html>\n"));
        for forbidden in ["<script", "\u{1b}", "\u{202e}", "\0"] {
            prop_assert!(!page.contains(forbidden), "the page contains {forbidden:?}");
        }
        for (open, close) in [("<table", "</table>"), ("<details", "</details>"), ("<svg", "</svg>"), ("<g", "</g>")] {
            let opened = page.matches(&format!("{open} ")).count() + page.matches(&format!("{open}>")).count();
            prop_assert_eq!(opened, page.matches(close).count(), "{} and {} do not match", open, close);
        }
        prop_assert_eq!(evidence.holds(), page.contains("<strong>Holds</strong>"));
        prop_assert_eq!(evidence.holds(), sentence(&evidence).starts_with("Holds: "));

        let text = summary(&evidence);
        prop_assert!(text.lines().count() <= 25, "{} lines", text.lines().count());
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
        // Inside the fence of the serial console it is text.
        let markdown = markdown(&evidence);
        let outside = markdown.split("## Serial console").next().unwrap_or_default();
        prop_assert!(!outside.contains("<script"));

        let grouped: usize = evidence.groups().iter().map(|group| group.verdicts.len()).sum();
        prop_assert_eq!(grouped, evidence.verdicts.len());
        prop_assert_eq!(evidence.counts().total(), evidence.verdicts.len());
        prop_assert_eq!(Evidence::from_json(&evidence.json()).unwrap(), evidence);
    }
}
