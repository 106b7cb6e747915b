//! The plugin as a process of its own, as a runtime starts it: this very program, which is the plugin where [`ROOT`] is set.

use std::{
    env,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::getpid,
};
use penstock_cni::{Plugin, journal::Step};
use penstock_host::Root;
use penstock_testkit::namespace::Namespace;
use serde_json::Value;

/// Where the plugin finds the tree that stands for `/`.
pub const ROOT: &str = "PENSTOCK_CNI_TEST_ROOT";
/// The step at which it is to die, by its name in the journal, or what else a test has it die of.
pub const DIES: &str = "PENSTOCK_CNI_TEST_DIES";

/// How a call ended.
#[derive(Debug)]
pub struct Ended {
    /// Whether it ended with 0.
    pub holds: bool,
    /// What it wrote; null for nothing.
    pub document: Value,
}

/// A step's name in the journal.
pub fn name_of(step: Step) -> String {
    serde_json::to_value(step).unwrap().as_str().unwrap().to_owned()
}

/// Dies here and now, where the test wants it to die of this.
pub fn die_of(what: &str) {
    if env::var(DIES).is_ok_and(|at| at == what) {
        kill(getpid(), Signal::SIGKILL).unwrap();
    }
}

/// Answers one call as this plugin, on the machine below `root`.
pub fn be_the_plugin(root: PathBuf, plugin: Plugin) -> ExitCode {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).unwrap();
    let plugin = Plugin { root: Root::at(root), on_step: |step| die_of(&name_of(step)), ..plugin };
    let (document, code) = match plugin.run(|name| env::var(name).ok(), &input) {
        Ok(document) => (document, 0),
        Err(error) => (Some(error), 1),
    };
    if let Some(document) = document {
        println!("{document}");
    }
    ExitCode::from(code)
}

/// Calls the plugin on the machine that is in the namespace `host` and in the tree `root`. `dies`: what it is to die of, and must.
pub fn call(
    (host, root): (&Namespace, &Path),
    verb: &str,
    container: &str,
    netns: Option<&str>,
    configuration: &Value,
    dies: Option<&str>,
) -> Ended {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", host.id)).arg(env::current_exe().unwrap());
    command.env(ROOT, root).env("CNI_COMMAND", verb).env("CNI_CONTAINERID", container);
    command.env("CNI_IFNAME", "net1").env("CNI_PATH", root.join("bin")).env_remove("PENSTOCK_PATH");
    if let Some(netns) = netns {
        command.env("CNI_NETNS", netns);
    }
    if let Some(what) = dies {
        command.env(DIES, what);
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(configuration.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(dies.is_some(), output.status.code().is_none(), "{verb} {dies:?}: {errors}");
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Ended { holds: output.status.success(), document }
}

/// The file of a namespace.
pub fn netns(namespace: &Namespace) -> String {
    format!("/proc/{}/ns/net", namespace.id)
}

/// A configuration with more keys, or others.
pub fn with(mut configuration: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        configuration[key] = value.clone();
    }
    configuration
}

/// What follows a word in a line of `ip -o link`.
pub fn after<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.split_whitespace().skip_while(|of| *of != word).nth(1)
}
