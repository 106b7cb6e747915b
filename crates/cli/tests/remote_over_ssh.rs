//! Other machines over OpenSSH: a server on the loopback interface, in which every key leads to a machine of another sort.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_host::process;
use penstock_model::Inventory;
use penstock_testkit::{
    binary::{self, Run},
    json,
    needs::{self, Lack},
    script,
    trials::{Outcome, Test, Trials},
};
use serde_json::Value;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("other machines over SSH", || {
        needs::programs(&["sshd", "ssh", "ssh-keygen"])
            .or_else(needs::built)
            .or_else(|| Server::start().err().map(Lack::Machine))
    });
    let tests: [(&str, Test); 8] = [
        ("one_machine_answers_as_this_one_does_over_ssh", one_machine),
        ("several_machines_come_to_one_summary_over_ssh", several_machines),
        ("a_model_goes_along_over_ssh", a_model),
        ("machines_that_cannot_be_used_are_told_apart_over_ssh", unusable_machines),
        ("a_hostile_machine_harms_nobody_over_ssh", hostile_machines),
        (
            "a_terminal_that_stands_still_keeps_no_session_from_its_machine_over_ssh",
            an_output_that_nobody_reads,
        ),
        ("machines_that_ctrl_c_kept_from_being_begun_are_no_success_over_ssh", machines_not_begun),
        ("a_machine_that_hangs_is_left_with_ctrl_c_over_ssh", a_machine_that_hangs),
    ];
    trials.add(&missing, tests);
    trials.run()
}

/// What each machine makes of the command that it is given.
const MACHINES: [(&str, &str); 13] = [
    ("good", "exec sh -c \"$SSH_ORIGINAL_COMMAND\""),
    ("other", "exec sh -c \"$SSH_ORIGINAL_COMMAND\""),
    ("greeting", "echo welcome; echo to this machine >&2; exec sh -c \"$SSH_ORIGINAL_COMMAND\""),
    ("nologin", "echo This account is not available.; exit 1"),
    ("arm", "PATH=$PWD/bin:$PATH exec sh -c \"$SSH_ORIGINAL_COMMAND\""),
    ("full", "ulimit -f 100; exec sh -c \"$SSH_ORIGINAL_COMMAND\""),
    ("garbage", "PENSTOCK=echo exec sh fake.sh"),
    ("endless", "exec yes welcome"),
    ("painter", "exec sh painter.sh"),
    ("hanging", ": > reached; exec sleep 600"),
    ("newer", "exec sh newer.sh"),
    ("talker", "exec sh talker.sh"),
    ("willing", "exec sh willing.sh"),
];

/// An SSH server of the test's own, with a directory that is everybody's home there.
struct Server {
    directory: tempfile::TempDir,
    server: Child,
}

impl Server {
    fn start() -> Result<Server, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let at = directory.path();
        let shown = at.display();
        let key = |name: &str| {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", name])
                .current_dir(at)
                .output();
            made.map_err(|error| error.to_string())?;
            fs::read_to_string(at.join(format!("{name}.pub"))).map_err(|error| error.to_string())
        };
        let host_key = key("host-key")?;
        let mut authorized = String::new();
        let mut aliases = String::new();
        for (name, command) in MACHINES {
            let public = key(name)?;
            let home = at.join(format!("home-{name}"));
            fs::create_dir(&home).map_err(|error| error.to_string())?;
            let line = format!("cd {shown} && export HOME={} XDG_CACHE_HOME= && {command}", home.display());
            authorized += &format!("command=\"{}\" {public}", line.replace('"', "\\\""));
            aliases += &format!("Host {name}\n IdentityFile {shown}/{name}\n");
        }
        aliases +=
            &format!("Host stranger\n IdentityFile {shown}/host-key\nHost moved\n HostKeyAlias moved\n");
        aliases += &format!(
            "Host refusing\n Port 1\nHost unknown\n HostKeyAlias nobody\n StrictHostKeyChecking yes\n IdentityFile {shown}/good\n"
        );
        let write =
            |name: &str, text: &str| fs::write(at.join(name), text).map_err(|error| error.to_string());
        write("known", &format!("it {host_key}moved {}", key("another-key")?))?;
        write("authorized", &authorized)?;
        // The script's first line, told by a machine that is none.
        let pretend = "read -r n; s=$(head -c \"$n\"); t=${s#t=}; t=${t%% *}\n\
             say() { echo \"penstock-$t $*\"; }\nsay machine Linux x86_64 0; read -r go; say ready; read -r begin\n";
        write("fake.sh", &format!("{pretend}echo 'what is this'; sleep 60\n"))?;
        let painted = r#"printf '%s\n' '{"say":"\u001b]0;title\u0007\u001b[2Jone\u009b31m\ntwo"}' '{"warn":"\u001b[31mred"}'
            printf '%s\n' '{"data":[["plain","text \u001b[5m"],["error","blinks\u202e\n"]]}' '{"failure":{"causes":["a\u001b[0mb"],"hints":[]}}'
            printf 'raw \033[31m noise\n' >&2; sleep 0.3; echo '{"ended":3}'"#;
        write("painter.sh", &format!("{pretend}{painted}\n"))?;
        write("newer.sh", &format!("{pretend}echo '{{\"ended\":42}}'; sleep 60\n"))?;
        // Says more than all pipes on the way and SSH's window (2 MiB) hold, and then waits to hear that somebody lives.
        let talks = "awk 'BEGIN {for (n = 0; n < 16000; n++) printf \"{\\\"say\\\":\\\"%0500d\\\"}\\n\", n}'";
        let until = |word: &str| format!("until [ \"$line\" = '\"{word}\"' ]; do read -r line || exit; done");
        let ends = "echo '{\"ended\":0}'; sleep 60\n";
        write("talker.sh", &format!("{pretend}{talks}\n{}; : >heard-alive\n{ends}", until("alive")))?;
        write("willing.sh", &format!("{pretend}: >begun\n{}\n{ends}", until("interrupt")))?;
        fs::create_dir(at.join("bin")).map_err(|error| error.to_string())?;
        script::write(at.join("bin/uname"), "#!/bin/sh\n[ \"$1\" = -s ] && echo Linux || echo aarch64\n");
        let sshd = process::find("sshd").ok_or("needs sshd")?;
        // As root it wants its empty directory.
        let _ = fs::create_dir_all("/run/sshd");
        // A port that is free may be somebody else's a moment later: then it is another one.
        let mut why = String::new();
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
            let port = free.map_err(|error| error.to_string())?.port();
            let config = format!(
                "{aliases}Host *\n HostName 127.0.0.1\n Port {port}\n IdentitiesOnly yes\n IdentityAgent none\n HostKeyAlias it\n \
                 UserKnownHostsFile {shown}/known\n"
            );
            write("config", &config)?;
            let config = format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {shown}/host-key\nAuthorizedKeysFile {shown}/authorized\n\
                 StrictModes no\nUsePAM no\nPidFile none\nMaxStartups 100\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\n"
            );
            write("sshd_config", &config)?;
            match serve(&sshd, at) {
                Ok(server) => return Ok(Server { directory, server }),
                Err(said) => why = said,
            }
        }
        Err(why)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn home(&self, name: &str) -> PathBuf {
        self.path().join(format!("home-{name}"))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = binary::command(self.path());
        command.args(words).args(["--ssh-config", "config"]).stdin(Stdio::null());
        command.env_remove("SSH_AUTH_SOCK").env("NO_COLOR", "1");
        command
    }

    /// Begins it; nobody reads what it says.
    fn begin(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
    }

    /// Waits until a machine has made a file of this name.
    fn until(&self, name: &str) {
        let began = Instant::now();
        while !self.path().join(name).exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing on the machine has made {name}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn run(&self, words: &[&str]) -> Run {
        self.command(words).output().expect("the binary runs").into()
    }
}

/// Starts the server of a directory and waits until it says that it listens; what it said, else.
fn serve(sshd: &Path, at: &Path) -> Result<Child, String> {
    let log = at.join("sshd.log");
    let output = fs::File::create(&log).map_err(|error| error.to_string())?;
    let mut command = Command::new(sshd);
    command.args(["-D", "-e", "-f"]).arg(at.join("sshd_config")).stderr(output);
    let mut server = command.spawn().map_err(|error| error.to_string())?;
    let began = Instant::now();
    loop {
        let ended = server.try_wait().is_ok_and(|ended| ended.is_some());
        let said = fs::read_to_string(&log).unwrap_or_default();
        if said.contains("Server listening on 127.0.0.1") {
            return Ok(server);
        }
        if ended || began.elapsed() > Duration::from_secs(60) {
            let _ = (server.kill(), server.wait());
            return Err(said);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The builds that a machine keeps.
fn builds(home: &Path) -> usize {
    fs::read_dir(home.join(".cache/penstock/bin")).map_or(0, Iterator::count)
}

fn one_machine() -> Outcome {
    let server = Server::start()?;
    let first = server.run(&["scan", "--json", "--host", "greeting"]);
    first.ended_with(0)?;
    let seen: Inventory = json::read_as(&first.stdout)?;
    let here: Run = binary::command(server.path()).args(["scan", "--json"]).output().expect("it runs").into();
    let here: Inventory = json::read_as(&here.stdout)?;
    assert_eq!((seen.kernel, seen.pfs), (here.kernel, here.pfs), "it is this very machine");
    assert!(first.stderr.contains("bringing penstock"), "{}", first.stderr);
    assert!(
        seen.lifelines.is_some_and(|lifelines| format!("{lifelines:?}").contains("Ssh")),
        "{}",
        first.stdout
    );
    let second = server.run(&["scan", "--host", "greeting"]);
    second.ended_with(0)?;
    assert!(!second.stderr.contains("bringing"), "it was there: {}", second.stderr);
    assert_eq!(builds(&server.home("greeting")), 1);
    Ok(())
}

fn several_machines() -> Outcome {
    let server = Server::start()?;
    fs::write(server.path().join("rack"), "# all of it\ngood\nother # spare\n\nrefusing\n").unwrap();
    let run = server.run(&["scan", "--json", "--hosts-from", "rack", "--host", "good"]);
    run.ended_with(8)?;
    let told = json::read(&run.stdout)?["hosts"].clone();
    assert_eq!(told.as_object().map(|hosts| hosts.len()), Some(3), "{told}");
    for name in ["good", "other"] {
        assert_eq!((&told[name]["exit"], &told[name]["outcome"]), (&0.into(), &"holds".into()), "{told}");
        assert!(told[name]["data"]["kernel"].is_object(), "{told}");
    }
    assert_eq!(told["refusing"]["exit"], 8, "{told}");
    assert!(told["refusing"]["error"].to_string().contains("refused"), "{told}");

    let run = server.run(&["status", "--host", "good,other"]);
    run.ended_with(0)?;
    for line in ["== good\n", "== other\n", "host   outcome "] {
        assert!(run.stdout.contains(line), "{}", run.stdout);
    }
    // One at a time, and none after one that failed.
    let words = ["scan", "--json", "--at-most", "1", "--stop-on-failure", "--host", "good,refusing,other"];
    let run = server.run(&words);
    run.ended_with(8)?;
    let told = json::read(&run.stdout)?["hosts"].clone();
    assert_eq!(
        (&told["good"]["exit"], &told["other"]["outcome"]),
        (&0.into(), &"not begun".into()),
        "{told}"
    );
    Ok(())
}

fn a_model() -> Outcome {
    let server = Server::start()?;
    let write = |text: &str| fs::write(server.path().join("m.yaml"), text).unwrap();
    // What is wrong in it is said before anybody is asked.
    write("nics: {NET0: {vfs: 1, loopbak: on}}\n");
    let run = server.run(&["plan", "m.yaml", "--host", "hanging"]);
    run.ended_with(2)?;
    assert!(run.stderr.contains("m.yaml:1:23") && run.stderr.contains("loopback"), "{}", run.stderr);
    // What does not fit the machine is said there, about the file here.
    write(
        "nics:\n  NET0: {match: {mac: \"02:00:00:00:ff:fe\"}, vfs: 1}\n\
         guests: {a: {functions: [NET0#0]}, b: {after: [a, a]}}\n",
    );
    for (verb, status) in [("plan", 6), ("check", 6), ("verify", 1)] {
        let run = server.run(&[verb, "m.yaml", "--host", "good"]);
        run.ended_with(status)?;
        assert!(run.stderr.contains("--> m.yaml:2:"), "{verb}: {}", run.stderr);
        // What it warns of is said here, and not once more there.
        assert_eq!(run.stderr.matches("b names a twice").count(), 1, "{verb}: {}", run.stderr);
    }
    // Of what has no end each line comes, as it does here.
    let words = "verify m.yaml --watch --for 1s --timeout 100ms --json --host good";
    let run = server.run(&words.split(' ').collect::<Vec<_>>());
    run.ended_with(1)?;
    let events: Vec<Value> =
        run.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>().expect("each line is JSON");
    let events: Vec<&Value> = events.iter().map(|line| &line["event"]).collect();
    assert!(events.first().is_some_and(|first| **first == "blind_spots"), "{events:?}: {}", run.stderr);
    assert!(events.iter().any(|event| **event == "state"), "{events:?}: {}", run.stderr);
    // It fits the terminal of the user, which the other machine does not see.
    let mut narrow = server.command(&["plan", "m.yaml", "--host", "good"]);
    let run: Run = narrow.env("COLUMNS", "50").output().expect("the binary runs").into();
    run.ended_with(6)?;
    let widest = run.stderr.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| (20..=50).contains(&widest)), "{widest:?}: {}", run.stderr);
    // A file that would be made beside the model cannot be.
    write(
        "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0], generate: [{template: json, to: beside.json}]}}\n",
    );
    let run = server.run(&["check", "m.yaml", "--host", "hanging"]);
    run.ended_with(2)?;
    assert!(run.stderr.contains("m.yaml:2:") && run.stderr.contains("--host"), "{}", run.stderr);
    Ok(())
}

fn unusable_machines() -> Outcome {
    let server = Server::start()?;
    let cases = [
        ("refusing", 8, "cannot be reached", "refused"),
        ("stranger", 8, "lets nobody in", "publickey"),
        ("unknown", 8, "host key that is not known here", "verification failed"),
        ("moved", 8, "another host key than before", "verification failed"),
        ("nologin", 8, "runs no shell", "status 1"),
        ("arm", 6, "aarch64", "built for it"),
        ("full", 4, "could not be written", "file system full"),
    ];
    for (name, status, what, more) in cases {
        let run = server.run(&["status", "--host", name]);
        run.ended_with(status)?;
        let said = &run.stderr;
        assert!(said.contains(name) && said.contains(what) && said.contains(more), "{name}: {said}");
        assert_eq!(run.stdout, "", "{name}");
    }
    let run = server.run(&["status", "--host", "-oProxyCommand=touch$IFS./harm"]);
    run.ended_with(2)?;
    let lone = server
        .command(&["status", "--host", "good"])
        .env("PATH", server.path())
        .env_remove("PENSTOCK_PATH")
        .output();
    let lone = Run::from(lone.expect("the binary runs"));
    lone.ended_with(4)?;
    assert!(lone.stderr.contains("there is no ssh here"), "{}", lone.stderr);
    Ok(())
}

fn hostile_machines() -> Outcome {
    let server = Server::start()?;
    for (name, what) in [("garbage", "what is this"), ("endless", "greeting")] {
        let run = server.run(&["status", "--host", name]);
        run.ended_with(8)?;
        assert!(
            run.stderr.contains(&format!("{name} sent an answer that cannot be parsed")),
            "{}",
            run.stderr
        );
        assert!(run.stderr.contains(what), "{}", run.stderr);
    }
    // The program there is another version's: what its status means is not known, and it is no success.
    let run = server.run(&["status", "--host", "newer"]);
    run.ended_with(8)?;
    assert!(run.stderr.contains("exit status 42, which this penstock does not know"), "{}", run.stderr);
    let run = server.run(&["undo", "--host", "newer"]);
    run.ended_with(7)?;
    assert!(run.stderr.contains("undo --list --host newer"), "{}", run.stderr);
    let run = server.run(&["status", "--host", "painter"]);
    run.ended_with(3)?;
    let all = format!("{}{}", run.stdout, run.stderr);
    assert!(!all.contains(|c: char| c.is_control() && c != '\n') && !all.contains('\u{202e}'), "{all:?}");
    for said in ["text blinks", "red", "error: ab", "raw  noise"] {
        assert!(all.contains(said), "{said}: {all:?}");
    }
    // Colours are those of this side, and come where it shows some.
    assert!(!run.stdout.contains('\u{1b}'), "{}", run.stdout);
    let colored = server.run(&["status", "--host", "painter", "--color", "always"]);
    assert!(colored.stdout.contains("\u{1b}[1m\u{1b}[31mblinks"), "{:?}", colored.stdout);
    assert!(!colored.stdout.contains("\u{1b}[5m"), "{:?}", colored.stdout);
    // Nobody else suffers from them.
    let run = server.run(&["status", "--json", "--host", "garbage,good,painter"]);
    run.ended_with(8)?;
    let told = json::read(&run.stdout)?["hosts"].clone();
    assert_eq!((&told["good"]["exit"], &told["painter"]["exit"]), (&0.into(), &8.into()), "{told}");
    assert_eq!(told["painter"]["data"], Value::Null, "what it printed is no JSON: {told}");
    Ok(())
}

fn an_output_that_nobody_reads() -> Outcome {
    let server = Server::start()?;
    let child = server.begin(&["status", "--host", "talker"]);
    server.until("heard-alive");
    // Then somebody reads on, and nothing is lost.
    let run = Run::from(child.wait_with_output().expect("it ends"));
    run.ended_with(0)?;
    assert!(run.stderr.contains(&format!("{:0500}\n", 15999)), "{} bytes", run.stderr.len());
    Ok(())
}

fn machines_not_begun() -> Outcome {
    let server = Server::start()?;
    let child = server.begin(&["status", "--at-most", "1", "--host", "willing,good"]);
    server.until("begun");
    binary::interrupt(&child);
    let run = Run::from(child.wait_with_output().expect("it ends"));
    run.ended_with(130)?;
    assert!(
        run.stdout.contains("willing  holds ") && run.stdout.contains("good     not begun"),
        "{}",
        run.stdout
    );
    Ok(())
}

fn a_machine_that_hangs() -> Outcome {
    let server = Server::start()?;
    let child = server.begin(&["status", "--host", "hanging"]);
    // Only then is it the machine that is waited for.
    server.until("reached");
    let began = Instant::now();
    binary::interrupt(&child);
    let run = Run::from(child.wait_with_output().expect("it ends"));
    run.ended_with(130)?;
    assert!(run.stderr.contains("hanging: interrupted before anything was done"), "{}", run.stderr);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    Ok(())
}
