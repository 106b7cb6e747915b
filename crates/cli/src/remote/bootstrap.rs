//! How Penstock comes to run on a machine that does not have it: a shell there is told a script, which says what it finds.

use std::sync::Arc;

use penstock_host::{
    files,
    process::{self, quoted},
};
use penstock_model::digest::sha256;

use crate::failure::Failure;

/// What the login shell is given. It reads the script itself from its input, so that nothing of it has to pass a login shell
/// that may be no POSIX shell: no quote, backslash, newline or `!` is in here.
pub const FIRST: &str = "exec sh -c 'IFS= read -r n; s=$(head -c \"$n\"); eval \"$s\"'";

const SCRIPT: &str = include_str!("bootstrap.sh");

/// This very program, as it is brought to other machines.
#[derive(Clone, Debug)]
pub struct Program {
    /// All of it.
    pub bytes: Arc<[u8]>,
    /// The SHA-256 of `bytes`, in hexadecimal digits.
    pub hash: String,
}

impl Program {
    /// The program that runs.
    pub fn this() -> Result<Program, Failure> {
        let bytes = files::read(process::OWN_PROGRAM)?;
        Ok(Program { hash: sha256(&bytes), bytes: bytes.into() })
    }
}

/// The script, with its length before it, as [`FIRST`] reads it. What it says is marked with `token`.
pub fn script(token: &str, program: &Program, sudo: bool, words: &[String]) -> Vec<u8> {
    let words: String = words.iter().map(|word| format!(" {}", quoted(word))).collect();
    let Program { bytes, hash } = program;
    let (size, sudo) = (bytes.len(), u8::from(sudo));
    let script = format!("t={token} h={hash} n={size} s={sudo}\nset --{words}\n{SCRIPT}");
    format!("{}\n{script}", script.len()).into_bytes()
}

/// A line that the bootstrap script prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootstrapReply {
    /// The kernel, the processor and the number of the account.
    Machine(String, String, String),
    /// `sudo` wants a password, or says no.
    Sudo(String),
    /// There is no directory in which programs can be kept and run.
    NoPlace(String),
    /// It wants the program.
    Need,
    /// Less of the program came than there is.
    Short(String),
    /// Something else than the program came.
    Spoilt,
    /// The program does not run there.
    Broken(String),
    /// It becomes the program now.
    Ready,
}

impl BootstrapReply {
    /// Reads a line; `None` for one that is not the script's, such as what a login shell greets with.
    pub fn read(line: &str, token: &str) -> Option<BootstrapReply> {
        let said = line.strip_prefix("penstock-")?.strip_prefix(token)?.strip_prefix(' ')?;
        let (verb, rest) = said.split_once(' ').unwrap_or((said, ""));
        let rest = rest.trim().to_owned();
        Some(match verb {
            "machine" => {
                let mut words = rest.split(' ').map(str::to_owned);
                BootstrapReply::Machine(words.next()?, words.next()?, words.next()?)
            }
            "sudo" => BootstrapReply::Sudo(rest),
            "noplace" => BootstrapReply::NoPlace(rest),
            "need" => BootstrapReply::Need,
            "short" => BootstrapReply::Short(rest),
            "spoilt" => BootstrapReply::Spoilt,
            "broken" => BootstrapReply::Broken(rest),
            "ready" => BootstrapReply::Ready,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        path::Path,
    };

    use penstock_host::{
        Command,
        process::{Talk, Terminal},
    };

    use super::*;

    /// A program that tells its arguments and its input.
    fn program(extra: &str) -> Program {
        let text = format!("#!/bin/sh\n# {extra}\n[ \"$1\" = --version ] || {{ echo \"ran $*\"; cat; }}\n");
        Program { hash: sha256(&text), bytes: text.into_bytes().into() }
    }

    /// Has a shell with this home run the script; gives what it said, and how often the program was brought.
    fn converse(home: &Path, program: &Program, words: &[&str]) -> (Vec<String>, usize) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let shell = Command::new("sh").args(["-c", FIRST]).env("HOME", home).env("XDG_CACHE_HOME", "");
        let Talk { program: shell, mut input, output, .. } = shell.talk(Terminal::Apart).unwrap();
        input.write_all(&script("T", program, false, &words)).unwrap();
        let mut lines = Vec::new();
        let mut brought = 0;
        let mut output = BufReader::new(output);
        loop {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            lines.push(line.trim_end().to_owned());
            match BootstrapReply::read(line.trim_end(), "T") {
                Some(BootstrapReply::Machine(..)) => input.write_all(b"go\n").unwrap(),
                Some(BootstrapReply::Need) => {
                    brought += 1;
                    input.write_all(&program.bytes).unwrap();
                }
                Some(BootstrapReply::Ready) => {
                    input.write_all(b"the request\n").unwrap();
                    drop(input);
                    let mut rest = String::new();
                    output.read_to_string(&mut rest).unwrap();
                    lines.extend(rest.lines().map(str::to_owned));
                    break;
                }
                _ => break,
            }
        }
        shell.end(std::time::Duration::from_secs(5));
        (lines, brought)
    }

    fn builds(home: &Path) -> usize {
        files::list(home.join(".cache/penstock/bin")).unwrap().len()
    }

    #[test]
    fn the_program_is_brought_once_and_becomes_the_shell() {
        let home = tempfile::tempdir().unwrap();
        let program = program("one");
        let words = ["apply", "it's; $(a) \"file\".yaml", ""];
        let (lines, brought) = converse(home.path(), &program, &words);
        assert_eq!(brought, 1, "{lines:?}");
        let ran = "ran --attended apply it's; $(a) \"file\".yaml ";
        assert_eq!(lines[lines.len() - 2..], [ran, "the request"], "{lines:?}");
        let (lines, brought) = converse(home.path(), &program, &words);
        assert_eq!(brought, 0, "it is there: {lines:?}");
        assert_eq!(lines[lines.len() - 2..], [ran, "the request"], "{lines:?}");
    }

    #[test]
    fn a_program_that_somebody_put_in_its_place_is_not_run() {
        let home = tempfile::tempdir().unwrap();
        let program = program("true");
        converse(home.path(), &program, &[]);
        let place = home.path().join(".cache/penstock/bin").join(&program.hash).join("penstock");
        let proof = home.path().join("it-ran");
        let planted = format!("#!/bin/sh\n: >{}\n", proof.display());
        files::remove_file(&place).unwrap();
        files::append(&place).unwrap().write_all(planted.as_bytes()).unwrap();
        files::set_mode(&place, 0o700).unwrap();
        let (lines, brought) = converse(home.path(), &program, &["scan"]);
        assert_eq!((brought, proof.exists()), (1, false), "{lines:?}");
        assert_eq!(lines[lines.len() - 2..], ["ran --attended scan", "the request"], "{lines:?}");
        assert_eq!(files::read(&place).unwrap(), *program.bytes);
    }

    #[test]
    fn old_builds_and_what_was_cut_off_go() {
        let home = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            converse(home.path(), &program(name), &[]);
        }
        assert_eq!(builds(home.path()), 3);
    }

    #[test]
    fn a_program_that_came_in_part_is_not_kept() {
        let home = tempfile::tempdir().unwrap();
        let whole = program("part");
        let shell = Command::new("sh").args(["-c", FIRST]).env("HOME", home.path()).env("XDG_CACHE_HOME", "");
        let Talk { program: _running, mut input, output, .. } = shell.talk(Terminal::Apart).unwrap();
        input.write_all(&script("T", &whole, false, &[])).unwrap();
        input.write_all(b"go\n").unwrap();
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while BootstrapReply::read(line.trim_end(), "T") != Some(BootstrapReply::Need) {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0);
        }
        input.write_all(&whole.bytes[..10]).unwrap();
        drop(input);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert!(
            matches!(BootstrapReply::read(rest.trim_end(), "T"), Some(BootstrapReply::Short(_))),
            "{rest}"
        );
        assert_eq!(builds(home.path()), 0);
    }

    #[test]
    fn only_what_the_script_says_is_taken_for_that() {
        let machine = BootstrapReply::Machine("Linux".into(), "x86_64".into(), "0".into());
        assert_eq!(BootstrapReply::read("penstock-T machine Linux x86_64 0", "T"), Some(machine));
        assert_eq!(
            BootstrapReply::read("penstock-T noplace /a: no", "T"),
            Some(BootstrapReply::NoPlace("/a: no".into()))
        );
        for line in
            ["penstock-U ready", "welcome", "penstock-T", "penstock-T dance", "penstock-T machine Linux"]
        {
            assert_eq!(BootstrapReply::read(line, "T"), None, "{line}");
        }
    }

    #[test]
    fn the_first_line_passes_shells_of_all_sorts() {
        assert!(!FIRST.contains(['\\', '\n', '!']));
        assert_eq!(FIRST.matches('\'').count(), 2);
    }
}
