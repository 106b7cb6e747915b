//! What a session makes of what comes from the other side.

use super::*;

#[test]
fn why_no_directory_keeps_the_program_is_told_apart() {
    let hint = |why: &str| {
        let said =
            format!("penstock-T machine Linux {} 1000\npenstock-T noplace {why}\n", std::env::consts::ARCH);
        let over = take_output("T", said.as_bytes(), true, &mut |_| {}).unwrap();
        assert_eq!(over.status, Status::Missing);
        over.trouble.unwrap().hints.join("\n")
    };
    assert!(hint("/a: mkdir: cannot create directory '/a': No space left on device").contains("full"));
    assert!(hint("/a: sudo: a password is required").contains("sudo there lets it run any program"));
}

/// A session at this stage in which nothing was said, with what it tells.
fn at<T>(stage: Stage, act: impl FnOnce(&mut Session<'_>) -> T) -> (T, Vec<Event>) {
    let (host, job) = ("node-1".parse().unwrap(), Job::of_nothing(false));
    let mut told = Vec::new();
    let mut tell = |event| told.push(event);
    let mut session = Session::new(&host, &job, &mut tell, "T".to_owned(), Mouth { to: None });
    session.stage = stage;
    let done = act(&mut session);
    (done, told)
}

#[test]
fn endless_empty_lines_come_to_an_end() {
    let (over, told) = at(Stage::Running, |session| {
        session.size = MOST - 10 * EVENT;
        (0..100).find_map(|_| session.hear(Heard::Error(Vec::new())))
    });
    assert_eq!(over.and_then(|over| over.what), Some("nonsense"));
    assert_eq!(told.len(), 11);
    // A machine that says for months no more than that it lives takes nothing.
    let (size, _) = at(Stage::Running, |session| {
        assert!(session.hear(Heard::Output(b"\"alive\"".to_vec())).is_none());
        session.size
    });
    assert_eq!(size, 7);
}

#[test]
fn whatever_is_wrong_with_a_machine_begins_with_its_name() {
    let arch = std::env::consts::ARCH;
    let machine = |account| format!("penstock-T machine Linux {arch} {account}\n");
    let root = machine("0");
    let said = [
        "penstock-T machine Plan9 vax 0\n".to_owned(),
        machine("1000"),
        format!("{root}penstock-T sudo no\n"),
        format!("{root}penstock-T noplace no\n"),
        format!("{root}penstock-T short no\n"),
        format!("{root}penstock-T spoilt\n"),
        format!("{root}penstock-T broken no\n"),
        format!("{root}penstock-T ready\nno JSON\n"),
        format!("{root}penstock-T ready\n{{\"ended\":42}}\n"),
        "welcome\n".repeat(GREETING + 1),
    ];
    let said = said.iter().map(|said| take_output("T", said.as_bytes(), false, &mut |_| {}).expect(said));
    let ended = |stage, code| {
        move |complaint: &str| {
            let end = |session: &mut Session<'_>| {
                session.complaints.push(complaint.to_owned());
                session.cut_off(Some((code, Instant::now())))
            };
            at(stage, end).0
        }
    };
    let stages = [Stage::Connecting, Stage::Preparing, Stage::Running];
    let cut_off = stages.iter().flat_map(|stage| {
        let ends = [Some(ssh::FAILED), Some(1), None].map(|code| ended(*stage, code));
        ends.into_iter().flat_map(|end| ["no", "Connection reset"].map(end))
    });
    let looked = stages.iter().flat_map(|stage| {
        let long_ago = Instant::now().checked_sub(TIMEOUT.max(LOGIN)).unwrap();
        [0, 1, 2].map(|interrupts| {
            let look = |session: &mut Session<'_>| {
                (session.began, session.last) = (long_ago, long_ago);
                let wish = Wish::default();
                for _ in 0..interrupts {
                    wish.interrupt();
                }
                session.look(&wish).expect("it is over")
            };
            at(*stage, look).0
        })
    });
    for over in said.chain(cut_off).chain(looked) {
        let causes = over.trouble.expect("it says why").causes;
        let first = causes.first().unwrap();
        assert!(first.starts_with("node-1: ") || first.starts_with("node-1 "), "{first}");
    }
}

#[test]
fn an_account_that_is_not_roots_changes_nothing_without_sudo() {
    let said = format!("penstock-T machine Linux {} 1000\n", std::env::consts::ARCH);
    let by = |sudo| take_output("T", said.as_bytes(), sudo, &mut |_| {});
    assert_eq!(by(false).and_then(|over| over.what), Some("not root"));
    assert_eq!(by(true), None);
}

#[test]
fn a_command_that_a_machine_names_is_told_with_the_way_there() {
    let hints = |hint: &str| {
        let failure = Reply::Failure { causes: vec!["no".to_owned()], hints: vec![hint.to_owned()] };
        let line = String::from_utf8(encode(&failure)).unwrap();
        let (_, mut told) = at(Stage::Running, |session| session.penstock_says(&line));
        let Some(Event::Reply(Reply::Failure { hints, .. })) = told.pop() else { panic!("{told:?}") };
        hints
    };
    let confirm = "`penstock confirm 3` keeps it";
    assert_eq!(hints(confirm), [confirm, "from here add to such a command: --host node-1"]);
    assert_eq!(hints("wait"), ["wait"]);
}
