//! Completions for shells, as `penstock completions SHELL` prints them too.

use clap::Command;
use clap_complete::{Generator, Shell, generate};

/// The shells that packages bring completions for.
pub const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// The file's name that clap gives the completions, and their text.
pub fn completions(mut command: Command, shell: Shell) -> (String, Vec<u8>) {
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    generate(shell, &mut command, &name, &mut text);
    (shell.file_name(&name), text)
}
