use penstock_measure::{
    matrix::{self, Options},
    schedule::Duration,
};
use penstock_model::{
    Model, Source,
    measurement::{Estimate, PathKind, StopReason},
};

use super::*;

/// Two containers with a VF of each of two NICs: every kind of path.
fn model() -> Model {
    let text = "nics: {NET0: {vfs: 2, loopback: on}, NET1: {vfs: 2, loopback: on}}\n\
                guests: {a: {functions: [NET0#0, NET1#0]}, b: {functions: [NET0#1, NET1#1]}}\n\
                board: {cables: [[NET0, NET1]]}\n";
    penstock_model::parse(&Source::new("m.yaml", text)).unwrap().model
}

fn live(emulated: bool) -> (Matrix, Live) {
    let matrix = matrix::network(&model(), &Options::quick());
    let live = Live::new(&matrix, &Rules::default(), emulated);
    (matrix, live)
}

fn canvas(width: usize) -> Canvas {
    Canvas { width, height: 24 }
}

fn drawn(live: &Live, width: usize) -> Vec<String> {
    live.picture(canvas(width)).iter().map(ToString::to_string).collect()
}

fn sampling(cell: &str, at: f64) -> Event {
    Event::Sampling { cell: cell.to_owned(), sample: 3, round: 1, at, left: Some(90.0) }
}

fn sampled(cell: &str, path: PathKind, median: f64) -> Event {
    Event::Sampled(CellSample {
        cell: cell.to_owned(),
        path: Some(path),
        metric: Metric::Throughput,
        value: Some(median),
        why: None,
        median: Some(median),
        interval: Estimate::new(median, median * 0.97, median * 1.02, 0.95),
        samples: 2,
    })
}

fn cell(matrix: &Matrix, path: PathKind) -> String {
    let of = |cell: &&penstock_measure::matrix::Planned| {
        !cell.null
            && cell.id.contains("tcp stream")
            && cell.id.contains(&path.to_string())
            && cell.id.contains("16384B")
    };
    matrix.cells.iter().find(of).unwrap_or_else(|| panic!("{path}")).id.clone()
}

/// All paths measured once, the bridge at 2 Gbit/s, the one over the cable at 0.5 Gbit/s.
fn in_the_middle(emulated: bool) -> Live {
    let (matrix, mut live) = live(emulated);
    let cells = matrix.cells.len();
    live.tell(&Event::Prepared {
        cells,
        missing: 1,
        left_out: 0,
        duration: Some(Duration { least: 60.0, most: 120.0 }),
    });
    for (path, median) in [
        (PathKind::VfVfAcross, 1e9),
        (PathKind::VfVfInside, 1.5e9),
        (PathKind::BridgeAcross, 0.5e9),
        (PathKind::Bridge, 2e9),
    ] {
        let id = cell(&matrix, path);
        live.tell(&sampling(&id, 30.0));
        live.tell(&sampled(&id, path, median));
    }
    live
}

#[test]
fn a_picture_shows_what_came_out_against_the_bridge() {
    let lines = drawn(&in_the_middle(true), 140);
    let text = lines.join("\n");
    assert!(lines[0].starts_with("sample 3 of 7 to 31  netperf tcp stream bridge a>b 16384B"), "{text}");
    assert!(lines[1].contains("25%  30 s so far, about 1 min 30 s left"), "{text}");
    assert!(lines[2].contains("4 samples, 1 missing"), "{text}");
    let row =
        |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(lines[3].contains("udp stream 16KiB") && lines[3].contains("udp rr 128B"), "{text}");
    assert!(row("vf-vf inside").contains("1.50Gbit/s* ±3.00% 0.75x"), "{text}");
    assert!(row("vf-vf across").contains("1.00Gbit/s* ±3.00% 2.00x"), "{text}");
    assert!(text.contains("only ratios mean anything"), "{text}");
    assert!(!text.contains("\x1b"), "{text}");
}

#[test]
fn what_was_measured_on_hardware_is_not_marked() {
    let text = drawn(&in_the_middle(false), 140).join("\n");
    assert!(!text.contains('*') && !text.contains("emulated"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal_and_none_too_many() {
    for emulated in [false, true] {
        let live = in_the_middle(emulated);
        for width in 1..160 {
            for line in drawn(&live, width) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
        for height in 1..20 {
            let lines = live.picture(Canvas { width: 100, height });
            assert!(lines.len() <= height, "{height}: {lines:?}");
        }
    }
}

#[test]
fn a_narrow_terminal_keeps_the_ratio() {
    let lines = drawn(&in_the_middle(true), 60);
    let inside = lines.iter().find(|line| line.starts_with("vf-vf inside")).unwrap();
    assert!(inside.contains("0.75x") && !inside.contains("1.50G"), "{inside}");
    let lines = drawn(&in_the_middle(true), 45);
    assert!(lines[3].starts_with("(and ") && lines[3].contains("more)"), "{lines:?}");
}

#[test]
fn colour_is_only_added() {
    let lines = in_the_middle(true).picture(canvas(100));
    let coloured: Vec<String> = lines.iter().map(|line| line.shown(true)).collect();
    assert!(coloured[0].starts_with("\x1b[1m") && coloured[0].ends_with("\x1b[0m"));
    for (coloured, plain) in coloured.iter().zip(&lines) {
        assert_eq!(penstock_model::text::printable(coloured), plain.to_string());
    }
}

#[test]
fn plain_lines_say_how_far_it_is_and_when_a_block_is_over() {
    let (matrix, mut live) = live(true);
    assert_eq!(live.line(), "Making ready");
    let cells = matrix.cells.len();
    let begun = Event::Prepared {
        cells,
        missing: 0,
        left_out: 0,
        duration: Some(Duration { least: 60.0, most: 3700.0 }),
    };
    assert_eq!(
        live.tell(&begun).unwrap(),
        format!("{cells} cells are measured: 1 min 00 s to 1 h 01 min in all")
    );
    let block: Vec<usize> = matrix.blocks().remove(0);
    let id = &matrix.cells[block[0]].id;
    assert_eq!(live.tell(&sampling(id, 4.0)), None);
    assert!(
        live.line().ends_with(&format!("4 s so far, about 1 min 30 s left: {id} (sample 3)")),
        "{}",
        live.line()
    );
    for at in &block {
        live.tell(&sampled(&matrix.cells[*at].id, PathKind::PfPf, 1e9));
    }
    let told: Vec<Option<String>> = block
        .iter()
        .map(|at| {
            live.tell(&Event::Stopped { cell: matrix.cells[*at].id.clone(), why: StopReason::TightEnough })
        })
        .collect();
    let (last, earlier) = told.split_last().unwrap();
    assert!(earlier.iter().all(Option::is_none), "{told:?}");
    assert_eq!(last.as_deref(), Some("udp stream 16KiB: tight enough"));
    assert!(live.line().starts_with(&format!("{cells} cells, {} done", block.len())), "{}", live.line());
}

#[test]
fn what_there_is_no_time_for_is_not_missing() {
    let (matrix, mut live) = live(true);
    let prepared = |left_out, least| {
        let duration = Some(Duration { least, most: 29.0 });
        Event::Prepared { cells: 3, missing: 1, left_out, duration }
    };
    let line = "3 cells are measured, 1 is not, 6 are left out for want of time: 29 s in all";
    assert_eq!(live.tell(&prepared(6, 29.0)).as_deref(), Some(line));
    assert_eq!(live.tell(&prepared(6, 29.0)), None, "it was said");
    live.tell(&sampling(&matrix.cells[0].id, 4.0));
    assert!(live.line().starts_with("3 cells, 0 samples, 1 missing, 6 not reached,"), "{}", live.line());
    assert!(live.tell(&prepared(5, 20.0)).is_some(), "something else");
}

#[test]
fn what_there_is_no_time_for_is_not_done() {
    let (matrix, mut live) = live(true);
    let block: Vec<usize> = matrix.blocks().remove(0);
    let told = block.iter().filter_map(|at| {
        live.tell(&Event::Stopped { cell: matrix.cells[*at].id.clone(), why: StopReason::TimeUp })
    });
    assert_eq!(told.collect::<Vec<_>>(), ["udp stream 16KiB: left out, there is no time for it"]);
    live.tell(&sampling(&matrix.cells[block[0]].id, 4.0));
    assert!(!live.line().contains("done"), "{}", live.line());
}

#[test]
fn a_value_that_is_missing_is_said_and_never_0() {
    let (matrix, mut live) = live(false);
    let id = cell(&matrix, PathKind::Bridge);
    live.tell(&sampling(&id, 1.0));
    live.tell(&Event::Sampled(CellSample {
        cell: id,
        path: Some(PathKind::Bridge),
        metric: Metric::Throughput,
        value: None,
        why: Some("netperf is missing".into()),
        median: None,
        interval: None,
        samples: 0,
    }));
    let text = drawn(&live, 120).join("\n");
    assert!(text.contains("1 samples, 1 without a value") && !text.contains("0.00"), "{text}");
}
