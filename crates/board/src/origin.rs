//! What a board was booted from: a saved board may only stand in for one that would be booted from the very same.
//!
//! Nobody keeps a list of what that is. It is the command that starts QEMU, whole: program, environment and every argument, and
//! with them every `fw_cfg` word, the kernel's command line and each device. Beside it stand the contents of what that command only
//! names: the image's files, what systemd is started with, QEMU itself, the processor behind KVM, and the embedded switches, which are processes of their own.
//!
//! Left out is what differs from run to run of one board, and only that ([`PerRun`]): QEMU is asked to be put together with
//! [`PerRun::LEFT_OUT`] in its place. The sockets, logs and keys of a run are named relative to its directory, so that their names
//! are the same in each; the keys are saved with the board, since its memory holds them.

use std::ffi::OsStr;

use penstock_host::{Command, files};
use penstock_model::digest::sha256;
use serde_json::{Value, json};

use crate::{
    accelerator::{self, Accelerator},
    machine::{PerRun, Run},
    switch::Switch,
};

/// Counts changes of what is saved, and of how.
const VERSION: u32 = 3;

/// What a board was booted from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    text: String,
}

impl Origin {
    /// What this run boots from.
    pub fn of(run: &Run<'_>) -> Origin {
        Origin::started_by(&run.command(PerRun::LEFT_OUT), run)
    }

    /// What `run` boots from when `qemu` is what starts its QEMU.
    fn started_by(qemu: &Command, run: &Run<'_>) -> Origin {
        let behind = match run.accelerator {
            Accelerator::Kvm => accelerator::host(),
            // The processor that it emulates depends on its own version alone.
            Accelerator::Tcg => String::new(),
        };
        let program = match run.switch.filter(|_| !run.design.switches.is_empty()) {
            // What it offers its guests is negotiated at their start, and saved with them.
            Some(command) => {
                let file = format!("{:?}", files::stamp(command.program()));
                json!({"command": words(command), "file": file})
            }
            None => Value::Null,
        };
        let switches: Vec<Value> = run.design.switches.iter().map(Switch::configuration).collect();
        let start = run.lasting.start_files(run.design.vms).map(sha256);
        let all = json!({
            "version": VERSION,
            "qemu": words(qemu),
            "qemu_build": run.emulator.build(),
            "image": run.image.contents(),
            "start": start,
            "host": behind,
            "switches": switches,
            "switch_program": program,
        });
        Origin { text: format!("{all:#}\n") }
    }

    /// All of it as JSON, which is written beside the saved state: for people, and because a digest can be renamed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name under which a board of this origin is saved.
    pub fn key(&self) -> String {
        sha256(&self.text)[..32].to_owned()
    }
}

/// All that a command is.
fn words(command: &Command) -> Value {
    // Two words are the same here only if they are the same, also when they are no text.
    let word =
        |word: &OsStr| word.to_str().map_or_else(|| json!(word.as_encoded_bytes()), |text| json!(text));
    let environment: Vec<[Value; 2]> =
        command.environment().iter().map(|(name, value)| [word(name), word(value)]).collect();
    let arguments: Vec<Value> = command.arguments().iter().map(|argument| word(argument)).collect();
    json!({"program": word(command.program()), "environment": environment, "arguments": arguments})
}

#[cfg(test)]
mod tests;
