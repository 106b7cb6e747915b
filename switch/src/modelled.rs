//! Tests that run in every order that the language's memory model allows (`loom`).

use std::process::Command;

const INSIDE: &str = "PENSTOCK_MODELLED";

/// Whether the test `name` of `module` (`module_path!()`) is to go on: it runs in a process of its own, which this starts and waits for where it
/// is not that. The model's stacks come with a handler of SIGBUS that would be the whole program's.
pub fn is_alone(module: &str, name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let (_, module) = module.split_once("::").unwrap();
    let name = format!("{module}::{name}");
    let output = Command::new(own).args(["--exact", &name, "--nocapture"]).env(INSIDE, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("1 passed"), "{told}");
    false
}
