//! What must be true of a page and of its neighbours whatever the run.
#![allow(clippy::disallowed_methods, reason = "a test leaves its pages for people to look at")]

mod runs;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use indexmap::IndexMap;
use penstock_model::{
    EndpointName, FunctionName, Inventory, Outcome, Source, Verdict, WantedEswitch,
    audit::AuditOutcome,
    measurement::{Cell, Conclusion, Counts, CutShort, Expectation, ExpectationResult, Status},
    parse,
    verdict::Subject,
};
use penstock_report::{Audits, Evidence, Machine, ReadError, StepOutcome, html, markdown, sentence, summary};

/// Renders the page and leaves it beside the build, to be opened in a browser.
fn page(name: &str, evidence: &Evidence) -> String {
    let page = html(evidence);
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html")), &page).unwrap();
    page
}

#[test]
fn a_run_that_holds_says_so() {
    let evidence = runs::xeon_d();
    assert!(evidence.holds());
    let page = page("xeon-d", &evidence);
    assert!(page.contains("<strong>Holds</strong>"));
    assert!(page.contains("unsupported where the model says best effort"));
    assert!(!page.contains("What does not hold"));
    assert!(!page.contains("<details class=\"group\" open>"));
}

#[test]
fn a_run_that_does_not_hold_shows_each_failure_first() {
    let evidence = runs::xeon_d_failing();
    assert!(!evidence.holds());
    let page = page("xeon-d-failing", &evidence);
    for must in [
        "<strong>Does not hold</strong>",
        "<b>step 6</b> 0000:04:10.9: bind igbvf",
        "step 6 of the plan failed, 3 failed, 2 could not be seen",
        "02:de:ad:be:ef:04",
        "arrives and should not",
        "should arrive and does not",
        "<details class=\"group\" open>",
    ] {
        assert!(page.contains(must), "{must} is missing");
    }
    let groups = evidence.groups();
    let first_good = groups.iter().position(|group| group.counts.hold()).unwrap();
    assert!(groups[first_good..].iter().all(|group| group.counts.hold()));
    assert!(!groups[0].verdicts[0].holds());
}

#[test]
fn no_page_asks_for_anything_outside() {
    for evidence in [runs::small(), runs::xeon_d_failing(), runs::many()] {
        let page = html(&evidence);
        for forbidden in ["http:", "https:", "src=", "url(", "@import", "<script", "<iframe", "//cdn"] {
            assert!(!page.contains(forbidden), "the page contains {forbidden:?}");
        }
        let targets = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        for target in targets {
            assert!(target.starts_with('#') || target == "data:,", "the page links to {target:?}");
        }
    }
}

#[test]
fn two_hundred_vfs_and_ten_thousand_paths_stay_small_and_fast() {
    let mut evidence = runs::many();
    assert!(evidence.verdicts.len() > 10_000);
    let began = Instant::now();
    let good = html(&evidence);
    let took = began.elapsed();
    assert!(good.len() < 3_000_000, "{} bytes", good.len());
    // The bound is for the optimised binary; a debug build on a busy machine gets ten times as long.
    let bound = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 1 });
    assert!(took < bound, "{took:?}");
    page("dense", &evidence);

    evidence.verdicts.update(|verdict| verdict.outcome = Outcome::Fail);
    let bad = page("dense-failing", &evidence);
    assert!(bad.len() < 3_000_000, "{} bytes", bad.len());
    assert!(bad.contains("more; the JSON of this evidence has every one"));
    assert!(summary(&evidence).lines().count() <= 25);
    assert!(markdown(&evidence).len() < 3_000_000);
}

#[test]
fn two_thousand_cells_stay_small_and_fast() {
    let evidence = runs::measured::many_cells();
    let cells = &evidence.measurements.as_ref().unwrap().cells;
    assert_eq!(cells.len(), 2_000);
    let began = Instant::now();
    let made = html(&evidence);
    let took = began.elapsed();
    assert!(made.len() < 3_000_000, "{} bytes", made.len());
    // The bound is for the optimised binary; a debug build on a busy machine gets ten times as long.
    let bound = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 1 });
    assert!(took < bound, "{took:?}");
    println!("{} bytes in {took:?}", made.len());
    page("measured-many", &evidence);
    assert!(markdown(&evidence).len() < 1_000_000);
    assert!(summary(&evidence).lines().count() <= 25);
    let rows = made.matches("<tr id=\"c").count();
    assert_eq!(rows, 2_000, "each cell has its row");
}

#[test]
fn measurements_leave_their_pages() {
    page("measured", &runs::measured::measured(true));
    page("measured-real", &runs::measured::measured(false));
    page("measured-small", &runs::measured::measured_small());
}

#[test]
fn every_vf_of_a_dense_nic_is_drawn() {
    let page = html(&runs::many());
    assert!(page.contains("NET0#199, owned by no guest"));
    assert!(page.contains("NET0#0, owned by alpha"));
    assert_eq!(page.matches("<g class=\"slot ").count(), 200 + 7 + 2);
}

#[test]
fn what_others_wrote_stays_text() {
    const EVIL: &str =
        "</title></pre><script>alert(1)</script>\"'><img onerror=x> `|[a](http://b)\u{1b}[31m\u{202e}";
    let mut evidence = runs::xeon_d_failing();
    evidence.machine.name = EVIL.to_owned();
    evidence.model.name = "<script>".to_owned();
    evidence.model.text = EVIL.to_owned();
    evidence.serial_log = Some(format!("```\n{EVIL}"));
    evidence.notes = vec![EVIL.to_owned()];
    evidence.run.command = vec![EVIL.to_owned()];
    evidence.machine.nics[0].driver = Some(EVIL.to_owned());
    evidence.machine.guests[0].functions[0].interface = "e\"><b>&'".parse().unwrap();
    evidence.steps[0].what = EVIL.to_owned();
    evidence.steps[1].why = EVIL.to_owned();
    evidence.steps[5].detail = Some(EVIL.to_owned());
    evidence.phases[0].name = EVIL.to_owned();
    evidence.verdicts.update(|verdict| {
        verdict.attribute = EVIL.to_owned();
        verdict.item = Some(EVIL.to_owned());
        verdict.seen = EVIL.to_owned();
        verdict.wanted = EVIL.to_owned();
    });
    let page = page("hostile", &evidence);
    for forbidden in ["<script", "<img", "<b>&", "\u{1b}", "\u{202e}", "</title></pre>"] {
        assert!(!page.contains(forbidden), "the page contains {forbidden:?}");
    }
    let text = summary(&evidence);
    assert!(!text.contains(['\u{1b}', '\u{202e}']));
    assert!(text.lines().count() <= 25);
    let markdown = markdown(&evidence);
    let (tables, fenced) = markdown.split_once("## Serial console").unwrap();
    assert!(!tables.contains("<script") && !tables.contains("[a]("));
    assert!(
        fenced.trim_start().starts_with("````text"),
        "the fence is longer than any run of backticks inside"
    );
}

#[test]
fn newer_evidence_is_refused_and_unknown_fields_are_passed_over() {
    let newer = runs::small().json().replacen("\"version\": 2", "\"version\": 3", 1);
    let error = Evidence::from_json(&newer).unwrap_err();
    assert!(matches!(error, ReadError::Newer { found: 3 }), "{error}");
    assert!(error.to_string().contains("newer Penstock"));

    let more = runs::small().json().replacen("\"version\": 2", "\"version\": 2, \"later\": [1]", 1);
    assert_eq!(Evidence::from_json(&more).unwrap(), runs::small());
    assert_eq!(Evidence::from_json("{\"version\": 2}").unwrap(), Evidence::default());
    assert!(matches!(Evidence::from_json("{}"), Err(ReadError::Form(_))));
    assert!(matches!(Evidence::from_json("no"), Err(ReadError::Form(_))));
    assert!(Evidence::from_json("{\"version\": 1, \"run\": {\"seconds\": -1}}").is_err());
}

/// As Penstock wrote it before verdicts had keys.
const VERSION_1: &str = include_str!("golden/small-version-1.json");

#[test]
fn evidence_of_version_1_is_read_and_two_of_one_name_are_refused_from_version_2_on() {
    let old = Evidence::from_json(VERSION_1).unwrap();
    assert_eq!((old.version, old.has_keys(), old.verdicts.len()), (1, false, runs::small().verdicts.len()));
    assert_eq!(old.steps, runs::small().steps);
    assert!(html(&old).contains("<strong>Holds</strong>"));

    // The last verdict a second time, and a third.
    let twice = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        let verdicts = value["verdicts"].as_array_mut().unwrap();
        let last = verdicts.last().unwrap().clone();
        verdicts.extend([last.clone(), last]);
        value.to_string()
    };
    let old = Evidence::from_json(&twice(VERSION_1)).unwrap();
    let keys: Vec<String> = old.verdicts.iter().map(|verdict| verdict.key().to_string()).collect();
    assert_eq!(keys[7..], ["NET0#0 address", "NET0#0 address (2)", "NET0#0 address (3)"]);
    let error = Evidence::from_json(&twice(&runs::small().json())).unwrap_err();
    let said = std::error::Error::source(&error).unwrap().to_string();
    assert!(said.contains("verdicts 8 and 9 are both \"NET0#0 address 10.0.0.2/24\""), "{said}");

    let mut measured = runs::measured::measured_small();
    let cells = &mut measured.measurements.as_mut().unwrap().cells;
    cells.push(cells[0].clone());
    let error = Evidence::from_json(&measured.json()).unwrap_err().to_string();
    assert!(error.contains("two cells called"), "{error}");
    let mut latencies = runs::real_time::real_time(true);
    let series = &mut latencies.latency.as_mut().unwrap().series;
    series.push(series[0].clone());
    let error = Evidence::from_json(&latencies.json()).unwrap_err().to_string();
    assert!(error.contains("two series of latencies called"), "{error}");
}

#[test]
fn a_limit_and_an_interrupt_are_said_for_what_they_are() {
    let mut evidence = runs::measured::measured_small();
    evidence.run.exit = Some(0);
    let measured = evidence.measurements.as_mut().unwrap();
    measured.rulings.clear();
    measured.cells.iter_mut().for_each(|cell| {
        if cell.measured().is_none() {
            cell.status = Status::Missing { why: "left out".into(), cut_short: Some(CutShort::TimeUp) };
        }
    });
    measured.cells.push(Cell {
        id: "another".into(),
        status: Status::Missing { why: "left out".into(), cut_short: Some(CutShort::TimeUp) },
        ..measured.cells[0].clone()
    });
    measured.rules.budget = Some(300.0);
    let Counts { measured: some, not_reached, missing } = measured.counts();
    assert!(some > 0 && not_reached > 0 && missing == 0);
    let counts = format!("{some} of {} cells measured", some + not_reached);
    let attributes = |evidence: &Evidence| match evidence.verdicts.len() {
        0 => String::new(),
        all => format!("{all} of {all} attributes seen as the model says; "),
    };
    assert!(evidence.holds());
    let said = sentence(&evidence);
    assert_eq!(said, format!("Stopped as asked after 5 min: {}{counts}.", attributes(&evidence)));
    // One truth in one sentence: what was not reached is not told as missing beside it.
    let shown = summary(&evidence);
    assert!(shown.contains(&said) && !shown.contains("missing: "), "{shown}");

    // A line that was not reached is not shown, and one that was left out on purpose counts for nothing.
    let line: Expectation = "p99 <= 5us".parse().unwrap();
    let ruled = |told| {
        let mut evidence = evidence.clone();
        let ruling = ExpectationResult { told, ..ExpectationResult::new(line.clone(), Vec::new()) };
        evidence.measurements.as_mut().unwrap().rulings = vec![ruling];
        evidence
    };
    let open = ruled(Conclusion::NotMeasured);
    assert!(!open.holds());
    let started = "Not shown: 1 expectation was not measured; stopped as asked after 5 min; ";
    assert!(sentence(&open).starts_with(started), "{}", sentence(&open));
    assert!(html(&open).contains("class=\"banner unknown\""));
    let asked = ruled(Conclusion::NotAsked);
    assert!(asked.holds() && sentence(&asked).contains("1 expectation was not asked for"));
    assert!(!ruled(Conclusion::CannotBeTold).holds());

    // A cell that is missing for another reason still fails.
    let mut faulty = evidence.clone();
    faulty.measurements.as_mut().unwrap().cells.last_mut().unwrap().status = Status::missing("no netperf");
    assert!(!faulty.holds());
    assert!(
        sentence(&faulty).starts_with("Does not hold: 1 cell is missing; stopped as asked after 5 min; ")
    );
    assert!(summary(&faulty).contains("missing: 1 cell, no netperf"), "{}", summary(&faulty));

    let mut interrupted = evidence.clone();
    interrupted.run.exit = Some(130);
    let measured = interrupted.measurements.as_mut().unwrap();
    measured.seconds = 42.0;
    assert!(sentence(&interrupted).starts_with("Interrupted after 42.0 s: "), "{}", sentence(&interrupted));
    assert!(!interrupted.holds());

    let mut nothing = evidence.clone();
    let cells = &mut nothing.measurements.as_mut().unwrap().cells;
    cells.iter_mut().for_each(|cell| {
        cell.status = Status::Missing { why: "left out".into(), cut_short: Some(CutShort::TimeUp) };
    });
    assert!(!nothing.holds());
    assert!(sentence(&nothing).starts_with("Not shown: no cell was measured; stopped as asked after 5 min"));
}

#[test]
fn nothing_seen_is_not_a_success() {
    let mut evidence = runs::small();
    assert!(evidence.holds());
    assert_eq!(sentence(&evidence), "Holds: 8 of 8 attributes seen as the model says.");

    evidence.run.exit = Some(4);
    assert!(!evidence.holds());
    assert_eq!(
        sentence(&evidence),
        "Does not hold: the run ended with exit status 4; 8 of 8 attributes seen as the model says."
    );

    evidence.run.exit = None;
    evidence.steps[1].outcome = StepOutcome::Undone;
    assert!(!evidence.holds());
    assert!(sentence(&evidence).contains("step 2 of the plan was undone"));

    evidence.steps.clear();
    let first = evidence.verdicts[0].key();
    let of_first = |change: fn(&mut penstock_model::Verdict)| {
        let first = first.clone();
        move |verdict: &mut penstock_model::Verdict| {
            if verdict.key() == first {
                change(verdict);
            }
        }
    };
    evidence.verdicts.update(of_first(|verdict| verdict.outcome = Outcome::Unsupported));
    assert!(!evidence.holds());
    evidence.verdicts.update(of_first(|verdict| verdict.best_effort = true));
    assert!(evidence.holds());
    evidence.verdicts = Default::default();
    assert!(!evidence.holds());
    assert_eq!(sentence(&evidence), "Does not hold: nothing was verified.");
    html(&evidence);
}

#[test]
fn ctrl_c_is_no_verdict() {
    let mut evidence = runs::small();
    evidence.run.exit = Some(130);
    evidence.run.took = Duration::from_millis(6300);
    assert!(!evidence.holds());
    assert_eq!(sentence(&evidence), "Interrupted after 6.30 s: 8 of 8 attributes seen as the model says.");
    assert!(html(&evidence).contains("class=\"banner unknown\""));

    // What was not reached, was taken back or was not seen is so because nobody waited for it.
    let mut early = evidence.clone();
    early.steps[1].outcome = StepOutcome::Skipped;
    assert!(sentence(&early).starts_with("Interrupted after 6.30 s: step 2 of the plan was not reached; "));
    let last = early.verdicts.last().unwrap().key();
    let unseen = |verdict: &mut penstock_model::Verdict| {
        if verdict.key() == last {
            (verdict.outcome, verdict.seen) = (Outcome::Unknown, "not looked at".to_owned());
        }
    };
    early.verdicts.update(unseen);
    assert_eq!(
        sentence(&early),
        "Interrupted after 6.30 s: step 2 of the plan was not reached, 1 could not be seen; 7 of 8 attributes seen as the model says."
    );
    for audits in [None, Some(Audits::default())] {
        let nothing = Evidence { verdicts: Default::default(), audits, ..evidence.clone() };
        assert_eq!(sentence(&nothing), "Interrupted after 6.30 s: nothing was verified.");
    }
    let audits = Some(Audits { before: Some(runs::real_time::audit(true)), after: None });
    let audited = Evidence { verdicts: Default::default(), audits, ..evidence.clone() };
    assert!(!sentence(&audited).contains("nothing was verified"), "{}", sentence(&audited));

    // What is wrong is wrong all the same.
    let mut failed = evidence.clone();
    failed.steps[1].outcome = StepOutcome::Failed;
    assert!(
        sentence(&failed).starts_with("Does not hold: step 2 of the plan failed; interrupted after 6.30 s; ")
    );
    let mut failed = evidence;
    failed.verdicts.update(|verdict| {
        if verdict.key() == last {
            verdict.outcome = Outcome::Fail;
        }
    });
    assert!(sentence(&failed).starts_with("Does not hold: 1 failed; interrupted after 6.30 s; "));
}

#[test]
fn an_empty_cell_of_the_matrix_is_explained() {
    let all = runs::xeon_d_failing();
    let legend = |evidence: &Evidence| {
        let page = html(evidence);
        let item = page.split_once("<i class=\"cell none\">&nbsp;</i> ");
        let item = item.and_then(|(_, rest)| rest.split_once("</li>")).map(|(item, _)| item.to_owned());
        let said = markdown(evidence);
        let line = said.lines().find_map(|line| line.strip_prefix("empty: ")?.strip_suffix('.'));
        assert_eq!(item, line.map(|line| line.replace('`', "")));
        item
    };
    assert_eq!(legend(&all), None, "each path was judged, but those from a function to itself");
    let without = |gone: &dyn Fn(&FunctionName, &FunctionName) -> bool| {
        let kept = all.verdicts.iter().filter(|verdict| match &verdict.subject {
            Subject::Path { from: EndpointName::Function(from), to: EndpointName::Function(to) } => {
                !gone(from, to)
            }
            _ => true,
        });
        let verdicts = kept.cloned().collect::<Vec<Verdict>>().try_into().unwrap();
        Evidence { verdicts, ..all.clone() }
    };

    // As with two functions of one NIC in the same VLAN.
    let mut inside = without(&|from, to| from.nic == to.nic);
    inside.machine.nics.iter_mut().for_each(|nic| nic.loopback = Some(true));
    assert_eq!(legend(&inside).as_deref(), Some("not judged"), "the model says `loopback: on`");
    inside.machine.nics.iter_mut().for_each(|nic| nic.loopback = None);
    assert_eq!(legend(&inside).as_deref(), Some("not judged (loopback is left alone)"));
    let mut switchdev = inside.clone();
    switchdev.machine.nics.iter_mut().for_each(|nic| nic.eswitch = Some(WantedEswitch::Switchdev));
    assert_eq!(legend(&switchdev).as_deref(), Some("not judged"), "the host's rules say where frames go");

    let mut apart = without(&|from, to| from.nic != to.nic);
    apart.machine.cables.clear();
    assert_eq!(legend(&apart).as_deref(), Some("not judged (the model has no cables)"));
}

#[test]
fn what_the_model_hides_is_told_and_lets_the_run_hold() {
    let mut evidence = runs::small();
    let last = evidence.verdicts.last().unwrap().key();
    evidence.verdicts.update(|verdict| {
        if verdict.key() == last {
            (verdict.outcome, verdict.seen) = (Outcome::Unknown, "nobody looks inside".to_owned());
        }
    });
    assert!(!evidence.holds());
    assert!(sentence(&evidence).contains("1 could not be seen"));

    evidence.verdicts.update(|verdict| verdict.out_of_sight = verdict.outcome == Outcome::Unknown);
    assert!(evidence.holds() && evidence.counts().hold());
    assert_eq!(
        sentence(&evidence),
        "Holds: 7 of 8 attributes seen as the model says, 1 out of sight where the model says so."
    );
    assert!(page("hidden", &evidence).contains("out of sight, as the model has it"));
}

#[test]
fn latencies_of_wake_ups_are_shown_with_what_keeps_them_from_holding() {
    let evidence = runs::real_time::real_time(true);
    let page = page("real-time", &evidence);
    for must in [
        "Emulated machine: look at the ratios only",
        "1 claim about latencies is broken, 1 claim about latencies is not proven",
        ">longer</text>",
        "oslat is not in rt-2",
        "tuned, again (A&#x2f;A)",
        "it was not the same machine all the time",
        "What is not as it should be",
        "Spike blocks a minute",
    ] {
        assert!(page.contains(must), "{must} is missing");
    }
    // What contradicts stands before what fails, before what could not be read.
    let at = |rule: &str| page.find(&format!("<b>{rule}</b>")).unwrap_or_else(|| panic!("{rule}"));
    assert!(at("fair-server") < at("smi-count"));
    let after = Evidence {
        audits: Some(penstock_report::Audits { before: None, after: Some(runs::real_time::audit(true)) }),
        ..runs::small()
    };
    let page = html(&after);
    let at = |rule: &str| page.find(&format!("<b>{rule}</b>")).unwrap();
    assert!(at("irqs-on-isolated") < at("fair-server"));
}

/// No list is cut in silence: what is not shown is counted.
#[test]
fn what_a_long_list_leaves_out_is_counted() {
    let mut evidence = runs::real_time::real_time(false);
    let audits = evidence.audits.as_mut().unwrap();
    let (before, after) = (audits.before.as_mut().unwrap(), audits.after.as_mut().unwrap());
    after.rows = before.rows.clone();
    let row = before.rows[0].clone();
    for place in 0..302 {
        let row = penstock_model::audit::Row { subject: format!("CPU {place}"), ..row.clone() };
        let turned = if row.verdict == AuditOutcome::Pass { AuditOutcome::Fail } else { AuditOutcome::Pass };
        after.rows.push(penstock_model::audit::Row { verdict: turned, ..row.clone() });
        before.rows.push(row);
    }
    assert!(html(&evidence).contains("And 2 more rows; evidence.json has every row."));
    assert!(markdown(&evidence).contains("- and 2 more rows; the JSON has them all"));

    let comparisons = &mut evidence.latency.as_mut().unwrap().comparisons;
    let one = comparisons[0].clone();
    comparisons.resize(201, one);
    assert!(html(&evidence).contains("And 1 more row; evidence.json has every one."));
    assert!(markdown(&evidence).contains("And 1 more row; the JSON has them all."));
}

#[test]
fn a_comparison_of_cells_that_are_not_there_is_named() {
    let mut evidence = runs::measured::measured(false);
    let not_shown = "of cells that are not in this evidence: ";
    assert!(!html(&evidence).contains(not_shown) && !markdown(&evidence).contains(not_shown));
    let comparisons = &mut evidence.measurements.as_mut().unwrap().comparisons;
    comparisons[0].other = "nobody measured this".into();
    let base = comparisons[0].base.clone();
    for text in [html(&evidence), markdown(&evidence)] {
        assert!(text.contains(not_shown) && text.contains("nobody measured this against "), "{base}");
    }
}

#[test]
fn one_wake_up_and_a_hundred_million_make_a_page() {
    let tiny = runs::real_time::tiny();
    let tiny = page("real-time-tiny", &tiny);
    for must in [
        "withheld",
        "cyclictest was killed",
        "latencies of 1 series are missing",
        "1 block failed and counts nowhere",
    ] {
        assert!(tiny.contains(must), "{must} is missing");
    }
    let evidence = runs::real_time::huge();
    let latency = evidence.latency.as_ref().unwrap();
    assert!(latency.series.iter().all(|series| series.summary.as_ref().unwrap().n > 100_000_000));
    let began = Instant::now();
    let huge = page("real-time-huge", &evidence);
    let took = began.elapsed();
    assert!(huge.len() < 400_000, "{} bytes", huge.len());
    assert!(took < Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 1 }), "{took:?}");
    let empty = Evidence { latency: Some(Default::default()), ..runs::small() };
    assert!(page("real-time-empty", &empty).contains("id=\"real-time\""));
}

/// A VM's own NIC is drawn in the VM, its switch before it, and the switch's uplink where it is; or what it is called.
#[test]
fn a_nic_of_a_vms_own_is_drawn_in_the_vm() {
    let text = include_str!("../../../examples/tenant.yaml").replace("uplink: NET1", "uplink: br0");
    let model = parse(&Source::new("tenant.yaml", text)).unwrap().model;
    let machine = Machine::of(&model, &Inventory::default(), &IndexMap::new(), true);
    let evidence = Evidence { machine, ..runs::small() };
    let page = page("tenant", &evidence);
    let svg = page.split("<svg viewBox").nth(1).and_then(|rest| rest.split("</svg>").next()).unwrap();
    // PF and VFs inside, and a line to each; the one switch has a line to its uplink, the other one has words.
    for guest in ["node-1", "node-2"] {
        for function in ["net0", "net0#0", "net0#1"] {
            assert!(svg.contains(&format!("<title>{guest}&#x2f;{function}, ")), "{function} of {guest}");
        }
    }
    assert_eq!(svg.matches("class=\"wire ").count(), 2 * 3 + 1);
    assert!(svg.contains("NET0, the host&#x27;s, an uplink for node-1"));
    assert!(svg.contains("for node-1") && !svg.contains("for node-2"));
    assert!(svg.contains(">uplink br0<"));
    assert!(svg.contains(", VLAN 100, 500 Mbit&#x2f;s</title>") && svg.contains(">VLAN 100 +1<"));
    // The table and the summary for readers say it too.
    assert!(page.contains("<code>net0 with 2 VFs</code>"));
    assert!(markdown(&evidence).contains("| node-1 | VM | net0 with 2 VFs |"));
}

/// A VF that is an uplink is drawn at its NIC with a line to the switch, as the host's.
#[test]
fn a_vf_that_is_an_uplink_has_a_line_to_the_switch() {
    let uplink = "uplink: {vf: NET1#1, trust: on, spoofchk: off}";
    let text = include_str!("../../../examples/tenant.yaml")
        .replace("uplink: NET1", uplink)
        .replace("1: {vlan: 100, ", "1: {")
        .replace("uplink: NET0\n        functions:\n          0: {spoofchk: on}\n", "functions:\n");
    let model = parse(&Source::new("tenant.yaml", text)).unwrap().model;
    let machine = Machine::of(&model, &Inventory::default(), &IndexMap::new(), true);
    let page = page("tenant-uplink-vf", &Evidence { machine, ..runs::small() });
    let svg = page.split("<svg viewBox").nth(1).and_then(|rest| rest.split("</svg>").next()).unwrap();
    // Three functions in each of two VMs, and one uplink.
    assert_eq!(svg.matches("class=\"wire ").count(), 2 * 3 + 1);
    assert!(svg.contains("<title>NET1#1, the host&#x27;s, an uplink for node-2"), "{svg}");
    assert!(svg.contains("<title>NET1#0, owned by no guest"), "{svg}");
    assert!(svg.contains("embedded switch of node-2&#x2f;net0 on the host, uplink NET1#1"), "{svg}");
    assert!(!svg.contains(">uplink NET1#1<"), "the line says it");
}

/// What others published of the same comparison stands beside it as theirs; a machine that is emulated tells no number.
#[test]
fn published_ratios_stand_beside_the_same_here() {
    let evidence = runs::measured::measured_in_a_vm(false);
    let real = page("measured-in-a-vm", &evidence);
    let emulated = page("measured-in-a-vm-emulated", &runs::measured::measured_in_a_vm(true));
    let rows = |page: &str| -> Vec<Vec<String>> {
        let section =
            page.split("<h3 id=\"published\">").nth(1).and_then(|rest| rest.split("</table>").next());
        let body = section.and_then(|section| section.split("<tbody>").nth(1)).expect("the section is there");
        let row = |row: &str| {
            row.split("<td>")
                .skip(1)
                .map(|cell| cell.split("</td>").next().unwrap_or_default().to_owned())
                .collect()
        };
        body.split("<tr>").skip(1).map(row).collect()
    };
    for page in [&real, &emulated] {
        let theirs: Vec<String> = rows(page).into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(theirs, ["×1.740", "×1.800", "×0.722"]);
        assert!(page.contains("KVM Forum 2024") && page.contains("<a href=\"#published\">"));
        assert_eq!(rows(page)[1][2], "not measured");
    }
    let direction = "This machine is emulated: of ours the direction counts, and no number.";
    assert!(emulated.contains(direction) && !real.contains(direction));
    assert_eq!(rows(&emulated)[0][1], "more than 1 (iperf3, 1472 B)");
    assert_eq!(rows(&emulated)[1][1], "more than 1 (iperf3, 1472 B; A&#x2f;A differs, do not trust it)");
    assert_eq!(rows(&emulated)[2][1], "less than 1 (netperf, 128 B)");
    // The ratios of a machine that is not emulated are those of the evidence.
    let measurements = evidence.measurements.as_ref().unwrap();
    let told = measurements.comparisons.iter().find(|comparison| {
        let base = measurements.cells.iter().find(|cell| cell.id == comparison.base).unwrap();
        let base = serde_json::to_value(&base.measurement).unwrap();
        base["network"]["path"] == "vm-bridge-nat" && base["network"]["size"] == 1472
    });
    let ratio = told.and_then(|comparison| comparison.ratio).unwrap();
    let text = &rows(&real)[0][1];
    assert!(
        text.starts_with(&format!("×{:.2} [", ratio.value())) && text.ends_with("] (iperf3, 1472 B)"),
        "{text}"
    );
    // Without the comparison there is nothing to stand beside.
    assert!(!page("measured-small", &runs::measured::measured_small()).contains("id=\"published\""));
}

/// A run of so many guests, each with a NIC of its own and one path to the next.
fn in_a_ring(nics: usize) -> Evidence {
    let mut evidence = runs::xeon_d();
    let guest = evidence.machine.guests[0].clone();
    let of_paths = |verdict: &Verdict| matches!(verdict.subject, Subject::Path { .. });
    let path = evidence.verdicts.iter().find(|verdict| of_paths(verdict)).unwrap().clone();
    let end = |number: usize| format!("g{number}/net0#0").parse().unwrap();
    evidence.machine.guests.clear();
    let mut verdicts = Vec::new();
    for number in 0..nics {
        let mut guest = guest.clone();
        guest.name = format!("g{number}").parse().unwrap();
        guest.functions.clear();
        evidence.machine.guests.push(guest);
        let subject = Subject::Path { from: end(number), to: end((number + 1) % nics) };
        verdicts.push(Verdict { subject, ..path.clone() });
    }
    evidence.verdicts = verdicts.into_iter().collect();
    evidence
}

/// As many as an evidence of elsewhere likes: what is drawn of them is square.
#[test]
fn a_matrix_of_more_nics_than_any_machine_has_says_how_many_are_left_out() {
    let rows =
        |text: &str| text.lines().filter(|line| line.starts_with("| g") && line.contains("/net0 |")).count();
    let evidence = in_a_ring(3000);
    let left_out = "And 2744 more NICs";
    let (page, text) = (html(&evidence), markdown(&evidence));
    assert!(page.contains(left_out) && text.contains(left_out), "{left_out}");
    assert_eq!(rows(&text), 256);
    let text = markdown(&in_a_ring(64));
    assert!(!text.contains("more NIC"), "all of a large machine's are there");
    assert_eq!(rows(&text), 64);
}
