//! Every program that the sources call is a row of `scripts/programs`, from which the install steps, the messages and the tests know where
//! a program comes from. The sources are parsed, so that nobody has to remember.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use penstock_host::packages;
use quote::ToTokens;
use sources::{
    all_rust_files,
    shell::{BUILTINS, commands},
};
use syn::{
    Expr, ExprCall, ExprMethodCall, ItemUse, Lit, UseTree,
    spanned::Spanned,
    visit::{self, Visit},
};

/// What a call runs whose program is no literal.
#[derive(Debug)]
enum Runs {
    /// This workspace's own binary, cargo, or a script that the test itself has written.
    Own,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// What callers of this function or closure pass as its first argument: they are looked at in the same file, or in the files of
    /// the directory.
    Given(&'static str),
}
use Runs::{Given, OneOf, Own};

/// Calls whose program is no literal: the file, what stands in the place of the program, and what that is.
const VARIABLE: &[(&str, &str, Runs)] = &[
    ("crates/docs/tests/record_session.rs", "script (\"record-session\")", Own),
    ("crates/docs/tests/record_session.rs", "script (\"first-steps\")", Own),
    (
        "crates/host/src/boot.rs",
        "program",
        OneOf(&["update-grub", "grubby", "kernel-install", "proxmox-boot-tool"]),
    ),
    ("crates/testkit/src/script.rs", "& program", Own),
    ("crates/verify/src/probes.rs", "remote . program", Own),
    ("crates/kubernetes/src/change/verbs.rs", "penstock", Own),
    ("crates/kubernetes/src/host.rs", "directory . join (\"penstock-kubernetes\")", Own),
    ("crates/kubernetes/src/penstock.rs", "& self . path", Own),
    ("crates/kubernetes/src/penstock.rs", "name", Own),
    ("crates/kubernetes/tests/claims/given_up.rs", "machine . path (\"bin/penstock\")", Own),
    ("crates/kubernetes/tests/claims_in_board/image.rs", "& own", Own),
    ("crates/testkit/src/control_plane.rs", "& self . program", Own),
    ("crates/board/src/disk.rs", "program", OneOf(&["mke2fs"])),
    ("crates/board/src/emulator.rs", "& self . program", OneOf(&["qemu-system-x86_64"])),
    ("crates/board/src/origin/tests.rs", "program", Own),
    ("crates/board/src/shell.rs", "program", OneOf(&["ssh", "ssh-keygen"])),
    ("crates/cli/benches/growth/ports.rs", "program ()", Own),
    ("crates/cli/benches/growth/process.rs", "program", Own),
    ("crates/cli/benches/rehearsal.rs", "binary :: path () . expect (\"the binary was built\")", Own),
    ("crates/cli/src/boards.rs", "binary", Own),
    ("crates/cli/src/commands/embedded_switch.rs", "binary", Own),
    ("crates/cli/src/commands/guard.rs", "& program", Own),
    ("crates/cli/src/bench/remote.rs", "BINARY", Own),
    ("crates/cli/src/remote/bootstrap.rs", "& place", OneOf(&["find"])),
    ("crates/cli/src/commands/board.rs", "boards :: BINARY", Own),
    ("crates/cli/src/rehearsal.rs", "boards :: BINARY", Own),
    ("crates/cli/src/latency/remote.rs", "BINARY", Own),
    ("crates/cli/tests/ansible_in_board.rs", "program", Own),
    ("crates/cli/tests/change_in_ci.rs", "program", OneOf(&["git"])),
    ("crates/cli/tests/remote_over_ssh.rs", "sshd", OneOf(&["sshd"])),
    ("crates/cli/tests/report.rs", "program", Own),
    ("crates/cli/tests/terminal.rs", "program", Given("command")),
    ("crates/cli/tests/yaml_language_server.rs", "program", Own),
    ("crates/kubernetes/benches/claims.rs", "program", Given("run")),
    ("crates/cni/benches/attach.rs", "program", Given("run")),
    ("crates/cni/benches/attach.rs", "plugin", OneOf(&["/usr/lib/cni/host-device"])),
    // Programs of the cluster's own program, and of the disk of its nodes.
    ("crates/cluster/src/cluster.rs", "program", Own),
    ("crates/cluster/src/kept.rs", "& program", OneOf(&["sleep"])),
    ("crates/cluster/src/node.rs", "config :: KUBELET", Own),
    ("crates/cluster/src/node.rs", "config :: CTR", Own),
    ("crates/cluster/src/program.rs", "& self . file", Own),
    // The plugin that the configuration names.
    ("crates/cni/src/ipam.rs", "& program", OneOf(&[])),
    (
        "crates/exchange/tests/other_programs.rs",
        "tree . join (\"usr/bin\") . join (program)",
        OneOf(&["virsh", "xmllint"]),
    ),
    ("crates/guests/src/console.rs", "program", OneOf(&["lxc-console"])),
    ("crates/guests/src/containers/dhcp.rs", "name", OneOf(&["udhcpc", "dhcpcd", "dhclient", "busybox"])),
    ("crates/guests/src/containers/lxc.rs", "program", Given("command")),
    ("crates/guests/src/containers/rates.rs", "find (\"nsenter\") ?", OneOf(&["nsenter"])),
    ("crates/guests/src/containers/rates.rs", "name", Given("find")),
    ("crates/guests/src/containers/routes.rs", "name", OneOf(&["nsenter", "ip"])),
    ("crates/guests/src/vms/apparmor.rs", "helper", OneOf(&["/usr/lib/libvirt/virt-aa-helper"])),
    ("crates/guests/src/vms/composition.rs", "emulator", OneOf(&["qemu-system-x86_64"])),
    ("crates/guests/src/vms/place.rs", "builtin :: PROGRAM", Own),
    ("crates/guests/src/vms/virsh.rs", "self . found () ?", OneOf(&["virsh"])),
    ("crates/guests/src/incus.rs", "program", OneOf(&["incus"])),
    ("crates/guests/tests/containers/leases.rs", "client", OneOf(&["udhcpc", "dhcpcd", "dhclient"])),
    (
        "crates/guests/tests/containers/taken_back.rs",
        "words . clone () . next () . unwrap ()",
        OneOf(&["ip", "nsenter"]),
    ),
    ("crates/guests/tests/containers/taken_back.rs", "program", OneOf(&["python3", "unshare"])),
    ("crates/guests/tests/devices.rs", "program", Given("of_swap")),
    ("crates/guests/tests/taps_in_netns.rs", "program", Given("run")),
    ("crates/host/src/process.rs", "found", Given("Command::new")),
    ("crates/kubernetes/src/claim/network_plugin.rs", "& self . program", Own),
    ("crates/measure/src/latency/command.rs", "& words [0]", OneOf(&["rtla", "hwlatdetect"])),
    ("crates/measure/src/probe.rs", "program", Own),
    ("crates/measure/tests/network/mod.rs", "program", OneOf(USUAL)),
    ("crates/packages/tests/ansible.rs", "program", Own),
    ("crates/packages/tests/container.rs", "& self . program", OneOf(&["podman"])),
    ("crates/packages/tests/generated.rs", "program", OneOf(&["bash", "fish", "groff", "mandoc", "zsh"])),
    ("crates/render/tests/templates.rs", "& program", Own),
    ("crates/render/tests/templates.rs", "compiler", OneOf(&["cc", "c++"])),
    ("switch/benches/switch/peer.rs", "program", Given("at_home")),
    ("switch/benches/switch/report.rs", "program", Given("output")),
    ("switch/benches/switch/vms.rs", "tree . join (\"lib/ld-linux-x86-64.so.2\")", Own),
    ("switch/src/modelled.rs", "own", Own),
    ("crates/testkit/src/bin/side-by-side/main.rs", "executable", Own),
    ("crates/testkit/src/bin/side-by-side/reaper.rs", "reaper", Own),
    ("crates/testkit/src/bin/side-by-side/reaper.rs", "program", Own),
    ("crates/testkit/src/binary.rs", "path () . expect (\"the binary was built: `make build`\")", Own),
    ("crates/testkit/src/binary.rs", "program", Own),
    ("crates/testkit/src/needs.rs", "penstock", Own),
    ("crates/testkit/src/needs.rs", "program", OneOf(&[])),
    ("crates/testkit/src/needs.rs", "row . program", OneOf(&[])),
];

/// What `crates/measure/tests/network/mod.rs` leaves a place besides the measuring programs.
const USUAL: &[&str] = &[
    "ip", "sh", "cat", "head", "grep", "sleep", "setsid", "mount", "unshare", "nsenter", "kill", "true",
    "printf",
];

/// Literals that no machine has to have: tests ask for something that is not there, or never start it.
const NOBODYS: &[(&str, &str)] = &[
    ("crates/guests/tests/vms/inside.rs", "x"),
    ("crates/guests/tests/vms/inside.rs", "nosuch"),
    ("crates/board/src/origin/tests.rs", "/bin/penstock"),
    ("crates/board/src/forward.rs", "/a,b/it's"),
    // A process that never becomes another program.
    ("crates/host/src/device.rs", "/"),
];

/// Programs that only run others: what follows their options is a program too.
const WRAPPERS: [&str; 9] =
    ["unshare", "nsenter", "setpriv", "chroot", "timeout", "stdbuf", "env", "systemd-run", "chrt"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program that is called.
#[derive(Debug)]
struct Call {
    file: String,
    line: usize,
    program: Result<String, String>,
}

struct Calls {
    file: String,
    /// What `Command` is called here.
    names: BTreeSet<String>,
    /// Constants that are literals.
    constants: BTreeMap<String, String>,
    /// Those that are known while this is built to be something of our own.
    built: BTreeSet<String>,
    found: Vec<Call>,
    /// Every call of anything with a literal as its first argument: its name, and that.
    first: FirstArguments,
}

impl Calls {
    /// The program that an argument names; `None` for one of our own.
    fn program(&self, argument: &Expr) -> Option<Result<String, String>> {
        if let Some(text) = literal(argument) {
            return Some(Ok(text));
        }
        let text = argument.to_token_stream().to_string();
        let own = ["current_exe ()", "own_program ()"];
        if own.iter().any(|own| text.contains(own)) || text.starts_with("env !") || self.built.contains(&text)
        {
            return None;
        }
        Some(self.constants.get(&text).cloned().ok_or(text))
    }

    fn add(&mut self, line: usize, program: Result<String, String>) {
        self.found.push(Call { file: self.file.clone(), line, program });
    }

    /// Whether `expression` is a path to a function that takes a program as its first argument.
    fn takes_a_program(&self, expression: &Expr) -> bool {
        let Expr::Path(path) = expression else { return false };
        let words: Vec<String> = path.path.segments.iter().map(|part| part.ident.to_string()).collect();
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [.., of, "new"] => self.names.contains(of),
            [.., "process", "find"] | [.., "needs", "program"] => true,
            _ => false,
        }
    }
}

/// A literal, however it is turned into what is wanted.
fn literal(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        Expr::Reference(reference) => literal(&reference.expr),
        Expr::MethodCall(call) if call.args.is_empty() => literal(&call.receiver),
        _ => None,
    }
}

/// The literals of an argument list or of a list in it, in order; `None` for what is no literal.
fn words(expression: &Expr) -> Vec<Option<String>> {
    match expression {
        Expr::Array(array) => array.elems.iter().flat_map(words).collect(),
        Expr::Reference(reference) => words(&reference.expr),
        other => vec![literal(other)],
    }
}

/// The command that a chain of `.arg` and `.args` begins with, and its words.
fn chain<'a>(call: &'a ExprMethodCall, arguments: &mut Vec<Option<String>>) -> Option<&'a ExprCall> {
    let begins = match &*call.receiver {
        Expr::MethodCall(before) => chain(before, arguments),
        Expr::Call(call) => Some(call),
        _ => None,
    };
    if call.method == "arg" || call.method == "args" {
        arguments.extend(call.args.iter().flat_map(words));
    }
    begins
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        fn renamed(tree: &UseTree, names: &mut BTreeSet<String>) {
            match tree {
                UseTree::Path(path) => renamed(&path.tree, names),
                UseTree::Group(group) => group.items.iter().for_each(|tree| renamed(tree, names)),
                UseTree::Rename(rename) if rename.ident == "Command" => {
                    names.insert(rename.rename.to_string());
                }
                _ => {}
            }
        }
        renamed(&item.tree, &mut self.names);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if self.takes_a_program(&call.func)
            && let Some(argument) = call.args.first()
            && let Some(program) = self.program(argument)
        {
            self.add(call.span().start().line, program);
        }
        if let Expr::Path(path) = &*call.func
            && let (Some(name), Some(argument)) = (path.path.segments.last(), call.args.first())
        {
            self.first.push((name.ident.to_string(), literal(argument)));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let mut arguments = Vec::new();
        let begins = chain(call, &mut arguments).filter(|begin| self.takes_a_program(&begin.func));
        let program = begins.and_then(|begin| literal(begin.args.first()?));
        let line = call.span().start().line;
        if let Some(program) = program {
            let mut arguments = arguments.into_iter();
            if WRAPPERS.contains(&program.as_str())
                && let Some(Some(wrapped)) = arguments.find(|word| {
                    word.as_deref().is_none_or(|word| !word.starts_with(['-', '/']) && !word.contains('='))
                })
            {
                self.add(line, Ok(wrapped));
            }
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        let value = item.expr.to_token_stream().to_string();
        if let Some(text) = literal(&item.expr) {
            self.constants.insert(item.ident.to_string(), text);
        } else if value.starts_with("env !") {
            self.built.insert(item.ident.to_string());
        }
        visit::visit_item_const(self, item);
    }
}

/// Calls by name, each with its first argument where that is a literal.
type FirstArguments = Vec<(String, Option<String>)>;

/// All calls, and by file what every function is given first.
fn calls() -> (Vec<Call>, BTreeMap<String, FirstArguments>) {
    let mut files = all_rust_files();
    files.sort();
    let (mut found, mut first) = (Vec::new(), BTreeMap::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.strip_prefix(workspace()).unwrap().display().to_string();
        let mut calls = Calls {
            file: name.clone(),
            names: ["Command".to_owned()].into(),
            constants: BTreeMap::new(),
            built: BTreeSet::new(),
            found: Vec::new(),
            first: Vec::new(),
        };
        // Names and constants may stand behind what uses them.
        for item in &syntax.items {
            match item {
                syn::Item::Use(item) => calls.visit_item_use(item),
                syn::Item::Const(item) => calls.visit_item_const(item),
                _ => {}
            }
        }
        (calls.found, calls.first) = (Vec::new(), Vec::new());
        calls.visit_file(&syntax);
        found.extend(calls.found);
        first.insert(name, calls.first);
    }
    (found, first)
}

#[test]
fn every_program_that_the_sources_call_is_listed() {
    let (calls, first) = calls();
    assert!(calls.len() > 100, "only {} calls were found", calls.len());
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    let mut used = BTreeSet::new();
    let mut listed = |file: &str, line: usize, program: &str| {
        let nobodys = NOBODYS.contains(&(file, program));
        // `/bin/sh` and `sh` are the same one.
        let name = program.strip_prefix("/bin/").unwrap_or(program);
        if !nobodys && packages::row(name).is_none() {
            let text = format!("{file}:{line}: {program:?} is called and is not in scripts/programs");
            wrong.insert(program.to_owned(), text);
        }
    };
    let mut unknown = Vec::new();
    for Call { file, line, program } in &calls {
        let text = match program {
            Ok(program) => {
                listed(file, *line, program);
                continue;
            }
            Err(text) => text,
        };
        let Some(at) = VARIABLE.iter().position(|(of, what, _)| of == file && what == text) else {
            unknown
                .push(format!("{file}:{line}: which program is `{text}`? Say so in VARIABLE of this test"));
            continue;
        };
        used.insert(at);
        match VARIABLE[at].2 {
            Own | Given("Command::new") => {}
            OneOf(programs) => programs.iter().for_each(|program| listed(file, *line, program)),
            Given(function) => {
                let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory);
                let near = first.iter().filter(|(other, _)| other.starts_with(directory));
                let given = near.flat_map(|(other, calls)| calls.iter().map(move |call| (other, call)));
                for (other, (_, program)) in given.filter(|(_, (name, _))| name == function) {
                    if let Some(program) = program {
                        listed(other, 0, program);
                    }
                }
            }
        }
    }
    for (at, (file, text, _)) in VARIABLE.iter().enumerate() {
        if !used.contains(&at) {
            unknown.push(format!("{file} has no call of `{text}` any more: take it out of VARIABLE"));
        }
    }
    let wrong: Vec<String> = wrong.into_values().chain(unknown).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The scripts that run on this machine.
fn scripts() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in ["scripts", ".ci", "fuzz", "crates/testkit/tree"] {
        for entry in fs::read_dir(workspace().join(directory)).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            if text.starts_with("#!") || entry.path().extension().is_some_and(|extension| extension == "sh") {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn every_program_that_the_scripts_call_is_listed() {
    let scripts = scripts();
    assert!(scripts.len() >= 6, "{scripts:?}");
    let mut wrong = Vec::new();
    let mut all = BTreeSet::new();
    for path in scripts {
        let text = fs::read_to_string(&path).unwrap();
        // Its own functions.
        let own: BTreeSet<&str> = text.lines().filter_map(|line| line.trim().strip_suffix("() {")).collect();
        for command in commands(&text) {
            if !own.contains(command.as_str())
                && !BUILTINS.contains(&command.as_str())
                && packages::row(&command).is_none()
            {
                wrong.push(format!("{}: {command} is not in scripts/programs", path.display()));
            }
            all.insert(command);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for known in ["unsquashfs", "pivot_root", "dpkg-deb", "cargo", "sed", "id"] {
        assert!(all.contains(known), "{known} is called by a script: {all:?}");
    }
}
