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
    ///
    /// # Errors
    ///
    /// When the program's own file cannot be read.
    pub fn this() -> Result<Program, Failure> {
        let bytes = files::read(process::OWN_PROGRAM)?;
        Ok(Program { hash: sha256(&bytes), bytes: bytes.into() })
    }
}

/// The script, with its length before it, as [`FIRST`] reads it. What it says is marked with `token`.
pub fn script(token: &str, program: &Program, sudo: bool, words: &[String]) -> Vec<u8> {
    script_with(["/run/systemd/transient", "/var/tmp"], token, program, sudo, words)
}

/// The same, where systemd keeps the units that were made at run time in the first of these directories, and programs can be kept in the
/// second.
fn script_with(
    [units, beside]: [&str; 2],
    token: &str,
    program: &Program,
    sudo: bool,
    words: &[String],
) -> Vec<u8> {
    let words: String = words.iter().map(|word| format!(" {}", quoted(word))).collect();
    let Program { bytes, hash } = program;
    let (size, sudo) = (bytes.len(), u8::from(sudo));
    let (units, beside) = (quoted(units), quoted(beside));
    let script =
        format!("t={token} h={hash} n={size} s={sudo} u={units} v={beside}\nset --{words}\n{SCRIPT}");
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
    /// More of the program has come there.
    Comes,
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
            "comes" => BootstrapReply::Comes,
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
        path::{Path, PathBuf},
        process::{ChildStdin, ChildStdout},
        sync::{
            atomic::{AtomicUsize, Ordering},
            mpsc::channel,
        },
        thread,
        time::Duration,
    };

    use penstock_host::{
        Command,
        process::{self, Background, Talk, Terminal},
    };
    use penstock_testkit::script as program_file;

    use super::*;

    /// A program that tells its arguments and its input.
    fn program(extra: &str) -> Program {
        let text = format!("#!/bin/sh\n# {extra}\n[ \"$1\" = --version ] || {{ echo \"ran $*\"; cat; }}\n");
        Program { hash: sha256(&text), bytes: text.into_bytes().into() }
    }

    /// No two have one token: they may be at work in the same place.
    static SHELLS: AtomicUsize = AtomicUsize::new(0);

    /// A shell that runs the script, with what it has said so far.
    struct Bringing {
        token: String,
        program: Program,
        shell: Background,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
        lines: Vec<String>,
        brought: usize,
    }

    impl Bringing {
        /// One with this home, with the programs in its `bin` before all others, and with its `units` and `beside` for those of the machine.
        fn of(home: &Path, program: &Program, sudo: bool, words: &[&str]) -> Bringing {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let path = std::env::var("PATH").unwrap_or_default();
            let path = format!("{}:{path}", home.join("bin").display());
            let shell = Command::new("sh").args(["-c", FIRST]).env("HOME", home).env("XDG_CACHE_HOME", "");
            let talk = shell.env("PATH", path).talk(Terminal::Apart).unwrap();
            let Talk { program: shell, mut input, output, .. } = talk;
            let token = format!("T{}", SHELLS.fetch_add(1, Ordering::Relaxed));
            let places = ["units", "beside"].map(|name| home.join(name).display().to_string());
            let script = script_with(places.each_ref().map(String::as_str), &token, program, sudo, &words);
            input.write_all(&script).unwrap();
            let output = BufReader::new(output);
            Bringing { token, program: program.clone(), shell, input, output, lines: Vec::new(), brought: 0 }
        }

        fn line(&mut self) -> Option<BootstrapReply> {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            self.lines.push(line.trim_end().to_owned());
            BootstrapReply::read(line.trim_end(), &self.token)
        }

        /// Goes on until it wants the program.
        fn wants(&mut self) {
            loop {
                match self.line() {
                    Some(BootstrapReply::Machine(..)) => self.input.write_all(b"go\n").unwrap(),
                    Some(BootstrapReply::Need) => return,
                    told => panic!("{told:?}: {:?}", self.lines),
                }
            }
        }

        fn bring(&mut self) {
            self.brought += 1;
            self.input.write_all(&self.program.bytes).unwrap();
        }

        /// Goes on to the end; gives what it said, and how often the program was brought.
        fn end(mut self) -> (Vec<String>, usize) {
            loop {
                match self.line() {
                    Some(BootstrapReply::Machine(..)) => self.input.write_all(b"go\n").unwrap(),
                    Some(BootstrapReply::Need) => self.bring(),
                    Some(BootstrapReply::Comes) => {}
                    Some(BootstrapReply::Ready) => {
                        // It may be a program that reads nothing.
                        let _ = self.input.write_all(b"the request\n");
                        return self.rest();
                    }
                    _ => break,
                }
            }
            self.shell.end(Duration::from_secs(5));
            (self.lines, self.brought)
        }

        /// All that it says yet, where it hears no more.
        fn rest(mut self) -> (Vec<String>, usize) {
            drop(self.input);
            let mut rest = String::new();
            self.output.read_to_string(&mut rest).unwrap();
            self.lines.extend(rest.lines().map(str::to_owned));
            self.shell.end(Duration::from_secs(5));
            (self.lines, self.brought)
        }
    }

    fn converse(home: &Path, program: &Program, words: &[&str]) -> (Vec<String>, usize) {
        Bringing::of(home, program, false, words).end()
    }

    fn builds(home: &Path) -> usize {
        files::list(home.join(".cache/penstock/bin")).unwrap().len()
    }

    /// Where a build is kept.
    fn place(home: &Path, program: &Program) -> PathBuf {
        home.join(".cache/penstock/bin").join(&program.hash).join("penstock")
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
        let place = place(home.path(), &program);
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
    fn a_place_where_others_may_write_is_not_taken_for_a_cache() {
        let home = tempfile::tempdir().unwrap();
        let program = program("shared");
        converse(home.path(), &program, &[]);
        let bin = home.path().join(".cache/penstock/bin");
        let id = Command::new("id").arg("-u").succeed().unwrap().text();
        let second = home.path().join("beside").join(format!("penstock-{}", id.trim()));
        let whole = home.path().join("whole");
        for mode in [0o777, 0o770, 0o702] {
            files::set_mode(&bin, mode).unwrap();
            let (lines, brought) = converse(home.path(), &program, &["scan"]);
            assert_eq!(brought, 1, "{mode:o}: what lies there was run: {lines:?}");
            assert!(files::exists(second.join(&program.hash).join("penstock")), "{lines:?}");
            assert_eq!(lines[lines.len() - 2..], ["ran --attended scan", "the request"], "{lines:?}");
            files::remove_tree(&second).unwrap();
        }
        files::set_mode(&bin, 0o700).unwrap();
        // Nor is one that others could put another in the place of.
        for above in [".cache/penstock", ".cache"].map(|name| home.path().join(name)) {
            files::set_mode(&above, 0o770).unwrap();
            let (lines, brought) = converse(home.path(), &program, &["scan"]);
            assert_eq!(brought, 1, "{}: {lines:?}", above.display());
            assert!(files::exists(second.join(&program.hash).join("penstock")), "{lines:?}");
            files::remove_tree(&second).unwrap();
            files::set_mode(&above, 0o700).unwrap();
        }
        // Nor is a link to such a directory, nor a build's own directory in which others may write.
        files::rename(&bin, &whole).unwrap();
        files::link(&whole, &bin).unwrap();
        assert_eq!(converse(home.path(), &program, &[]).1, 1);
        files::remove_file(&bin).unwrap();
        files::rename(&whole, &bin).unwrap();
        files::remove_tree(&second).unwrap();
        files::set_mode(bin.join(&program.hash), 0o777).unwrap();
        let refused = Bringing::of(home.path(), &program, false, &[]);
        let token = refused.token.clone();
        let (lines, _) = refused.end();
        let last = lines.last().and_then(|line| BootstrapReply::read(line, &token));
        assert!(
            matches!(&last, Some(BootstrapReply::NoPlace(why)) if why.contains("of this account alone")),
            "{lines:?}"
        );
        assert!(!files::exists(&second), "there is a place of its own");
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
        let mut shell = Bringing::of(home.path(), &whole, false, &[]);
        shell.wants();
        shell.input.write_all(&whole.bytes[..10]).unwrap();
        let token = shell.token.clone();
        let (lines, _) = shell.rest();
        let last = lines.last().and_then(|line| BootstrapReply::read(line, &token));
        assert!(matches!(last, Some(BootstrapReply::Short(_))), "{lines:?}");
        assert_eq!(builds(home.path()), 0);
    }

    #[test]
    fn a_program_that_comes_slowly_is_told_of_while_it_comes() {
        let home = tempfile::tempdir().unwrap();
        let program = program(&"x".repeat(100_000));
        let mut slow = Bringing::of(home.path(), &program, false, &["scan"]);
        slow.wants();
        let (half, rest) = program.bytes.split_at(50_000);
        slow.input.write_all(half).unwrap();
        let (tell, told) = channel();
        thread::spawn(move || {
            let said = slow.line();
            let _ = tell.send((slow, said));
        });
        let (mut slow, said) = told.recv_timeout(Duration::from_secs(60)).expect("it says something");
        assert_eq!(said, Some(BootstrapReply::Comes));
        slow.input.write_all(rest).unwrap();
        let (lines, _) = slow.end();
        assert_eq!(lines[lines.len() - 2..], ["ran --attended scan", "the request"], "{lines:?}");
    }

    #[test]
    fn a_build_that_another_session_brought_meanwhile_keeps_its_name() {
        let home = tempfile::tempdir().unwrap();
        let program = program("two");
        let mut slow = Bringing::of(home.path(), &program, false, &["scan"]);
        slow.wants();
        assert_eq!(converse(home.path(), &program, &[]).1, 1);
        let place = place(home.path(), &program);
        let running = files::stamp(&place);
        slow.bring();
        let (lines, _) = slow.end();
        assert_eq!(lines.last().map(String::as_str), Some("the request"), "{lines:?}");
        assert_eq!(files::stamp(&place), running, "what runs from there was unlinked");
        let kept = files::list(home.path().join(".cache/penstock/bin").join(&program.hash)).unwrap();
        assert_eq!((builds(home.path()), kept.len()), (1, 1));
    }

    #[test]
    fn a_build_that_something_runs_from_stays_however_old_it_is() {
        let home = tempfile::tempdir().unwrap();
        // A program that is itself under any name; what `coreutils` has may be one for all names.
        let find = files::read(process::find("find").unwrap()).unwrap();
        let old = Program { hash: sha256(&find), bytes: find.into() };
        converse(home.path(), &old, &[]);
        let place = place(home.path(), &old);
        let waits = Command::new(&place).args(["/", "-maxdepth", "0", "-exec", "sleep", "600", ";"]);
        let running = waits.start_session(tempfile::tempfile().unwrap()).unwrap();
        for name in ["a", "b", "c", "d"] {
            converse(home.path(), &program(name), &[]);
        }
        assert!(files::exists(&place), "a switch that runs from there could not be started again");
        running.end(Duration::from_secs(5));
        converse(home.path(), &program("e"), &[]);
        assert_eq!((files::exists(&place), builds(home.path())), (false, 3));
    }

    #[test]
    fn a_build_that_a_unit_names_stays_however_old_it_is() {
        let home = tempfile::tempdir().unwrap();
        let old = program("old");
        converse(home.path(), &old, &[]);
        let units = home.path().join("units");
        files::create_dir_all(&units).unwrap();
        let unit = units.join("penstock-guard-1.service");
        let text = format!("[Service]\nExecStart={} guard 1\n", place(home.path(), &old).display());
        files::write_atomic(&unit, text).unwrap();
        for name in ["a", "b", "c", "d"] {
            converse(home.path(), &program(name), &[]);
        }
        assert!(files::exists(place(home.path(), &old)), "its guard could not be started again");
        files::remove_file(&unit).unwrap();
        converse(home.path(), &program("e"), &[]);
        assert_eq!((files::exists(place(home.path(), &old)), builds(home.path())), (false, 3));
    }

    /// Has this home a `sudo` that does this with some commands and runs all others, and an account that is not root's.
    fn sudo(home: &Path, cases: &str) -> String {
        let (bin, account) = (home.join("bin"), "somebody");
        files::create_dir_all(&bin).unwrap();
        program_file::write(bin.join("id"), format!("#!/bin/sh\necho {account}\n"));
        // `sudo -n true` has no `--`.
        let text = format!(
            "#!/bin/sh\n[ \"$2\" = true ] && exit 0\nno() {{ echo 'not allowed' >&2; exit 1; }}\n\
             shift 2\ncase $1 in {cases} esac\nexec \"$@\"\n"
        );
        program_file::write(bin.join("sudo"), text);
        account.to_owned()
    }

    #[test]
    fn a_build_that_root_runs_stays_and_so_do_all_where_nobody_sees_what_root_runs() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let old = program("old");
        let bring = |program: &Program| Bringing::of(home, program, true, &[]).end();
        sudo(home, &format!("ls) echo '/proc/1/exe -> /home/{}/penstock'; exit ;;", old.hash));
        bring(&old);
        ["a", "b", "c", "d"].into_iter().for_each(|name| drop(bring(&program(name))));
        assert_eq!((files::exists(place(home, &old)), builds(home)), (true, 4));
        sudo(home, "ls) no ;;");
        bring(&program("e"));
        assert_eq!((files::exists(place(home, &old)), builds(home)), (true, 5));
        sudo(home, "ls) echo '/proc/1/exe -> /sbin/init'; exit ;;");
        bring(&program("f"));
        assert_eq!((files::exists(place(home, &old)), builds(home)), (false, 3));
    }

    #[test]
    fn a_rule_of_sudo_that_names_where_the_program_is_kept_is_enough() {
        let home = tempfile::tempdir().unwrap();
        // As sudoers(5) has it: `.../bin/*/penstock`, whose `*` is no dot at the front.
        sudo(home.path(), "*/.cache/penstock/bin/[!.]*/penstock) ;; *) no ;;");
        let (lines, brought) = Bringing::of(home.path(), &program("rule"), true, &["scan"]).end();
        assert_eq!((brought, builds(home.path())), (1, 1), "{lines:?}");
        assert_eq!(lines[lines.len() - 2..], ["ran --attended scan", "the request"], "{lines:?}");
    }

    #[test]
    fn a_place_is_one_from_which_sudo_runs_the_program() {
        let home = tempfile::tempdir().unwrap();
        let program = program("sudo");
        // Root does not see what is in the home.
        let account = sudo(home.path(), "*/.cache/*) no ;;");
        let second = home.path().join(format!("beside/penstock-{account}"));
        let (lines, brought) = Bringing::of(home.path(), &program, true, &["scan"]).end();
        let there = files::exists(second.join(&program.hash).join("penstock"));
        // sudo lets nothing of ours run: that is said before anything is taken for begun.
        sudo(home.path(), "*/penstock*) no ;;");
        let refusing = Bringing::of(home.path(), &program, true, &["scan"]);
        let token = refusing.token.clone();
        let (refused, _) = refusing.end();
        assert_eq!((brought, there, builds(home.path())), (1, true, 0), "{lines:?}");
        assert_eq!(lines[lines.len() - 2..], ["ran --attended scan", "the request"], "{lines:?}");
        let last = refused.last().and_then(|line| BootstrapReply::read(line, &token));
        assert!(
            matches!(&last, Some(BootstrapReply::NoPlace(why)) if why.contains("not allowed")),
            "{refused:?}"
        );
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
