//! Manual pages: one for a program, and one for each of its verbs, as git and cargo have them (`penstock-scan(1)`).

use std::io;

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

/// The section of commands that users run.
const SECTION: &str = "1";

/// A manual page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualPage {
    /// Its file's name: `penstock-scan.1`.
    pub file: String,
    /// Its text, in the macros of man(7).
    pub text: Vec<u8>,
}

/// The pages of a program and of all its verbs but the hidden ones. `date`: when the program is from, like 2026-11-25.
///
/// # Errors
///
/// None comes up: a page is written to memory.
pub fn pages(command: Command, date: &str) -> io::Result<Vec<ManualPage>> {
    let mut command = command.disable_help_subcommand(true);
    // Options of all verbs are at each of them from here on, and each knows its whole name.
    command.build();
    let source =
        format!("{} {}", command.get_name(), command.get_version().unwrap_or_default()).trim().to_owned();
    let mut pages = Vec::new();
    add(&command, &source, date, &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, source: &str, date: &str, pages: &mut Vec<ManualPage>) -> io::Result<()> {
    let man = Man::new(command.clone()).section(SECTION).source(source).date(date).manual("Penstock");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    let shown: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    if !shown.is_empty() {
        man.render_subcommands_section(&mut text)?;
    }
    // What stands behind the help of `penstock` is what its exit statuses mean.
    if let Some(statuses) = command.get_after_help() {
        let mut section = Roff::new();
        section.control("SH", ["EXIT STATUS"]);
        for line in statuses.to_string().lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once(char::is_whitespace) {
                Some((status, words)) if status.parse::<u8>().is_ok() => {
                    section.control("TP", []).text([bold(status)]).text([roman(words.trim())]);
                }
                _ => {
                    section.text([roman(line)]);
                }
            }
        }
        section.to_writer(&mut text)?;
    }
    pages.push(ManualPage { file: man.get_filename(), text: without_idle_breaks(&text) });
    shown.into_iter().try_for_each(|verb| add(verb, source, date, pages))
}

/// Without the line breaks (`.br`) that stand beside an empty line, where they do nothing and mandoc warns of them.
fn without_idle_breaks(text: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let empty =
        |at: Option<usize>| at.and_then(|at| lines.get(at)).is_some_and(|line| line.trim_ascii().is_empty());
    let idle = |at: usize, line: &[u8]| {
        line.trim_ascii() == b".br" && (empty(at.checked_sub(1)) || empty(at.checked_add(1)))
    };
    let kept = lines.iter().enumerate().filter(|(at, line)| !idle(*at, line));
    kept.flat_map(|(_, line)| line.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_beside_an_empty_line_goes_and_another_stays() {
        let text = without_idle_breaks(b"a\n.br\n\n.br\nb\n.br\nc\n");
        assert_eq!(String::from_utf8_lossy(&text), "a\n\nb\n.br\nc\n");
    }
}
