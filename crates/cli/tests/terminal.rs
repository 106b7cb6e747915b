//! What reaches a terminal, and what reaches a pipe: colours where they are wanted, lines as wide as they may be, nothing from
//! outside that steers a terminal, and silence where that was asked for.
#![allow(clippy::disallowed_methods)]

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Command, Output},
};

use penstock_model::text::{columns, is_hidden};
use penstock_testkit::sysfs;

const PENSTOCK: &str = env!("CARGO_BIN_EXE_penstock");

/// Variables and their values.
type Environment<'a> = &'a [(&'a str, &'a str)];

/// The binary, with nothing in its environment that speaks of terminals but `environment`.
fn command(program: &str, directory: &Path, environment: Environment<'_>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env("XDG_CACHE_HOME", directory.join("cache"));
    for name in ["TERM", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "CI"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command
}

fn piped<A: AsRef<OsStr>>(directory: &Path, environment: Environment<'_>, arguments: &[A]) -> Output {
    command(PENSTOCK, directory, environment).args(arguments).output().unwrap()
}

/// All that the binary writes to a terminal of so many columns that it is on.
fn on_a_terminal(directory: &Path, environment: Environment<'_>, columns: usize, arguments: &str) -> String {
    let line = format!("stty cols {columns} rows 50; exec {PENSTOCK} {arguments}");
    // script(1) of util-linux: a pseudo-terminal for the command, whose output comes here.
    let output = command("script", directory, environment)
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .output()
        .expect("util-linux is there");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn data(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn empty() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn colours_come_where_the_conventions_have_them() {
    let directory = empty();
    let at = directory.path();
    let term = ("TERM", "xterm");
    // The environment, an option, whether a pipe gets colours, whether a terminal does.
    let cases: [(Environment<'_>, &str, bool, bool); 13] = [
        (&[term], "", false, true),
        (&[], "", false, false),
        (&[("TERM", "dumb")], "", false, false),
        (&[("TERM", "dumb"), ("CLICOLOR", "1"), ("CI", "true")], "", false, false),
        (&[("TERM", "dumb")], "--color always", true, true),
        (&[term, ("NO_COLOR", "1")], "", false, false),
        (&[term, ("NO_COLOR", "")], "", false, true),
        (&[term, ("NO_COLOR", "1")], "--color=always", true, true),
        (&[term, ("CLICOLOR", "0")], "", false, false),
        (&[term, ("CLICOLOR_FORCE", "1")], "", true, true),
        (&[term, ("CLICOLOR_FORCE", "1")], "--color never", false, false),
        (&[term], "--color never", false, false),
        (&[term, ("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], "--color auto", false, false),
    ];
    // Our own messages, clap's, and clap's help.
    for verb in ["check missing.yaml", "check --no-such-option", "check --help"] {
        for (environment, option, in_pipe, on_terminal) in cases {
            let line = format!("{option} {verb}");
            let words: Vec<&str> = line.split_whitespace().collect();
            let output = piped(at, environment, &words);
            let colored = |text: &str| text.contains("\u{1b}[");
            assert_eq!(colored(&(errors(&output) + &data(&output))), in_pipe, "{environment:?} {line}");
            let shown = on_a_terminal(at, environment, 80, &line);
            assert_eq!(colored(&shown), on_terminal, "{environment:?} {line}: {shown:?}");
        }
    }
    let output = piped(at, &[], &["scan", "--color", "blue"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("auto, always, never"), "{}", errors(&output));
}

/// The sequences that only change colours are ours where there are some.
fn assert_tame(text: &str, what: &str) {
    let mut rest = text.to_owned();
    while let Some(at) = rest.find("\u{1b}[") {
        let end = rest[at + 2..].find(|c: char| !matches!(c, '0'..='9' | ';')).map(|end| at + 2 + end);
        assert_eq!(end.and_then(|end| rest[end..].chars().next()), Some('m'), "{what}: {text:?}");
        rest.replace_range(at..=end.unwrap(), "");
    }
    assert!(!rest.contains(|c| !matches!(c, '\n' | '\r' | '\t') && is_hidden(c)), "{what}: {text:?}");
}

const HOSTILE: &str = "x\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}[8m\u{9b}31m\u{202e}\u{7f}\nerror: fake";

#[test]
fn nothing_from_outside_steers_a_terminal() {
    let directory = empty();
    let at = directory.path();
    let missing = OsStr::from_bytes(HOSTILE.as_bytes());
    let odd_bytes = OsStr::from_bytes(b"\x1b[2J\xff\x9b.yaml");
    // A model whose names and texts are hostile, a template's path among them, and the same as an inventory.
    let escaped = "x\\e]0;title\\a\\e[2J\\e[8m\\x9b31m\\u202e\\x7f\\nerror: fake";
    let model = format!(
        "machine: \"{escaped}\"\nnics: {{\"{escaped}\": {{vfs: 1}}}}\nguests: {{\"{escaped}\": {{\"{escaped}\": 1, memory: \"{escaped}\"}}}}\n"
    );
    std::fs::write(at.join("hostile.yaml"), model).unwrap();
    std::fs::write(at.join(missing).with_extension("yaml"), "nics: {NET0: {vfs: -1}}\n").unwrap();
    std::fs::write(at.join("good.yaml"), "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n")
        .unwrap();
    let inventory = format!("{{\"version\": \"{HOSTILE}\", \"{HOSTILE}\": 1}}").replace('\n', "\\n");
    std::fs::write(at.join("hostile.json"), inventory).unwrap();
    let hostile_yaml = at.join(missing).with_extension("yaml");
    let cases: [&[&OsStr]; 10] = [
        &[OsStr::new("check"), missing],
        &[OsStr::new("check"), odd_bytes],
        &[OsStr::new("check"), hostile_yaml.as_os_str()],
        &[OsStr::new("check"), OsStr::new("hostile.yaml")],
        &[OsStr::new("check"), OsStr::new("--json"), OsStr::new("hostile.yaml")],
        &[OsStr::new("plan"), OsStr::new("good.yaml"), OsStr::new("--inventory"), OsStr::new("hostile.json")],
        &[OsStr::new("scan"), OsStr::new("--root"), missing],
        &[OsStr::new("report"), missing],
        &[missing],
        &[OsStr::new("check"), OsStr::new("good.yaml"), OsStr::new("--nic"), missing],
    ];
    for arguments in cases {
        for color in ["--color=never", "--color=always"] {
            let words: Vec<&OsStr> = arguments.iter().copied().chain([OsStr::new(color)]).collect();
            let output = piped(at, &[], &words);
            let said = errors(&output);
            assert_ne!(output.status.code(), None, "{words:?}");
            assert_tame(&said, &format!("{words:?}"));
            assert_tame(&data(&output), &format!("{words:?}"));
            assert!(!said.contains("\nerror: fake"), "a newline in a name begins no message: {said}");
        }
    }
}

#[test]
fn data_is_as_wide_as_the_terminal_and_whole_in_a_pipe() {
    let directory = empty();
    let tree = sysfs::machine("x550-two-port");
    let root = tree.path().to_str().unwrap();
    let widest = |text: &str| text.lines().map(|line| columns(line.trim_end())).max().unwrap_or(0);
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let whole = data(&piped(directory.path(), &[], &["scan", "--root", root]));
    assert!(widest(&whole) > 80 && !whole.contains('…'), "{whole}");
    for width in [60_usize, 80, 100] {
        let columns = width.to_string();
        let environment = [("COLUMNS", columns.as_str())];
        let narrow = data(&piped(directory.path(), &environment, &["scan", "--root", root]));
        assert!(widest(&narrow) <= width && widest(&narrow) > width - 30, "{width}: {narrow}");
        let environment = [("TERM", "xterm")];
        let shown =
            on_a_terminal(directory.path(), &environment, width, &format!("scan --root {root} 2>/dev/null"));
        assert_eq!(words(&shown), words(&narrow), "{width}");
    }
    // A width that makes no sense is none.
    for columns in ["0", "-1", "wide", ""] {
        let environment = [("COLUMNS", columns)];
        assert_eq!(
            data(&piped(directory.path(), &environment, &["scan", "--root", root])),
            whole,
            "{columns}"
        );
    }
    // Help too: a wide terminal is used as it is.
    let help = on_a_terminal(directory.path(), &[("TERM", "dumb")], 180, "scan --help");
    assert!(widest(&help) > 110 && widest(&help) <= 180, "{help}");
}

#[test]
fn quiet_says_nothing_where_all_is_well() {
    let directory = empty();
    let at = directory.path();
    std::fs::write(at.join("good.yaml"), "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n")
        .unwrap();
    let said = |arguments: &[&str]| {
        let output = piped(at, &[], arguments);
        (output.status.code(), data(&output), errors(&output))
    };
    assert_eq!(said(&["check", "-q", "good.yaml"]), (Some(0), String::new(), String::new()));
    assert_eq!(said(&["generate", "-q", "good.yaml"]), (Some(0), String::new(), String::new()));
    let (_, data, _) = said(&["check", "-q", "--json", "good.yaml"]);
    assert!(data.starts_with('{'), "data that was asked for is printed: {data}");
    let (_, data, errors) = said(&["generate", "good.yaml"]);
    assert_eq!(data, "", "nothing was made, not even an empty line");
    assert!(errors.contains("no guest has a `generate`"), "{errors}");
    let (_, data, _) = said(&["schema", "-q"]);
    assert!(data.starts_with('{'), "a verb that is there for data prints it");
    let (status, _, errors) = said(&["check", "-q", "missing.yaml"]);
    assert_eq!(status, Some(2));
    assert!(errors.starts_with("error:"), "{errors}");
}

#[test]
fn the_short_options_that_people_try_are_there_or_lead_to_what_is() {
    let directory = empty();
    let at = directory.path();
    // Where an option is not known, that is said before the model is looked for.
    for line in [
        "rehearse -o run missing.yaml",
        "rehearse -v missing.yaml",
        "measure -o run missing.yaml",
        "generate -o files missing.yaml",
        "report -o page missing",
        "verify -v missing.yaml",
        "plan -v missing.yaml",
        "audit -v missing.yaml",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let said = errors(&piped(at, &[], &words));
        assert!(said.contains("missing") && !said.contains("unexpected argument"), "{line}: {said}");
    }
    for line in [
        "apply -n m.yaml",
        "apply --dry-run m.yaml",
        "start m.yaml -n",
        "undo --dry-run",
        "rehearse -n m.yaml",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = piped(at, &[], &words);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(errors(&output).contains("penstock plan MODEL"), "{line}: {}", errors(&output));
    }
}

#[test]
fn verbs_and_options_of_other_tools_get_a_line_on_ours() {
    let directory = tempfile::tempdir().unwrap();
    for (line, said) in [
        ("show", "penstock scan"),
        ("show m.yaml", "penstock status"),
        ("list", "penstock status"),
        ("diff m.yaml", "penstock plan MODEL"),
        ("rollback", "penstock undo"),
        ("validate m.yaml", "penstock check MODEL"),
        ("destroy m.yaml", "penstock stop MODEL"),
        ("down", "penstock stop MODEL"),
        ("up m.yaml", "penstock apply MODEL"),
        ("init", "penstock scan --as-model"),
        ("try m.yaml", "--confirm-within 60s"),
        ("m.yaml", "penstock check m.yaml"),
        ("board create m.yaml", "penstock board up MODEL"),
        ("board destroy m", "penstock board down NAME"),
        ("board ls", "penstock board list"),
        ("--quiet board exec m", "penstock board ssh NAME"),
        ("apply m.yaml --diff", "penstock plan MODEL"),
        ("apply m.yaml --yes", "--allow NAME"),
        ("apply -f m.yaml", "penstock plan model.yaml"),
        ("scan -o json", "--json"),
        ("verify m.yaml --wait 10s", "--timeout 10s"),
        ("apply m.yaml --timeout 10s", "--timeout 10s"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = piped(directory.path(), &[], &words);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let said_all = errors(&output);
        let hints: Vec<&str> = said_all.lines().filter(|line| line.contains("help: ")).collect();
        assert!(matches!(&hints[..], [hint] if hint.contains(said)), "{line}: {said_all}");
        assert!(!said_all.contains("tip: "), "{line}: {said_all}");
        // Who asked for JSON has it in the document.
        let output = piped(directory.path(), &[], &[&["--json"], &words[..]].concat());
        let document: serde_json::Value =
            penstock_testkit::json::read(&String::from_utf8(output.stdout).unwrap()).unwrap();
        let hint = document.pointer("/errors/0/hints/0").and_then(|hint| hint.as_str());
        assert!(hint.is_some_and(|hint| hint.contains(said)), "{line}: {document}");
    }
    // What no tool has gets none.
    assert!(!errors(&piped(directory.path(), &[], &["shwo"])).contains("help: "));
}

#[test]
fn errors_are_as_wide_as_the_terminal_and_whole_in_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // A machine without an IOMMU, and two VMs that want one.
    let machine = penstock_testkit::models::machine(1, 8);
    let mut machine = serde_json::to_value(machine).unwrap();
    machine["iommu_groups"] = serde_json::json!({});
    machine["cpus"]["model"] = "Intel(R) Xeon(R) D-1541".into();
    std::fs::write(at.join("machine.json"), machine.to_string()).unwrap();
    let model = "nics: {NET0: {vfs: 2}}\nguests: {one: {kind: vm, functions: [NET0#0]}, two: {kind: vm, functions: [NET0#1]}}\n";
    std::fs::write(at.join("m.yaml"), model).unwrap();
    let line = "check m.yaml --inventory machine.json";
    let piped = errors(&piped(at, &[], &line.split(' ').collect::<Vec<_>>()));
    let whole: Vec<&str> = piped.lines().collect();
    let [error, help] = &whole[..] else { panic!("{piped}") };
    // What and why, then what to do, and neither is a page.
    assert!(error.starts_with("error: not possible here: VMs one and two get"), "{piped}");
    assert!(error.contains("VFIO, which needs an IOMMU, and none is on"), "{piped}");
    assert!(help.contains("turn VT-d on in the firmware") && help.contains("then reboot"), "{piped}");
    assert!(whole.iter().all(|line| columns(line) < 200), "{piped}");
    for width in [40, 60, 80, 120] {
        let shown = on_a_terminal(at, &[("TERM", "xterm"), ("NO_COLOR", "1")], width, line);
        let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert!(lines.iter().all(|line| columns(line) <= width), "{width}: {shown}");
        assert!(shown.contains("`penstock apply --persist`"), "a command is not broken: {width}: {shown}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&shown), words(&piped), "{width}");
    }
}

#[test]
fn messages_about_a_file_are_as_wide_as_the_terminal_and_point_at_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let long =
        "nics: {NET0: {vfs: 2, address: [10.20.31.204/24, 10.20.32.204/24], match: {interface: eno1}}}\n";
    std::fs::write(at.join("m.yaml"), long).unwrap();
    let piped = errors(&piped(at, &[], &["check", "m.yaml"]));
    assert!(piped.lines().any(|line| columns(line) > 120), "{piped}");
    for width in [40, 60, 80, 200] {
        let shown = on_a_terminal(at, &[("TERM", "xterm"), ("NO_COLOR", "1")], width, "check m.yaml");
        let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert!(lines.iter().all(|line| columns(line) <= width), "{width}: {shown}");
        let mark = lines.iter().position(|line| line.ends_with("^^^^^^^^^")).expect(&shown);
        let place = lines[mark].find('^').unwrap_or_default();
        assert!(lines[mark - 1][place..].starts_with("interface"), "{width}: {shown}");
        let help = lines.iter().position(|line| line.contains("= help: ")).expect(&shown);
        let indent = " ".repeat(lines[help].find("write").unwrap_or_default());
        assert!(lines[help + 1..].iter().all(|line| line.starts_with(&indent)), "{width}: {shown}");
        assert!(shown.contains("`penstock check --here`"), "a command is not broken: {width}: {shown}");
    }
}
