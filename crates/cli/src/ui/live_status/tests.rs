//! Pages of a machine that is made up, as files for some sizes of a terminal.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use penstock_guests::{Condition, Status as GuestStatus};
use penstock_model::{
    Bdf, GuestKind, Outcome, VfIndex,
    inventory::{InterfaceCounters, PortCounters, VfCounters},
    text::is_hidden,
};
use penstock_plan::{StepId, action::GuestFunction};
use penstock_report::metrics::{
    DriftMetrics, FunctionMetrics, Identity, InterfaceMetrics, PfMetrics, PortMetrics, RunsMetrics, Snapshot,
    VerificationMetrics,
};
use penstock_testkit::golden;
use ratatui_core::{backend::TestBackend, style::Modifier, terminal::Terminal};

use super::{
    draw,
    keys::Key,
    log_lines::LogLines,
    look::MachineLook,
    page::{self, ModelDrift, Observations, ScreenPage},
    rates::Rates,
    view::PageView,
};
use crate::{
    commands::status::{Guest, StatusDocument},
    metrics::CountedSnapshot,
    runtime::progress::Wait,
};

const NOW: u64 = 1_800_000_000_000;

const SECOND: Duration = Duration::from_secs(1);

/// What a guest or a switch may say to steer a terminal.
const HOSTILE: &str = "x\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r\ny";

fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

fn function(at: &str, vf: Option<u16>, name: Option<&str>) -> FunctionMetrics {
    let vf = vf.map(|vf| VfIndex::new(vf).unwrap());
    FunctionMetrics {
        identity: Identity {
            bdf: bdf(at),
            pf: bdf("0000:01:00.0"),
            vf,
            function: name.map(|name| name.parse().unwrap()),
        },
        driver: Some("igb".to_owned()),
        guest: None,
        iommu_group: None,
        interface: None,
        counters: None,
        pf: None,
    }
}

/// A PF with three VFs after so many times two seconds.
pub fn machine(steps: u64) -> Snapshot {
    let own = InterfaceCounters {
        rx_bytes: 2_500_000_000 * steps,
        tx_bytes: 1_000 * steps,
        rx_packets: 2_000_000 * steps,
        tx_packets: 20 * steps,
        rx_dropped: 6 * steps,
        ..InterfaceCounters::default()
    };
    let of_vf = VfCounters {
        rx_bytes: 150_000 * steps,
        tx_bytes: 3_000 * steps,
        rx_packets: 100 * steps,
        tx_packets: 10 * steps,
        ..VfCounters::default()
    };
    let interface = |name: &str, up, carrier, speed| InterfaceMetrics {
        name: name.parse().unwrap(),
        up,
        carrier,
        speed,
        counters: Some(own),
    };
    let functions = vec![
        FunctionMetrics {
            interface: Some(interface("enp1s0f0", true, Some(true), Some(10_000))),
            pf: Some(PfMetrics { vfs: 3, vfs_max: 63, counts_vfs: Some(true) }),
            ..function("0000:01:00.0", None, Some("NET0"))
        },
        FunctionMetrics {
            guest: Some("rt-2".parse().unwrap()),
            driver: Some("vfio-pci".to_owned()),
            counters: Some(of_vf),
            ..function("0000:01:10.0", Some(0), Some("NET0#0"))
        },
        FunctionMetrics {
            interface: Some(interface("enp1s0f0v1", true, Some(false), None)),
            ..function("0000:01:10.1", Some(1), Some("NET0#1"))
        },
        FunctionMetrics { driver: None, ..function("0000:01:10.2", Some(2), Some("NET0#2")) },
    ];
    let port = PortMetrics {
        guest: "rt-2".parse().unwrap(),
        nic: "net0".parse().unwrap(),
        port: format!("rt-2/net0#1{HOSTILE}"),
        connected: true,
        up: true,
        counters: Some(PortCounters {
            received: 4 * steps,
            received_bytes: 500 * steps,
            ..Default::default()
        }),
    };
    let runs = RunsMetrics { open: 1, confirm_until: Some((NOW / 1000 + 42) as f64), ..Default::default() };
    Snapshot { functions, ports: vec![port], runs: Some(runs), ..Snapshot::default() }
}

/// The same, read when that time was over.
pub fn counted(steps: u32, began: Instant) -> CountedSnapshot {
    let read = began + steps * Duration::from_secs(2);
    let snapshot = machine(steps.into());
    let of = |port: &PortMetrics| ((port.guest.clone(), port.nic.clone()), read);
    let ports = snapshot.ports.iter().map(of).collect();
    CountedSnapshot { snapshot, functions: read, ports }
}

fn status(kind: GuestKind, condition: Condition) -> GuestStatus {
    let runs = condition == Condition::Running;
    GuestStatus {
        kind,
        condition,
        pid: runs.then_some(4711),
        since: runs.then_some(NOW / 1000 - 185),
        functions: Vec::new(),
        last_words: Vec::new(),
        made_again: false,
        not_awaited: false,
        unfinished: false,
    }
}

fn owned(at: &str) -> GuestFunction {
    GuestFunction {
        function: bdf(at),
        interface: "eth0".parse().unwrap(),
        addresses: vec!["10.20.31.204/24".parse().unwrap()],
        routes: Vec::new(),
        dhcp: false,
        mtu: None,
        mac: Some("02:00:00:00:01:04".parse().unwrap()),
        mac_is_kept: false,
        egress_rate: None,
        ingress_rate: None,
        home_driver: None,
    }
}

fn nothing_told() -> StatusDocument {
    StatusDocument {
        guests: Default::default(),
        progress: None,
        died: None,
        half_way: Vec::new(),
        cut_off: Vec::new(),
        going: Vec::new(),
        gone_on_from: Vec::new(),
        open: Vec::new(),
        at_boot: None,
        lapsed: Vec::new(),
        damaged: Vec::new(),
    }
}

fn look() -> MachineLook {
    let guest = |status: GuestStatus| Guest { status: Some(status), ..Guest::default() };
    let running = GuestStatus {
        functions: vec![owned("0000:01:10.0"), owned("0000:05:10.0")],
        ..status(GuestKind::Vm, Condition::Running)
    };
    let died = GuestStatus {
        last_words: vec![format!("Kernel panic {HOSTILE}")],
        ..status(GuestKind::Container, Condition::Died)
    };
    let wait = Wait {
        step: StepId(4),
        what: "link of NET1 (0000:02:00.0)".to_owned(),
        reason: "later needs NET1#0, and it sends nothing before its PF has a link".to_owned(),
        since: Some(NOW - 3_000),
        until: Some(NOW + 12_000),
    };
    let guests = [
        ("box", guest(died)),
        ("later", Guest { waits: vec![wait], ..Guest::default() }),
        ("old", guest(status(GuestKind::Container, Condition::Stopped))),
        ("rt-2", guest(running)),
    ];
    let document = StatusDocument {
        guests: guests.into_iter().map(|(name, guest)| (name.parse().unwrap(), guest)).collect(),
        open: vec!["7".parse().unwrap()],
        ..nothing_told()
    };
    let began = Instant::now();
    MachineLook {
        to_confirm: Some(43_000),
        status: Ok(document),
        guests_unseen: None,
        runs_unseen: None,
        snapshot: machine(1),
        rates: Rates::between(&counted(0, began), &counted(1, began)),
        unseen: vec![format!("what NET1 counts for its VFs is not known: {HOSTILE}")],
    }
}

fn compared() -> Result<VerificationMetrics, String> {
    let drift = DriftMetrics { subject: "NET0#1".to_owned(), attribute: "spoofchk".to_owned() };
    Ok(VerificationMetrics {
        holds: false,
        at: (NOW / 1000 - 5) as f64,
        verdicts: [
            ("vlan".to_owned(), [(Outcome::Pass, 120)].into()),
            ("spoofchk".to_owned(), [(Outcome::Fail, 1), (Outcome::Unknown, 2)].into()),
        ]
        .into(),
        drift: vec![drift],
    })
}

/// What is on a terminal of this size, and whether the terminal has a colour anywhere.
fn drawn(page: &ScreenPage, view: &mut PageView, (width, height): (u16, u16), color: bool) -> (String, bool) {
    view.settle(page, draw::rows_seen(height));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame.buffer_mut(), page, view, color)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        format!("{}\n", line.trim_end())
    };
    let colored = buffer.content().iter().any(|cell| cell.fg != Default::default());
    let text: String = (0..height).map(line).collect();
    assert!(!text.contains(|c| c != '\n' && is_hidden(c)), "{text:?}");
    (text, colored)
}

fn machine_page(size: (u16, u16), drift: ModelDrift<'_>) -> ScreenPage {
    let look = look();
    let seen = Observations { look: Some(&look), age: SECOND, looking: None, drift, now: NOW };
    page::of_machine(&seen, draw::columns_seen(size.0))
}

#[track_caller]
fn compare(name: &str, text: &str) {
    let path = format!("{}/tests/status_page/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    golden::compare(Path::new(&path), text);
}

#[test]
fn pages_of_a_machine() {
    let compared = compared();
    for size in [(80, 24), (120, 32), (40, 10)] {
        let page = machine_page(size, ModelDrift::Compared(&compared, 5 * SECOND));
        let (text, _) = drawn(&page, &mut PageView::default(), size, true);
        compare(&format!("machine-{}x{}", size.0, size.1), &text);
    }
    // The rest of the smallest one, by its keys.
    let size = (40, 10);
    let (page, mut view) = (machine_page(size, ModelDrift::NoModel), PageView::default());
    view.settle(&page, draw::rows_seen(size.1));
    view.press(Key::End, &page, draw::rows_seen(size.1));
    compare("machine-40x10-end", &drawn(&page, &mut view, size, true).0);
}

#[test]
fn other_pages() {
    let mut view = PageView::default();
    let size = (80, 18);
    let page = machine_page(size, ModelDrift::NoModel);
    view.press(Key::Char('?'), &page, 10);
    compare("help-80x18", &drawn(&page::of_help(), &mut view, size, true).0);
    view.press(Key::Char('q'), &page, 10);
    view.settle(&page, 10);
    view.press(Key::Char('l'), &page, 10);
    let mut lines = LogLines::default();
    lines.take((1..=40).map(|number| format!("line {number} {HOSTILE}")).collect());
    let log = page::of_log(&"box".parse().unwrap(), &lines);
    compare("log-60x8", &drawn(&log, &mut view, (60, 8), true).0);
    let mut unseen = look();
    unseen.status = Ok(nothing_told());
    unseen.guests_unseen = Some("virsh list could not be run".to_owned());
    unseen.to_confirm = None;
    for (name, look, looking) in [
        ("first-60x8", None, Some(Duration::from_millis(20))),
        ("slow-60x8", Some(&unseen), Some(Duration::from_secs(75))),
    ] {
        let drift = ModelDrift::Comparing;
        let seen = Observations { look, age: 81 * SECOND, looking, drift, now: NOW + 80_000 };
        let page = page::of_machine(&seen, draw::columns_seen(60));
        compare(name, &drawn(&page, &mut PageView::default(), (60, 8), true).0);
    }
}

#[test]
fn runs_are_told_also_where_guests_cannot_be_seen_and_guests_where_runs_cannot() {
    let text = |look: &MachineLook| {
        let (age, drift) = (3 * SECOND, ModelDrift::NoModel);
        let seen = Observations { look: Some(look), age, looking: None, drift, now: NOW };
        let rows = page::of_machine(&seen, 200).rows;
        rows.iter().map(|row| format!("{}\n", row.text)).collect::<String>()
    };
    let mut unseen = look();
    if let Ok(status) = &mut unseen.status {
        status.guests.clear();
    }
    unseen.guests_unseen = Some("box is damaged".to_owned());
    let seen = text(&unseen);
    for line in [
        "Run 7 waits",
        "Without `penstock confirm` it is taken back in 40 s.",
        "How guests are is not known: box is damaged",
    ] {
        assert!(seen.contains(line), "{line}: {seen}");
    }
    assert!(!seen.contains("No guests"), "{seen}");
    let unseen = MachineLook { runs_unseen: Some("no disk".to_owned()), ..look() };
    let seen = text(&unseen);
    assert!(seen.contains("How runs stand is not known: no disk") && seen.contains("rt-2"), "{seen}");
    let late = text(&MachineLook { to_confirm: Some(2_900), ..look() });
    assert!(late.contains("It was not confirmed in time"), "{late}");
}

#[test]
fn no_terminal_is_too_small() {
    let compared = compared();
    for width in (0..50).chain([200, 1000]) {
        for height in (0..8).chain([300]) {
            let page = machine_page((width, height), ModelDrift::Compared(&compared, 5 * SECOND));
            let mut view = PageView::default();
            for key in [Key::Down, Key::End, Key::Char('l'), Key::Char('?'), Key::PageUp] {
                drawn(&page, &mut view, (width, height), true);
                view.press(key, &page, draw::rows_seen(height));
            }
        }
    }
}

#[test]
fn without_colours_the_line_of_the_cursor_still_stands_out() {
    let size = (80, 24);
    let page = machine_page(size, ModelDrift::NoModel);
    assert!(drawn(&page, &mut PageView::default(), size, true).1);
    assert!(!drawn(&page, &mut PageView::default(), size, false).1);
    let mut view = PageView::default();
    view.settle(&page, draw::rows_seen(size.1));
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw::draw(frame.buffer_mut(), &page, &view, false)).unwrap();
    let reversed = terminal.backend().buffer().content().iter();
    let reversed = reversed.filter(|cell| cell.modifier.contains(Modifier::REVERSED)).count();
    assert_eq!(reversed, 2 * usize::from(size.0), "the title and one line");
}
