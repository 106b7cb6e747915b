//! Whether a VF inside a container has the address that its PF keeps for it, and a link, after each of many binds on a board whose
//! CPUs all have other work: read with `ip` inside, without Penstock's help.

use std::{fs, path::Path, time::Instant};

use penstock_testkit::board::{KeptBoard, own_name};
use serde_json::Value;

/// VFs of the container, which are bound side by side.
const VFS: usize = 7;
/// How often they are bound: more than 100 binds in all.
const ROUNDS: usize = 15;
/// Threads for each CPU that have nothing to wait for.
const LOAD: usize = 2;

/// What came of the binds on one kernel.
#[derive(Debug, Default)]
pub struct Counted {
    /// How many VFs were bound.
    pub binds: usize,
    /// How many of them had another address than their PF keeps.
    pub wrong: usize,
    /// How many had no link, right away or five seconds later, though their PF had one.
    pub without_link: usize,
    /// How many starts `penstock` said had failed.
    pub failed: usize,
    /// How long each round took, in seconds.
    pub seconds: Vec<f64>,
}

fn model(machine: &str, kernel: &str) -> String {
    let functions: Vec<String> = (0..VFS).map(|vf| format!("NET0#{vf}")).collect();
    format!(
        "machine: {machine}\nnics: {{NET0: {{vfs: {VFS}, loopback: on}}}}\n\
         guests: {{a: {{functions: [{}]}}}}\nboard: {{kernel: {kernel}, cpus: 2}}\n",
        functions.join(", ")
    )
}

/// Binds them again and again on a board with this kernel.
pub fn count(kernel: &str) -> Counted {
    let name = own_name(&format!("binds-{kernel}"));
    let board = KeptBoard::up(&name, &model(&name, kernel)).expect("the board comes up");
    let load = format!(
        "for n in $(seq $(({LOAD} * $(nproc)))); do setsid sh -c 'while :; do :; done' >/dev/null 2>&1 </dev/null & done"
    );
    board.shell(&load).ended_with(0).expect("the load is started");
    let mut counted = Counted::default();
    for round in 0..ROUNDS {
        let began = Instant::now();
        let verb = if round == 0 { "apply" } else { "start" };
        let started = board.inside(["penstock", verb, "--quiet", board.model()]);
        counted.seconds.push(began.elapsed().as_secs_f64());
        counted.binds += VFS;
        let seen = if started.status == 0 {
            let (wrong, without_link, seen) = look(&board);
            counted.wrong += wrong;
            counted.without_link += without_link;
            (wrong + without_link > 0).then_some(seen)
        } else {
            counted.failed += 1;
            eprintln!("{verb} ended with {}: {}", started.status, started.stderr);
            Some(format!("{verb} ended with {}:\n{}", started.status, started.stderr))
        };
        if let Some(seen) = seen {
            keep(&board, kernel, round, &seen);
        }
        println!("{kernel} kernel, round {round}: {:.0} s, {counted:?}", began.elapsed().as_secs_f64());
        if round + 1 < ROUNDS {
            board.inside(["penstock", "stop", "--quiet", board.model()]).ended_with(0).expect("it stops");
        }
    }
    counted
}

/// Keeps what was seen of a bind that is not as it should be, with the board's kernel log, beside the build.
fn keep(board: &KeptBoard, kernel: &str, round: usize, seen: &str) {
    let log = board.shell("cat /proc/uptime; dmesg");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("binds-{kernel}-{round}.txt"));
    match fs::write(&path, format!("{seen}\n\n{}{}", log.stdout, log.stderr)) {
        Ok(()) => eprintln!("kept, with the board's kernel log: {}", path.display()),
        Err(error) => eprintln!("what was seen could not be kept in {}: {error}\n{seen}", path.display()),
    }
}

/// How many VFs inside have another address than their PF keeps for them, and how many have no link now or five seconds later; and all
/// that was seen.
fn look(board: &KeptBoard) -> (usize, usize, String) {
    let links = |line: &str| -> Vec<Value> {
        let run = board.shell(line);
        run.ended_with(0).expect("a line of shell in the board");
        serde_json::from_str(&run.stdout).expect("`ip` prints JSON")
    };
    let inside = "nsenter -t $(lxc-info -P /run/penstock/guests -n penstock-a -pH) -n ip -j link";
    let pf = links("ip -j link show dev $(ls /sys/bus/pci/devices/0000:01:00.0/net)");
    let kept: Vec<&Value> =
        pf[0]["vfinfo_list"].as_array().into_iter().flatten().map(|vf| &vf["address"]).collect();
    // Nothing that is not an address may count as one that is the same.
    let told = kept.iter().filter(|mac| mac.as_str().is_some_and(|mac| mac.len() == 17)).count();
    assert_eq!(told, VFS, "{pf:?}");
    let now = links(inside);
    let later = links(&format!("sleep 5; {inside}"));
    let of_vf = |link: &&Value| link["ifname"] != "lo";
    let seen: Vec<&Value> = later.iter().filter(of_vf).map(|link| &link["address"]).collect();
    let wrong = kept.iter().filter(|mac| !seen.contains(mac)).count();
    let is_linked = |link: &Value| {
        link["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "LOWER_UP"))
    };
    let linked = |name: &Value| {
        [&now, &later].iter().all(|links| links.iter().any(|link| link["ifname"] == *name && is_linked(link)))
    };
    let without = later.iter().filter(of_vf).filter(|link| !linked(&link["ifname"])).count();
    let all = [("PF", &pf), ("inside, now", &now), ("inside, 5 s later", &later)];
    let all = all.map(|(what, links)| format!("{what}:\n{}", Value::from(links.clone())));
    (wrong, without + VFS.saturating_sub(seen.len()), all.join("\n"))
}
