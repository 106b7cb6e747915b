//! No file, however made, makes the reader panic or take long; a large honest one is read fast.

#![allow(clippy::disallowed_methods, reason = "a test reads its own folders")]

use std::{
    fmt::Write,
    sync::LazyLock,
    time::{Duration, Instant},
};

use penstock_model::{Diagnostic, Diagnostics, Parsed, Path, Source, parse};
use proptest::prelude::*;

/// Far more than any of this takes, and far less than what is not bounded would.
const LIMIT: Duration = Duration::from_secs(20);

/// Reads and shows; tells how it came out.
fn answer(bytes: &[u8]) -> Result<(), String> {
    let source = match Source::from_bytes("m.yaml", bytes) {
        Ok(source) => source,
        Err(messages) => return Err(messages.render(&Source::new("m.yaml", ""), true)),
    };
    match parse(&source) {
        Ok(Parsed { warnings, .. }) => {
            warnings.render(&source, true);
            Ok(())
        }
        Err(messages) => {
            assert!(messages.has_errors(), "refused without a reason");
            Err(messages.render(&source, false))
        }
    }
}

/// The models of the golden folders, in their order.
static EXAMPLES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut texts: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|case| std::fs::read_to_string(case.unwrap().path().join("model.yaml")).ok())
        .collect();
    texts.sort();
    texts
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = answer(&bytes);
    }

    #[test]
    fn any_text_of_the_characters_that_mean_something(text in "[\\[\\]{}:,#&*!|>'\"%@`?~ \n\t\r<a0\\-]{0,200}") {
        let _ = answer(text.as_bytes());
    }

    #[test]
    fn a_valid_file_with_changes(
        which: prop::sample::Index,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..4, "[\\[\\]{}:,#&*'\" \n0-9a-zN\u{e9}\\-]{1,3}"), 1..6),
    ) {
        let examples = &*EXAMPLES;
        let mut text: Vec<char> = examples[which.index(examples.len())].chars().collect();
        for (place, kind, new) in &changes {
            if text.is_empty() {
                break;
            }
            let at = place.index(text.len());
            match kind {
                0 => { text.remove(at); }
                1 => { text.splice(at..at, new.chars()); }
                2 => { text.truncate(at); }
                _ => { let end = (at + 7).min(text.len()); let part = text[at..end].to_vec(); text.splice(at..at, part); }
            }
        }
        let text: String = text.into_iter().collect();
        let _ = answer(text.as_bytes());
    }

    /// Messages made elsewhere may name places that the file does not have.
    #[test]
    fn any_path_is_shown(which: prop::sample::Index, path in proptest::collection::vec("(nics|guests|NET0|a|functions|[0-3]|vf|x)", 0..6)) {
        let examples = &*EXAMPLES;
        let source = Source::new("m.yaml", examples[which.index(examples.len())].as_str());
        let text = Diagnostics(vec![Diagnostic::error(Path::of(&path), "no")]).render(&source, false);
        prop_assert!(text.starts_with("error: no\n --> m.yaml") || text.contains("--> m.yaml"));
    }
}

/// As much of `unit` as a file may have.
fn full_of(unit: &str) -> String {
    unit.repeat((1 << 20) / unit.len())
}

/// `count` words that differ, each followed by `end`.
fn list(count: usize, word: &str, end: &str) -> String {
    (0..count).map(|n| format!("{word}{n}{end}")).collect()
}

/// So many addresses, each in a network of its own.
fn addresses(count: usize) -> String {
    (0..count).map(|n| format!("10.{}.{}.{}/30,", n / 16_384, n / 64 % 256, n % 64 * 4 + 1)).collect()
}

/// Cases that are about the size of the file itself.
const BY_ITS_SIZE: [&str; 5] =
    ["keys", "one line list", "duplicate keys", "aliases of text", "nested anchors"];

#[test]
fn large_hostile_files_are_answered_in_bounded_time() {
    let nics = |each: &str| {
        let mut text = String::from("nics:\n");
        for n in 0..12_000 {
            writeln!(text, "  N{n}: {each}").unwrap();
        }
        text
    };
    let many: Vec<String> = (0..18_000).map(|n| format!("  N{n}: {{}}\n")).collect();
    let unknown: Vec<String> = (0..30_000).map(|n| format!("M{n}#0")).collect();
    let waits: Vec<String> =
        (0..18_000).map(|n| format!("  g{n}: {{after: [g{}]}}\n", (n + 1) % 18_000)).collect();
    let cases = [
        ("brackets", full_of("[")),
        ("braces", full_of("{")),
        ("dashes", full_of("- ")),
        ("questions", full_of("? ")),
        ("colons", full_of(": ")),
        ("anchors", full_of("&a ")),
        ("quote", format!("\"{}", full_of("a"))),
        ("one word", full_of("a")),
        ("words", full_of("a ")),
        ("lines of words", full_of("a\n")),
        ("comment", full_of("#")),
        ("lines", full_of("\n")),
        ("spaces", full_of(" ")),
        ("keys", full_of("a: \n")),
        ("block", format!("a: |\n{}", full_of(" x\n"))),
        ("one line list", format!("nics: [{}]", full_of("a,"))),
        ("duplicate keys", format!("nics: {{{}}}", full_of("a: 1,"))),
        ("deep block", (0..1400).map(|n| format!("{}a:\n", " ".repeat(n % 1400))).collect()),
        (
            "one function",
            format!("nics: {{A: }}\nguests: {{g: {{functions: [{}]}}}}", &full_of("A,")[..160_000]),
        ),
        ("vfs of many nics", nics("{match: {mac: 0c:c4:7a:9a:61:ea}, vfs: 16384}")),
        ("wrong nics", nics("{vfs: x}")),
        (
            "unknown nics",
            format!("nics:\n{}guests: {{g: {{functions: [{}]}}}}", many.concat(), unknown.join(",")),
        ),
        ("a long cycle", format!("nics: {{A: }}\nguests:\n{}", waits.concat())),
        (
            "cpu lists",
            format!(
                "nics: {{A: }}\nguests:\n{}",
                (0..20_000).map(|n| format!("  g{n}: {{pin: 0-65535}}\n")).collect::<String>()
            ),
        ),
        (
            "files for many guests",
            format!(
                "nics: {{A: }}\nguests:\n{}",
                (0..8_000)
                    .map(|n| format!("  g{n}: {{generate: [{{template: json, to: x}}]}}\n"))
                    .collect::<String>()
            ),
        ),
        ("best effort", format!("nics: {{A: {{best_effort: [{}]}}}}", &full_of("link_stat,")[..900_000])),
        ("wrong expectations", format!("nics: {{A: }}\nexpect: [{}]", &full_of("pf-fp >= 1,")[..900_000])),
        (
            "long expectations",
            format!("nics: {{A: }}\nexpect: [{}]", format!("{} >= 1,", "x".repeat(380)).repeat(2_500)),
        ),
        (
            "expectations of many NICs",
            format!("nics:\n{}expect: [{}p]", many.concat(), "pf-pf in gg >= 2 x bridge,".repeat(25_000)),
        ),
        (
            "storage of many guests",
            format!(
                "nics: {{A: }}\nguests:\n{}measure: {{storage: [{}]}}",
                (0..10_000).map(|n| format!("  g{n}: {{}}\n")).collect::<String>(),
                (0..15_000).map(|n| format!("{{guest: g{n}, path: /dev/x}},")).collect::<String>()
            ),
        ),
        (
            "NICs of one VM",
            format!("guests: {{g: {{kind: vm, nics: {{{}}}}}}}", list(20_000, "n", ": {vfs: 255},")),
        ),
        (
            "NICs of many VMs",
            format!(
                "x: 1\nguests:\n{}",
                (0..2_400)
                    .map(|n| format!("  g{n}: {{kind: vm, nics: {{{}}}}}\n", list(8, "n", ": {vfs: 7},")))
                    .collect::<String>()
            ),
        ),
        (
            "best effort of many functions",
            format!(
                "nics: {{A: {{best_effort: [{}]}}}}\nguests: {{g: {{functions: [{}]}}}}",
                list(30_000, "w", ","),
                "A#0,".repeat(30_000)
            ),
        ),
        (
            "best effort and required",
            format!(
                "nics: {{A: }}\nguests: {{g: {{functions: [{{vf: A#0, best_effort: [{}], required: [{}]}}]}}}}",
                list(40_000, "w", ","),
                list(40_000, "v", ",")
            ),
        ),
        (
            "addresses and gateways",
            format!(
                "nics: {{A: }}\nguests: {{g: {{functions: [{{vf: A#0, address: [{}], gateway: [{}]}}]}}}}",
                addresses(30_000),
                "10.0.0.1,".repeat(30_000)
            ),
        ),
        (
            "addresses and routes",
            format!(
                "x: 1\nnics: {{A: }}\nguests: {{g: {{functions: [{{vf: A#0, address: [{}], routes: [{}]}}]}}}}",
                addresses(14_000),
                (0..14_000)
                    .map(|n| format!("{{to: 20.{}.{}.0/24, via: 10.0.78.30}},", n / 256, n % 256))
                    .collect::<String>()
            ),
        ),
        (
            "routes that lead nowhere",
            format!(
                "nics: {{A: }}\nguests: {{g: {{functions: [{{vf: A#0, routes: [{}]}}]}}}}",
                "{metric: 1},".repeat(30_000)
            ),
        ),
        (
            "files for one guest",
            format!(
                "x: 1\nnics: {{A: }}\nguests: {{g: {{generate: [{}]}}}}",
                (0..18_000).map(|n| format!("{{template: json, to: x{n}}},")).collect::<String>()
            ),
        ),
        (
            "devices",
            format!("x: 1\nnics: {{A: }}\nguests: {{g: {{devices: [{}]}}}}", list(60_000, "/dev/x", ",")),
        ),
        (
            "NICs beside functions",
            format!(
                "nics: {{A: }}\nguests: {{g: {{functions: [{}], nics: {{{}}}}}}}",
                "A#0,".repeat(20_000),
                list(15_000, "n", ": {uplink: br0},")
            ),
        ),
        (
            "uplinks",
            format!(
                "nics: {{A: {{vfs: 9}}}}\nguests:\n  f: {{functions: [{}]}}\n{}",
                "A#0,".repeat(10_000),
                (0..6_000)
                    .map(|n| format!("  g{n}: {{kind: vm, nics: {{n: {{vfs: 1, uplink: A}}}}}}\n"))
                    .collect::<String>()
            ),
        ),
        (
            "VFs that are derived",
            format!(
                "{}guests: {{g: {{nics: {{n: {{uplink: br0}}}}}}}}",
                nics("{match: {mac: 0c:c4:7a:9a:61:ea}, vfs: 16384}")
            ),
        ),
        ("aliases of text", format!("a: &a {}\nb: [{}]", "x".repeat(500_000), "*a,".repeat(100_000))),
        (
            "nested anchors",
            format!("{}{}", (0..30).map(|n| format!("&a{n} [")).collect::<String>(), full_of("a,")),
        ),
    ];
    for (name, text) in cases {
        let text = &text[..text.len().min(1 << 20)];
        let start = Instant::now();
        let before = spent(start);
        let result = answer(text.as_bytes());
        let took = spent(start) - before;
        assert!(result.is_err(), "{name} was taken for a model");
        let shown = result.unwrap_err();
        assert!(shown.len() < 300_000, "{name}: {} bytes of messages", shown.len());
        assert!(took < LIMIT, "{name} took {took:?}");
        // Otherwise nothing of what it is about has been looked at.
        let expands = shown.contains("the file expands to more than");
        assert_eq!(expands, BY_ITS_SIZE.contains(&name), "{name}: {shown}");
        println!("{name:<20} {took:>10.1?}  {}", shown.lines().next().unwrap_or_default());
    }
}

#[test]
fn warnings_hide_no_error_however_many_they_are() {
    let with_after = |after: &str, disk: &str| {
        let text = format!(
            "nics: {{A: }}\nguests:\n  a: {{after: [{after}]}}\n  b: {{kind: vm, boot: {{disk: /b.img}}}}\n  c: {{kind: vm, boot: {{disk: {disk}}}}}\n"
        );
        answer(text.as_bytes())
    };
    let with = |disk: &str| with_after(&"b,".repeat(300), disk);
    assert_eq!(with("/c.img"), Ok(()));
    let shown = with("/b.img").unwrap_err();
    assert!(shown.contains("b and c would both write to `/b.img`"), "{shown}");
    let with_another_error = with_after(&format!("{}ghost", "b,".repeat(300)), "/b.img").unwrap_err();
    assert!(with_another_error.contains("b and c would both write to `/b.img`"), "{with_another_error}");
}

#[test]
fn ten_megabytes_are_refused_at_once() {
    let start = Instant::now();
    let before = spent(start);
    let text = "# padding\n".repeat(1 << 20);
    let shown = answer(text.as_bytes()).unwrap_err();
    assert!(shown.contains("the file has 10485760 bytes, and a model has at most 1048576"), "{shown}");
    let shown = parse(&Source::new("m.yaml", text)).unwrap_err().to_string();
    assert!(shown.contains("10485760 bytes"), "{shown}");
    assert!(spent(start) - before < Duration::from_secs(2));
}

/// 2 NICs with 255 VFs each, 64 guests that own all of them with every attribute.
fn large() -> String {
    let mut text = String::from(
        "machine: large\nnics:\n  NET0: {match: {mac: 0c:c4:7a:9a:61:ea}, vfs: 255, defaults: {spoofchk: on}}\n  \
         NET1: {match: {mac: 0c:c4:7a:9a:61:eb}, vfs: 255}\nguests:\n",
    );
    for guest in 0..64 {
        write!(text, "  g{guest}:\n    cpus: 1\n    memory: 64MiB\n").unwrap();
        if guest > 0 {
            writeln!(text, "    after: [g{}]", guest - 1).unwrap();
        }
        text.push_str("    functions:\n");
        for vf in (guest..510).step_by(64) {
            let (nic, index) = (vf / 255, vf % 255);
            writeln!(
                text,
                "      - {{vf: NET{nic}#{index}, mac: 02:00:00:00:{nic:02x}:{index:02x}, vlan: {}, qos: 3, vlan_proto: 802.1Q, \
                 trust: off, min_tx_rate: 10, max_tx_rate: 100, link_state: auto, mtu: 1500, address: 10.{nic}.{index}.1/24}}",
                vf % 4094 + 1
            )
            .unwrap();
        }
    }
    text
}

/// Time that this thread has had a CPU; where the kernel does not tell, time by the wall. A busy machine is no reason
/// for a test to fail.
fn spent(since: Instant) -> Duration {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .map_or_else(|| since.elapsed(), Duration::from_nanos)
}

#[test]
fn a_large_model_is_read_fast() {
    const RUNS: u32 = 20;
    let source = Source::new("large.yaml", large());
    let since = Instant::now();
    let before = spent(since);
    for _ in 0..RUNS {
        let model =
            parse(&source).unwrap_or_else(|messages| panic!("{}", messages.render(&source, false))).model;
        let functions: usize = model.guests.values().map(|guest| guest.functions.len()).sum();
        assert_eq!(functions, 510);
    }
    let each = (spent(since) - before) / RUNS;
    println!("{} bytes in {each:?}", source.text.len());
    let limit = if cfg!(debug_assertions) { 500 } else { 20 };
    assert!(each < Duration::from_millis(limit), "{each:?}");
}
