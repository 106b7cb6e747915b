//! A board as another machine: its SSH server, through a configuration of the user's. What becomes of it when the user, or
//! the connection, ends an apply in the middle.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_testkit::{
    binary::{self, Run},
    board::{KeptBoard, own_name},
    json,
    trials::{self, Failed, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[("a_board_is_another_machine_in_board", a_board_is_another_machine)])
}

/// A board that is reached as other machines are, under the name `it`; under `gone` nothing is.
struct There {
    board: KeptBoard,
    model: String,
}

impl There {
    fn up() -> Result<There, Failed> {
        let name = own_name("remote");
        let text = format!(
            "machine: {name}\nnics: {{NET0: {{vfs: 7}}}}\nguests:\n  one: {{functions: [NET0#0, NET0#1]}}\n  \
             two: {{functions: [NET0#2, NET0#3]}}\n"
        );
        let board = KeptBoard::up(&name, &text)?;
        let config = format!("Host gone\n Port 1\n{}", board.over_ssh()?);
        fs::write(board.directory().join("config"), config)?;
        Ok(There { board, model: format!("{name}.yaml") })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = binary::command(self.board.directory());
        command.args(words).args(["--ssh-config", "config"]).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Run {
        self.command(words).output().expect("the binary runs").into()
    }

    /// Interfaces and VFs, as `ip` and the kernel's files show them.
    fn state(&self) -> Result<String, Failed> {
        let seen = self.board.shell(
            // An interface that was up once has another queueing discipline than before for ever.
            "ip -d -j link | sed 's/\"qdisc\":\"[a-z_]*\",//g'; for pf in /sys/bus/pci/devices/*/sriov_numvfs; do echo $pf $(cat $pf); done; \
             ls -d /run/penstock/guests/*/ 2>/dev/null; true",
        );
        seen.ended_with(0)?;
        Ok(seen.stdout)
    }

    /// Waits until the machine is in `state`.
    fn comes_to(&self, state: &str, what: &str) -> Outcome {
        let began = Instant::now();
        loop {
            let now = self.state()?;
            if now == state {
                return Ok(());
            }
            if began.elapsed() > Duration::from_secs(300) {
                return Err(
                    format!("{what}, and 300 s later it is not as it was:\n{state}\nbut:\n{now}").into()
                );
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Applies, and calls `act` once some steps were begun; gives how it ended.
    fn apply_and(&self, act: impl FnOnce(&Child)) -> Run {
        let mut child = self
            .command(&["apply", &self.model, "--host", "it"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut errors = BufReader::new(child.stderr.take().expect("it was piped"));
        let mut said = String::new();
        // The first VF exists.
        while !said.contains("[6/") && errors.read_line(&mut said).expect("it can be read") > 0 {}
        act(&child);
        while errors.read_line(&mut said).expect("it can be read") > 0 {}
        let mut run = Run::from(child.wait_with_output().expect("it ends"));
        run.stderr = said;
        run
    }
}

/// The processes that `parent` has started.
fn children(parent: &Child) -> Vec<Pid> {
    let threads = fs::read_dir(PathBuf::from(format!("/proc/{}/task", parent.id()))).expect("it runs");
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let all: Vec<String> = threads.flatten().map(of).collect();
    all.iter()
        .flat_map(|ids| ids.split_whitespace())
        .filter_map(|id| id.parse().ok())
        .map(Pid::from_raw)
        .collect()
}

fn a_board_is_another_machine() -> Outcome {
    let there = There::up()?;
    let board = &there.board;
    let model = there.model.as_str();
    let before = there.state()?;

    // It answers as it does to those who are there.
    let scan = there.run(&["scan", "--json", "--host", "it"]);
    scan.ended_with(0)?;
    let (seen, inside): (Value, Value) =
        (json::read_as(&scan.stdout)?, json::read_as(&board.inside(["penstock", "scan", "--json"]).stdout)?);
    assert_eq!((&seen["pfs"], &seen["kernel"]), (&inside["pfs"], &inside["kernel"]));
    let plan = there.run(&["plan", model, "--host", "it"]);
    plan.ended_with(0)?;
    assert_eq!(plan.stdout, board.inside(["penstock", "plan", board.model()]).stdout);

    // Ctrl-C is waited for: by the end all is as it was.
    let run =
        there.apply_and(|child| kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it runs"));
    run.ended_with(130)?;
    assert!(run.stderr.contains("taking back"), "{}", run.stderr);
    assert_eq!(there.state()?, before, "{}", run.stderr);

    // The connection is cut: here it is said what is known, there it is taken back.
    let run = there.apply_and(|child| {
        let ssh = children(child);
        assert_eq!(ssh.len(), 1, "one connection");
        ssh.into_iter().for_each(|id| kill(id, Signal::SIGKILL).expect("it runs"));
    });
    run.ended_with(7)?;
    assert!(run.stderr.contains("penstock status --host it"), "{}", run.stderr);
    there.comes_to(&before, "the connection was cut")?;
    // The machine is as it was a moment before that is written down.
    let began = Instant::now();
    loop {
        let runs: Value = json::read(&there.run(&["undo", "--list", "--json", "--host", "it"]).stdout)?;
        let phases: Vec<&Value> =
            runs["runs"].as_array().into_iter().flatten().map(|run| &run["phase"]).collect();
        if phases == ["nothing", "nothing"] {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{runs}");
    }

    // Side by side with one that is not there.
    let run = there.run(&["apply", model, "--host", "it,gone", "--confirm-within", "10m"]);
    run.ended_with(8)?;
    assert!(
        run.stdout.contains("it    holds ") && run.stdout.contains("gone  not reached"),
        "{}",
        run.stdout
    );
    assert!(run.stderr.contains("To keep it: penstock confirm 3 --host it"), "{}", run.stderr);
    there.run(&["confirm", "--host", "it"]).ended_with(0)?;
    let verify = there.run(&["verify", model, "--json", "--host", "it"]);
    verify.ended_with(0)?;
    assert_eq!(json::read(&verify.stdout)?["holds"], true);
    let status = there.run(&["status", "--json", "--host", "it"]);
    status.ended_with(0)?;
    assert_eq!(json::read(&status.stdout)?["guests"]["one"]["condition"], "running");
    there.run(&["undo", "--host", "it"]).ended_with(0)?;
    there.comes_to(&before, "the run was undone")
}
