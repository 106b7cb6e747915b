//! A board that stays up for a test, driven by the binary as a user drives it.

use std::{
    ffi::OsStr,
    fs,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use penstock_host::chain;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binary::{self, Run, run},
    json,
    trials::{Failed, Outcome},
};

/// The status with which `ssh` ends when it failed itself.
const SSH_FAILED: i32 = 255;

/// What the builtin guest says at each boot.
const BEGIN: &str = "penstock-guest: begin";

/// Does something on a board of its own that was booted for the model that `model` gives for a board of this name. A failure says if the board
/// was reset meanwhile.
///
/// # Errors
///
/// What `penstock board up` said, or why it failed.
pub fn on_its_own(
    test: &str,
    model: impl FnOnce(&str) -> String,
    what: impl FnOnce(&KeptBoard) -> Outcome,
) -> Outcome {
    let name = own_name(test);
    let board = KeptBoard::up(&name, &model(&name))?;
    let booted = board.boot();
    caught(|| what(&board)).map_err(|why| match board.boot() == booted {
        true => why,
        false => format!("{}\nthe board was reset meanwhile", chain(&*why)).into(),
    })
}

/// The same for a model, whose `machine` is MACHINE, with this VM that has the builtin guest. A failure is told with what the VM said on its
/// console, and how often it has booted.
///
/// # Errors
///
/// What `penstock board up` said, or why it failed.
pub fn with_a_vm(test: &str, model: &str, vm: &str, what: fn(&KeptBoard) -> Outcome) -> Outcome {
    on_its_own(
        test,
        |name| model.replace("MACHINE", name),
        |board| {
            caught(|| what(board)).map_err(|why| {
                let console = board.console_of(vm);
                let boots = boots_in(&console);
                format!("{}\nconsole of {vm}, which has booted {boots} times:\n{console}", chain(&*why))
                    .into()
            })
        },
    )
}

/// How often the builtin guest has booted that said this on its console.
fn boots_in(console: &str) -> usize {
    console.matches(BEGIN).count()
}

/// Does something; a panic in it is its failure.
///
/// # Errors
///
/// Why it failed, or what its panic said.
pub fn caught(what: impl FnOnce() -> Outcome) -> Outcome {
    panic::catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Failed::from(text.unwrap_or_else(|| "a panic without words".to_owned())))
    })
}

/// How a board came up, by what `penstock board up` said: a test whose board is booted though another test has saved one that differs in
/// nothing that matters costs that boot.
fn start_kind(said: &str) -> &'static str {
    let kinds = [
        ("which QEMU cannot save", "booted, as it is each time,"),
        ("did not resume", "booted, since the saved one did not resume,"),
        ("could not be saved", "booted, and not saved,"),
        ("Booting the board", "booted"),
        ("Resuming the saved board", "resumed"),
    ];
    kinds.iter().find(|(words, _)| said.contains(words)).map_or("up", |(_, kind)| kind)
}

/// A board's name that no other run of this test has: two boards of one name cannot be up at once.
pub fn own_name(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// A board that was booted for a model, with this binary and the model inside; dropped with this value.
#[derive(Debug)]
pub struct KeptBoard {
    name: String,
    model: String,
    directory: TempDir,
}

impl KeptBoard {
    /// Boots the board of the model `text`, whose `machine` is `name`. The name is that of one test alone: two boards
    /// of one name cannot be up at once.
    ///
    /// # Errors
    ///
    /// What `penstock board up` said.
    pub fn up(name: &str, text: &str) -> Result<KeptBoard, String> {
        KeptBoard::up_with(name, text, &[])
    }

    /// The same with more of the options of `penstock board up`: `--keep-disk` for a board that is to be
    /// [reset](KeptBoard::reset), `--systemd` for one with systemd.
    ///
    /// # Errors
    ///
    /// What `penstock board up` said.
    pub fn up_with(name: &str, text: &str, options: &[&str]) -> Result<KeptBoard, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let file = format!("{name}.yaml");
        fs::write(directory.path().join(&file), text).map_err(|error| error.to_string())?;
        let began = Instant::now();
        let up = run(directory.path(), [&["board", "up", &file][..], options].concat());
        if up.status != 0 {
            return Err(format!("the board {name} did not come up: {}", up.stderr));
        }
        eprintln!("board {name}: {} in {:.1} s", start_kind(&up.stderr), began.elapsed().as_secs_f64());
        Ok(KeptBoard { name: name.to_owned(), model: format!("/root/{file}"), directory })
    }

    /// The model's path inside the board.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// A directory of the test's own on the host.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a command inside to its end.
    pub fn inside<A: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = A>) -> Run {
        let mut command = binary::command(self.directory());
        command.args(["board", "ssh", &self.name]).args(words).stdin(Stdio::null());
        let mut run: Run = command.output().expect("the binary runs").into();
        if run.status == SSH_FAILED {
            run.stderr.push_str(&self.why_it_hung_up());
        }
        run
    }

    /// What the board's kernel said last, for a connection that broke off without a word: it may have ended what
    /// served it.
    fn why_it_hung_up(&self) -> String {
        let mut command = binary::command(self.directory());
        command.args(["board", "ssh", &self.name, "sh", "-c", "uptime; free -m; dmesg | tail -n 40"]);
        let said: Run = command.stdin(Stdio::null()).output().expect("the binary runs").into();
        format!("\nthe board's kernel said last:\n{}{}", said.stdout, said.stderr)
    }

    /// Runs a line of shell inside.
    pub fn shell(&self, line: &str) -> Run {
        self.inside(["sh", "-c", line])
    }

    /// What a line of shell inside prints.
    ///
    /// # Errors
    ///
    /// It ended with another status than 0; what it said is in it.
    pub fn say(&self, line: &str) -> Result<String, Failed> {
        let run = self.shell(line);
        match run.status {
            0 => Ok(run.stdout),
            status => Err(format!("{line}: status {status}: {}{}", run.stdout, run.stderr).into()),
        }
    }

    /// Kills the main process of a service inside, and waits until systemd has started it anew.
    ///
    /// # Errors
    ///
    /// It does not run, or does not come again.
    pub fn kill_service(&self, unit: &str) -> Outcome {
        let script = format!(
            "before=$(systemctl show -P MainPID {unit}); kill -9 $before; \
             for turn in $(seq 240); do now=$(systemctl show -P MainPID {unit}); \
             [ $now != 0 ] && [ $now != $before ] && systemctl -q is-active {unit} && exit 0; sleep 0.5; done; exit 1"
        );
        self.shell(&script).ended_with(0)
    }

    /// Puts the `usr` of a program that was unpacked into `tree` into the board; what is there stays.
    ///
    /// # Errors
    ///
    /// It cannot be packed, or not be unpacked inside.
    pub fn put_usr(&self, tree: &Path) -> Outcome {
        let packed = self.directory().join("usr.tar.gz");
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(tree).args(["-I", "gzip -1", "-cf"]).arg(&packed).arg("usr");
        Run::from(pack.output()?).ended_with(0)?;
        self.shell_with("tar -C / --skip-old-files -xzf -", &packed).ended_with(0)?;
        fs::remove_file(packed)?;
        Ok(())
    }

    /// Which run of its kernel it is in; empty when that cannot be told.
    fn boot(&self) -> String {
        self.inside(["cat", "/proc/sys/kernel/random/boot_id"]).stdout
    }

    /// What a VM with the builtin guest has printed since it was made.
    fn console_of(&self, vm: &str) -> String {
        self.shell(&format!("cat /run/penstock/guests/penstock-{vm}/console.log")).stdout
    }

    /// How often a VM with the builtin guest has booted since it was made.
    pub fn boots_of(&self, vm: &str) -> usize {
        boots_in(&self.console_of(vm))
    }

    /// Resets it as its reset button would, or with `--orderly` as it does itself, and waits until it is up again.
    pub fn reset(&self, options: &[&str]) -> Run {
        run(self.directory(), [&["board", "reset", &self.name][..], options].concat())
    }

    /// Has a key of the test's own log in, and gives the configuration with which `ssh it` leads there, in the words of ssh_config(5).
    ///
    /// # Errors
    ///
    /// No key can be made, or the board is gone.
    pub fn over_ssh(&self) -> Result<String, Failed> {
        let at = self.directory();
        let key = at.join("key");
        let mut made = Command::new("ssh-keygen");
        made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key);
        Run::from(made.output()?).ended_with(0)?;
        let public = fs::read_to_string(at.join("key.pub"))?;
        self.shell(&format!("echo '{}' >> /run/penstock/authorized-keys", public.trim())).ended_with(0)?;
        let boards: Value = json::read(&run(at, ["board", "list", "--json"]).stdout)?;
        let all = boards["boards"].as_array().map(Vec::as_slice).unwrap_or_default();
        let port =
            all.iter().find(|board| board["name"] == self.name()).map(|board| board["port"].to_string());
        let port = port.ok_or_else(|| format!("the board is not listed: {boards}"))?;
        let here = at.display();
        Ok(format!(
            "Host it\n Port {port}\nHost *\n HostName 127.0.0.1\n User root\n IdentityFile {here}/key\n IdentitiesOnly yes\n \
             IdentityAgent none\n UserKnownHostsFile {here}/known\n StrictHostKeyChecking accept-new\n"
        ))
    }

    /// The name by which `penstock board` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts a file into the board.
    pub fn write(&self, path: &str, text: &str) -> Run {
        let file = self.directory().join("to-copy");
        fs::write(&file, text).expect("the test's directory can be written");
        self.shell_with(&format!("cat > {path}"), &file)
    }

    /// Runs a line of shell inside, with this file of the host as its standard input.
    pub fn shell_with(&self, line: &str, input: &Path) -> Run {
        let mut command = binary::command(self.directory());
        command.args(["board", "ssh", &self.name, "sh", "-c", line]);
        command.stdin(fs::File::open(input).expect("the file can be read"));
        command.output().expect("the binary runs").into()
    }
}

impl Drop for KeptBoard {
    fn drop(&mut self) {
        let down = run(self.directory(), ["board", "down", &self.name]);
        if down.status != 0 {
            eprintln!("the board {} was not dropped: {}", self.name, down.stderr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_board_came_up_is_read_from_what_was_said() {
        let resumes = "Resuming the saved board\n";
        let boots = "Booting the board\n";
        assert_eq!(start_kind(resumes), "resumed");
        assert_eq!(start_kind(boots), "booted");
        let failed = "The saved board did not resume (no memory); booting instead\n";
        assert_eq!(
            start_kind(&[resumes, failed, boots].concat()),
            "booted, since the saved one did not resume,"
        );
        let drive = "The board has an NVMe controller, which QEMU cannot save: it boots anew each time\n";
        assert_eq!(start_kind(&[boots, drive].concat()), "booted, as it is each time,");
        assert_eq!(start_kind(""), "up");
    }
}
