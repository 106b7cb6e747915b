//! What a change leaves when it is killed, when the machine is reset, when its disk is full, and when nobody confirms it: on
//! boards, and read there without Penstock's help. `make bench` has more of the same.
#![allow(clippy::disallowed_methods)]

use std::{
    process::{Child, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_testkit::{
    binary::{self, Run},
    board::{KeptBoard, own_name},
    crash, json, needs,
    trials::{Failed, Outcome, Test, Trials},
};
use serde_json::Value;

const MADE: &str = "/root/made/a.json";

/// Within this time all comes true on a board that shares its processors with others.
const TIMEOUT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    // Each has a board of its own, and times that count.
    trials.one_at_a_time();
    let missing = trials.lacking("boards", needs::board);
    let tests: [(&str, Test); 2] = [
        ("a_change_that_is_killed_or_reset_leads_back_or_on_in_board", killed_or_reset),
        ("a_change_that_nobody_confirms_undoes_itself_in_board", nobody_confirms),
    ];
    trials.add(&missing, tests);
    trials.run()
}

fn model(machine: &str, mtu: u32) -> String {
    format!(
        "machine: {machine}\nnics: {{NET0: {{vfs: 2, mtu: {mtu}, defaults: {{spoofchk: on}}}}}}\n\
         guests: {{a: {{functions: [NET0#0], generate: [{{template: json, to: made/a.json}}]}}}}\n"
    )
}

fn state(board: &KeptBoard) -> Value {
    crash::state(board, &[MADE]).expect("the state is read")
}

fn assert_same(board: &KeptBoard, wanted: &Value, when: &str) {
    let differs = crash::differences(wanted, &state(board));
    assert!(differs.is_empty(), "{when}: {differs:#?}");
}

/// Starts a command in the board over a connection of its own.
fn start(board: &KeptBoard, words: &[&str]) -> Child {
    let mut command = binary::command(board.directory());
    command.args(["board", "ssh", board.name()]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary runs")
}

/// Each look is a connection of its own to a board that shares its processors with others.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn killed_or_reset() -> Outcome {
    let name = own_name("crash");
    let board = KeptBoard::up_with(&name, &model(&name, 1600), &["--keep-disk"])?;
    crash::furnish(&board)?;
    let before = state(&board);
    let apply = ["penstock", "apply", "--quiet", board.model()];
    let undo = ["penstock", "undo", "--quiet"];

    // Killed when the VFs are there, when an attribute is set, and when the guest runs.
    let steps = board.shell(&format!("penstock plan --json {}", board.model())).stdout;
    let steps = json::read(&steps)?["steps"].as_array().map_or(0, Vec::len);
    let last = format!("told:{steps}");
    let mut told = 0;
    crash::kill(&board, &["done:2", "begun:5", &last], &mut |moment| {
        assert!(moment.wrong.is_empty(), "{}: {:#?}", moment.name, moment.wrong);
        told += 1;
    })?;
    assert_eq!(told, 3);

    // A step that fails takes back those before it: the driver takes no such MTU.
    board.write("/root/wrong.yaml", &model(&name, 9300)).ended_with(0)?;
    let failed = board.inside(["penstock", "apply", "--quiet", "/root/wrong.yaml"]);
    failed.ended_with(5)?;
    assert_same(&board, &before, "after an apply that failed");

    // No room for the journal, or for the way back: from none at all to some. `campaign_in_board` fills the disk during a run.
    for pages in [2, 6, 40] {
        let mount = format!("mkdir -p /mnt; mount -t tmpfs -o size={pages}p tmpfs /mnt");
        board.shell(&mount).ended_with(0)?;
        let full = board.shell(&format!("PENSTOCK_JOURNAL=/mnt penstock apply --quiet {}", board.model()));
        match full.status {
            0 => board.shell("PENSTOCK_JOURNAL=/mnt penstock undo --quiet").ended_with(0)?,
            5 | 70 => assert!(full.stderr.contains("No space left"), "{}", full.stderr),
            _ => full.ended_with(5)?,
        }
        assert_same(&board, &before, &format!("with {pages} pages of disk, status {}", full.status));
        board.shell("umount /mnt").ended_with(0)?;
    }

    // Two at once: whoever comes second is told who is at it.
    let line = "penstock apply --quiet $0 >/tmp/one 2>&1 & one=$!; penstock apply --quiet $0 >/tmp/other 2>&1; other=$?; \
                wait $one; echo $? $other; cat /tmp/one /tmp/other";
    let both = board.inside(["sh", "-c", line, board.model()]).stdout;
    assert!(both.starts_with("0 9\n") || both.starts_with("9 0\n"), "{both}");
    assert!(both.contains("another penstock is changing this machine: `penstock apply"), "{both}");
    let wanted = state(&board);
    assert_ne!(before, wanted);
    board.inside(undo).ended_with(0)?;

    // Reset in the middle, and while it waits to be confirmed.
    let mut cut = start(&board, &apply);
    until("it has begun", || {
        board.shell("grep -q 2 /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs").status == 0
    });
    let reset = board.reset(&[]);
    let _ = (cut.kill(), cut.wait());
    reset.ended_with(0)?;
    assert_eq!(crash::torn(&board), "");
    board.inside(undo).ended_with(0)?;
    assert_same(&board, &before, "reset, and taken back");
    board.inside([&apply[..], &["--confirm-within", "10min"]].concat()).ended_with(0)?;
    board.reset(&[]).ended_with(0)?;
    let status = board.inside(["penstock", "status"]).stdout;
    assert!(status.contains("was not confirmed before the machine was reset"), "{status}");
    board.inside(["penstock", "confirm"]).ended_with(1)?;
    board.inside(apply).ended_with(0)?;
    assert_same(&board, &wanted, "reset while it waited, and applied again");
    board.inside(undo).ended_with(0)?;
    assert_same(&board, &before, "all is taken back");
    Ok(())
}

/// Over real sessions of a machine with systemd, where the end of a session ends what belongs to it.
fn nobody_confirms() -> Outcome {
    let name = own_name("confirm");
    let text = format!("machine: {name}\nnics: {{NET0: {{vfs: 2, mtu: 1600}}}}\n");
    let board = KeptBoard::up_with(&name, &text, &["--systemd"])?;
    let strict = "mkdir -p /run/systemd/logind.conf.d && \
                  printf '[Login]\\nKillUserProcesses=yes\\nKillExcludeUsers=\\n' >/run/systemd/logind.conf.d/k.conf && \
                  systemctl restart systemd-logind";
    board.shell(strict).ended_with(0)?;
    let numvfs = "/sys/bus/pci/devices/0000:01:00.0/sriov_numvfs";
    let vfs = || board.shell(&format!("cat {numvfs}")).stdout;
    let apply = |within: &str| format!("penstock apply --quiet {} --confirm-within {within}", board.model());
    let listed = || -> Result<String, Failed> {
        let list = board.inside(["penstock", "undo", "--list"]);
        list.ended_with(0)?;
        Ok(list.stdout)
    };

    // Confirmed from another session.
    let run: Run = board.shell(&apply("10min"));
    run.ended_with(0)?;
    assert!(run.stderr.contains("penstock confirm"), "{}", run.stderr);
    let guards = board.shell("systemctl list-units --no-legend 'penstock-guard-*'").stdout;
    assert!(guards.contains("penstock-guard-1"), "the guard is a service: {guards}");
    let shown =
        board.shell("systemctl show --property=IgnoreOnIsolate --property=Restart 'penstock-guard-*'");
    assert!(shown.stdout.contains("IgnoreOnIsolate=yes"), "{}", shown.stdout);
    assert!(shown.stdout.contains("Restart=on-failure"), "{}", shown.stdout);
    board.inside(["penstock", "confirm"]).ended_with(0)?;
    let guards_end = || {
        until("the guard ends", || {
            let units = board.shell("systemctl list-units --no-legend 'penstock-guard-*'");
            units.status == 0 && units.stdout.is_empty()
        });
    };
    guards_end();
    assert_eq!(vfs(), "2\n");
    board.inside(["penstock", "undo", "--quiet"]).ended_with(0)?;
    assert_eq!(vfs(), "0\n");

    // A VF that the host uses: its driver is bound anew for another VLAN, and its interface is as it was after that, and once more when
    // nobody confirms it.
    board.shell(&apply("10min")).ended_with(0)?;
    board.inside(["penstock", "confirm"]).ended_with(0)?;
    let vf = "basename /sys/bus/pci/devices/0000:01:00.0/virtfn0/net/*";
    let set_up = format!(
        "vf=$({vf}) && ip link set $vf up && ip address add 192.0.2.7/24 dev $vf && ip address add fd00::7/64 dev $vf nodad && \
         ip route add 198.51.100.0/24 via 192.0.2.1 dev $vf metric 50"
    );
    board.shell(&set_up).ended_with(0)?;
    let look_at_use = format!(
        "vf=$({vf}); echo $vf; ip -o address show $vf scope global; ip route show dev $vf; cat /sys/class/net/$vf/mtu"
    );
    let use_of = |seen: &str| {
        // The interface has another number whenever it is made anew, and its routes are marked `linkdown` until its driver has found
        // the link, which is up to two seconds after it was bound or set up.
        seen.lines()
            .map(|line| line.split_once(": ").map_or(line, |(_, line)| line))
            .map(|line| line.trim_end().trim_end_matches(" linkdown").trim().to_owned())
            .collect::<Vec<_>>()
    };
    let used = || use_of(&board.shell(&look_at_use).stdout);
    let before = used();
    assert!(before.iter().any(|line| line.starts_with("198.51.100.0/24 via 192.0.2.1")), "{before:?}");
    let tagged = text.replace("mtu: 1600", "mtu: 1600, defaults: {vlan: 100}");
    board.write("/root/tagged.yaml", &tagged).ended_with(0)?;
    let look_at_vlan = "ip link show dev $(basename /sys/bus/pci/devices/0000:01:00.0/net/*)";
    let vlan = || board.shell(look_at_vlan).stdout;
    // In the same shell, so that the time is not over before all is looked at, however busy the machine.
    let run = board.shell(&format!(
        "penstock apply --quiet /root/tagged.yaml --confirm-within 15s || exit; {look_at_vlan}; echo ==; {look_at_use}"
    ));
    run.ended_with(0)?;
    let (tagged, then) = run.stdout.split_once("==\n").ok_or("nothing was looked at")?;
    assert!(tagged.contains("vlan 100"), "{tagged}");
    assert_eq!(use_of(then), before, "its driver was bound anew");
    until("the VLAN is taken back", || !vlan().contains("vlan 100") && used() == before);
    // Until it has ended, it keeps others from changing the machine.
    guards_end();
    board.inside(["penstock", "undo", "--quiet"]).ended_with(0)?;
    assert_eq!(vfs(), "0\n");

    // Every session of the user is ended, with all that belongs to it, while the run waits.
    let end_sessions = "loginctl terminate-user root";
    let run = board.shell(&format!("{} && cat {numvfs}", apply("15s")));
    run.ended_with(0)?;
    assert_eq!(run.stdout.lines().last(), Some("2"));
    board.shell(end_sessions);
    until("it is taken back", || vfs() == "0\n");
    guards_end();
    board.inside(["penstock", "confirm"]).ended_with(1)?;

    // The guard itself is killed: systemd starts it again.
    let kill = "systemctl kill --signal=KILL 'penstock-guard-*'";
    let run = board.shell(&format!("{} && {kill} && cat {numvfs}", apply("15s")));
    run.ended_with(0)?;
    assert_eq!(run.stdout.lines().last(), Some("2"));
    until("it is taken back", || vfs() == "0\n");
    guards_end();
    board.inside(["penstock", "confirm"]).ended_with(1)?;

    // The end of sessions in the middle; then nobody but the guard is left, as when it is killed.
    for (nth, end) in (1..).zip([end_sessions, "kill -9 $(pgrep -f '^penstock apply')"]) {
        let when = "while read n <$0 && [ $n = 0 ]; do :; done; ";
        let words = ["systemd-run", "--quiet", "sh", "-c", &format!("{when}{end}"), numvfs];
        board.inside(words).ended_with(0)?;
        let run = board.shell(&format!("exec {}", apply("20min")));
        assert_ne!(run.status, 0, "it was ended: {}", run.stderr);
        let again = || {
            let list = listed().unwrap_or_default();
            let cut_off: Vec<&str> = list.lines().filter(|line| line.contains("20min")).collect();
            cut_off.len() == nth && cut_off.iter().all(|line| line.contains("nothing of it is left"))
        };
        until("what was cut off is taken back", || vfs() == "0\n" && again());
        guards_end();
    }
    let list = listed()?;
    assert!(!list.contains("waits") && !list.contains("cut off"), "{list}");
    Ok(())
}
