//! Whose run `confirm` keeps where it is given no number.

use penstock_apply::{
    Journal,
    history::{Confirm, Confirmation, Decision, Outcome, Purpose, RunRecord, Runs, Who, decision},
    journal::{Entry, JOURNAL_VERSION},
};
use penstock_host::{
    Command, Root, accounts, boot, running::Running, scan::lifelines::ssh_connection_as_told,
};
use penstock_plan::{FunctionAction, Plan, StepId};

const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock");

/// What `SSH_CONNECTION` is for the operator whose run waits, and for another one.
const OWN: &str = "192.0.2.1 50000 192.0.2.9 22";
const OTHER: &str = "192.0.2.2 50000 192.0.2.9 22";

/// A run that waits to be confirmed.
struct Waiting {
    directory: tempfile::TempDir,
}

impl Waiting {
    fn of(user: String) -> Waiting {
        Waiting::from(user, "192.0.2.1")
    }

    /// One that was begun from this address.
    fn from(user: String, peer: &str) -> Waiting {
        let waiting = Waiting::begun(user, peer);
        let (all, _) = waiting.runs().list().unwrap();
        all[0].end(&Outcome { ended: 1, boottime: 1, error: None }).unwrap();
        waiting
    }

    /// One of which whoever did it was killed, at its first step.
    fn cut_off() -> Waiting {
        let waiting = Waiting::begun(accounts::this_user(), "192.0.2.1");
        let count = |count| FunctionAction::SetVfCount { pf: "0000:04:00.0".parse().unwrap(), count }.into();
        let entries = [
            Entry::Begin { version: JOURNAL_VERSION, steps: 1 },
            Entry::Intent { step: StepId(1), action: count(8), inverse: Some(count(0)) },
            Entry::Begun { steps: vec![StepId(1)] },
        ];
        let (all, _) = waiting.runs().list().unwrap();
        all[0].journal().unwrap().record(&entries, true).unwrap();
        waiting
    }

    fn runs(&self) -> Runs {
        Runs::new(self.directory.path().join("kept"), boot::id(&Root::system()))
    }

    fn begun(user: String, peer: &str) -> Waiting {
        let directory = tempfile::tempdir().unwrap();
        let process = Running { id: 1, started: u64::MAX };
        let command = vec!["penstock".to_owned(), "apply".to_owned()];
        let who = Who { process, user, command, since: 0, terminal: None, peer: Some(peer.to_owned()) };
        let confirm = Some(Confirm { within: 600_000, at_most: 600_000 });
        let record = RunRecord { confirm, ..RunRecord::new(Purpose::Apply, who) };
        let waiting = Waiting { directory };
        waiting.runs().create(record, &Plan::default(), None).unwrap();
        waiting
    }

    /// Runs a command as somebody over this connection; gives how it ended and what it said.
    fn ask(&self, command: Command, connection: &str) -> (Option<i32>, String) {
        let command = command.env("NO_COLOR", "1").env("SSH_CONNECTION", connection).env("SUDO_USER", "");
        let command = command.env("PENSTOCK_STATE", self.directory.path().join("state"));
        let output = command.env("PENSTOCK_JOURNAL", self.directory.path().join("kept")).run().unwrap();
        (output.status.code(), output.text() + &output.errors())
    }

    fn confirm(&self, words: &[&str], connection: &str) -> (Option<i32>, String) {
        self.ask(Command::new(PROGRAM).arg("confirm").args(words), connection)
    }

    /// As `sudo` of `mara` runs it, which keeps `SSH_CONNECTION` to itself.
    fn confirm_by_sudo(&self, connection: &str) -> (Option<i32>, String) {
        let line = "SUDO_USER=mara SSH_CONNECTION= \"$0\" confirm; exit $?";
        self.ask(Command::new("sh").args(["-c", line, PROGRAM]), connection)
    }
}

/// Whoever did it was killed: `confirm`, `undo --list` and `status` agree that nobody can keep it.
#[test]
fn a_run_that_was_cut_off_waits_for_nobody() {
    let waiting = Waiting::cut_off();
    let (status, said) = waiting.confirm(&["1"], OWN);
    assert!(status == Some(1) && said.contains("run 1 was cut off before it came to its end"), "{said}");
    let (_, said) = waiting.confirm(&["7"], OWN);
    assert!(said.contains("no run waits to be confirmed"), "{said}");
    let (status, said) = waiting.ask(Command::new(PROGRAM).args(["undo", "--list", "--json"]), OWN);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("\"waits_for_confirmation\": false"), "{said}");
    assert!(said.contains("\"is_to_go\": true"), "{said}");
    let (_, said) = waiting.ask(Command::new(PROGRAM).arg("status"), OWN);
    let cut_off = "Run 1 was to be confirmed, and was cut off before it came to its end: its guard takes back what it did";
    assert!(said.contains(cut_off) && !said.contains("goes on"), "{said}");
    let (_, said) = waiting.ask(Command::new(PROGRAM).args(["status", "--json"]), OWN);
    let told: String = said.split_whitespace().collect();
    assert!(told.contains(r#""half_way":[1],"cut_off":[1],"open":[]"#), "{said}");
    // One that has come to its end does wait, for all of them.
    let waiting = Waiting::of(accounts::this_user());
    let (_, said) = waiting.confirm(&["7"], OWN);
    assert!(said.contains("run 1 waits to be confirmed"), "{said}");
    let (_, said) = waiting.ask(Command::new(PROGRAM).args(["undo", "--list", "--json"]), OWN);
    assert!(said.contains("\"waits_for_confirmation\": true"), "{said}");
    assert!(said.contains("\"is_to_go\": false"), "{said}");
}

/// A run that was taken back long ago: nobody is told a way to keep it, and that of others which stand is not denied.
#[test]
fn who_comes_too_late_is_told_so_whoever_they_are() {
    let waiting = Waiting::of(accounts::this_user());
    let (all, _) = waiting.runs().list().unwrap();
    let who = all[0].record.who.clone();
    let expired = Decision { verdict: Confirmation::Expired, who: who.clone(), at: 1 };
    decision::decide(&all[0].directory, expired).unwrap();
    for connection in [OWN, OTHER] {
        let (status, said) = waiting.confirm(&[], connection);
        assert!(status == Some(1) && said.contains("too late: nobody confirmed run 1 in time"), "{said}");
        assert!(!said.contains("keeps it") && !said.contains("was begun by"), "{said}");
    }
    let (status, said) = waiting.ask(Command::new(PROGRAM).args(["undo", "1"]), OWN);
    assert!(status == Some(0) && said.contains("Nothing to undo: nothing of run 1 is left."), "{said}");

    // Of one that was kept, who did not begin it hears that; it is no answer to "is mine kept".
    let waiting = Waiting::of(accounts::this_user());
    let (all, _) = waiting.runs().list().unwrap();
    decision::decide(&all[0].directory, Decision { verdict: Confirmation::Confirmed, who, at: 1 }).unwrap();
    let (status, said) = waiting.confirm(&[], OTHER);
    assert!(status == Some(1) && said.contains("run 1 was confirmed before"), "{said}");
    assert!(!said.contains("keeps it"), "{said}");

    let waiting = Waiting::cut_off();
    let (status, said) = waiting.confirm(&[], OTHER);
    assert!(
        status == Some(1) && said.contains("cannot be confirmed") && !said.contains("keeps it"),
        "{said}"
    );
}

/// While it is taken back, or an apply goes on from it, nobody is asked to do so.
#[test]
fn a_run_that_somebody_is_at_work_on_is_not_offered_to_others() {
    let process = Running::this().unwrap();
    for (purpose, supersedes, is) in [
        (Purpose::Undo(vec!["1".parse().unwrap()]), vec![], "Run 1 is being taken back."),
        (Purpose::Apply, vec!["1".parse().unwrap()], "Run 1 is what somebody goes on from right now."),
    ] {
        let waiting = Waiting::cut_off();
        let (all, _) = waiting.runs().list().unwrap();
        let earlier = all[0].record.who.clone();
        let expired = Decision { verdict: Confirmation::Expired, who: earlier.clone(), at: 1 };
        decision::decide(&all[0].directory, expired).unwrap();
        let (_, said) = waiting.ask(Command::new(PROGRAM).arg("status"), OWN);
        assert!(said.contains("Run 1 left this machine half-way"), "{said}");
        let record = RunRecord { supersedes, ..RunRecord::new(purpose, Who { process, ..earlier }) };
        waiting.runs().create(record, &Plan::default(), None).unwrap();
        let (_, said) = waiting.ask(Command::new(PROGRAM).arg("status"), OWN);
        assert!(said.contains(is) && !said.contains("half-way"), "{said}");
    }
}

#[test]
fn where_everybody_is_root_the_address_tells_whose_run_it_is() {
    let user = accounts::this_user();
    let waiting = Waiting::of(user.clone());
    // Without the variable it is that of whoever runs this test, if anybody has one.
    let tester = ssh_connection_as_told().and_then(|text| text.split([' ', '%']).next().map(str::to_owned));
    let tester = tester.map_or(user.clone(), |peer| format!("{user} from {peer}"));
    for (connection, who) in [(OTHER, format!("{user} from 192.0.2.2")), ("", tester)] {
        let (status, said) = waiting.confirm(&[], connection);
        let refused =
            format!("run 1 was begun by {user} from 192.0.2.1, and not by {who}: nothing is confirmed");
        assert!(status == Some(1) && said.contains(&refused), "{said}");
        assert!(said.contains("penstock confirm 1"), "{said}");
    }
    let (status, said) = waiting.confirm(&[], OWN);
    assert!(status == Some(0) && said.contains("Run 1 is confirmed"), "{said}");
    // Who names it means it, from wherever.
    let waiting = Waiting::of(user);
    let (status, said) = waiting.confirm(&["1"], OTHER);
    assert!(status == Some(0) && said.contains("Run 1 is confirmed"), "{said}");
}

#[test]
fn the_address_is_known_behind_sudo_also() {
    let waiting = Waiting::of(format!("{} (mara)", accounts::this_user()));
    let (status, said) = waiting.confirm_by_sudo(OTHER);
    assert!(status == Some(1) && said.contains("(mara) from 192.0.2.2: nothing is confirmed"), "{said}");
    let (status, said) = waiting.confirm_by_sudo(OWN);
    assert!(status == Some(0) && said.contains("Run 1 is confirmed"), "{said}");
}

/// `su -`, `doas` and `sudo su -` clear `SUDO_USER` as they clear the rest: two admins are both root then, and no caller more.
#[test]
fn the_address_is_known_where_nothing_of_the_environment_is_left() {
    let waiting = Waiting::of(accounts::this_user());
    let clean = |connection| {
        let line = "SSH_CONNECTION= \"$0\" confirm; exit $?";
        waiting.ask(Command::new("sh").args(["-c", line, PROGRAM]), connection)
    };
    let (status, said) = clean(OTHER);
    assert!(status == Some(1) && said.contains("from 192.0.2.2: nothing is confirmed"), "{said}");
    let (status, said) = clean(OWN);
    assert!(status == Some(0) && said.contains("Run 1 is confirmed"), "{said}");
}

/// A shell that `sudo` runs keeps nothing of the connection in its own environment.
#[test]
fn the_address_is_known_in_a_shell_of_sudos_also() {
    let waiting = Waiting::of(format!("{} (mara)", accounts::this_user()));
    let inner = r#"SSH_CONNECTION= sh -c '"$0" confirm; exit $?' "$0"; exit $?"#;
    let line =
        format!("SUDO_USER=mara SSH_CONNECTION= sh -c '{}' \"$0\"; exit $?", inner.replace('\'', r"'\''"));
    let by_shell = |connection| waiting.ask(Command::new("sh").args(["-c", &line, PROGRAM]), connection);
    let (status, said) = by_shell(OTHER);
    assert!(status == Some(1) && said.contains("(mara) from 192.0.2.2: nothing is confirmed"), "{said}");
    let (status, said) = by_shell(OWN);
    assert!(status == Some(0) && said.contains("Run 1 is confirmed"), "{said}");
}

#[test]
fn an_address_of_a_link_is_the_same_whatever_its_interface_is_called_by_now() {
    let waiting = Waiting::from(accounts::this_user(), "fe80::1");
    let (status, said) = waiting.confirm(&[], "fe80::2%uplink0 50000 fe80::9%uplink0 22");
    assert!(status == Some(1) && said.contains("from fe80::2: nothing is confirmed"), "{said}");
    let (status, said) = waiting.confirm(&[], "fe80::1%uplink0 50000 fe80::9%uplink0 22");
    assert!(status == Some(0) && said.contains("Run 1 is confirmed"), "{said}");
}
