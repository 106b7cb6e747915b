//! Incus itself, of Debian, on a board whose igb NIC has VFs: it reads what `export` writes, its instances have what the model says, `verify`
//! sees that from inside them, and `import` makes the model again of what Incus prints.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use penstock_host::{Command, process::Background};
use penstock_testkit::{
    board::{KeptBoard, own_name},
    needs::{self, Lack},
    trials::{Failed, Outcome, Test, Trials},
    unpacked::{self, INCUS, tree},
};
use serde_json::Value;

/// Incus with its daemon, and VFs whose interfaces have lasting names, by which it looks for them.
const START: &str = r#"set -e
ldconfig
groupadd -f incus-admin
echo root:1000000:1000000 | tee /etc/subuid > /etc/subgid
/usr/lib/systemd/systemd-udevd --daemon 2>/dev/null
udevadm trigger --subsystem-match=net --settle
pf=$(dirname /sys/bus/pci/drivers/igb/*/sriov_numvfs)
ip link set $(ls $pf/net) up
echo 4 > $pf/sriov_numvfs
for try in $(seq 300); do [ $(ls -d $pf/virtfn*/net/*v? 2>/dev/null | wc -l) = 4 ] && break; sleep 0.1; done
mkdir -p /var/lib/incus /var/log/incus
/usr/libexec/incus/incusd --group incus-admin > /var/log/incus/said 2>&1 < /dev/null &
for try in $(seq 600); do incus query local:/1.0 > /dev/null 2>&1 && break; sleep 0.1; done
ls $pf/net"#;

/// A place for instances, and an image of one program.
const IMAGE: &str = r#"set -e
incus storage create default dir < /dev/null
incus profile device add default root disk path=/ pool=default < /dev/null
mkdir -p /root/i/rootfs
cd /root/i/rootfs
mkdir bin sbin dev proc sys etc root tmp run usr var
cp $(command -v busybox) bin/
for name in sh sleep; do ln -s busybox bin/$name; done
printf '#!/bin/sh\ntrap "exit 0" TERM PWR\nwhile :; do sleep 1; done\n' > sbin/init
chmod +x sbin/init
cd ..
printf 'architecture: x86_64\ncreation_date: 1\n' > metadata.yaml
tar -czf ../i.tar.gz metadata.yaml rootfs
incus image import ../i.tar.gz --alias small -q < /dev/null"#;

/// The first member of a cluster, and what lets the second one in. A member that is slow because this machine is busy stays one.
const CLUSTER: &str = "set -e
incus config set core.https_address 127.0.0.1:8443 < /dev/null
incus cluster enable first < /dev/null > /dev/null
incus config set cluster.offline_threshold 600 < /dev/null
incus cluster add second --quiet < /dev/null";

/// Where each member listens: all of it goes through tunnels, in which each board finds the other on its own loopback interface.
const PORTS: [u16; 2] = [8443, 8444];

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", || needs::board().or_else(lacking));
    let tests: [(&str, Test); 2] = [
        ("incus_runs_what_was_exported_in_board", incus_runs_what_was_exported),
        ("each_member_of_a_cluster_of_incus_runs_its_model_in_board", each_member_runs_its_model),
    ];
    trials.add(&missing, tests);
    trials.run()
}

fn lacking() -> Option<Lack> {
    unpacked::lacking(INCUS, &["usr/libexec/incus/incusd", "usr/bin/incus"])
}

struct Bench {
    board: KeptBoard,
    /// The PF's interface.
    pf: String,
}

impl Bench {
    /// A board on which Incus runs.
    fn up(name: &str, guests: &str) -> Result<Bench, Failed> {
        let model = format!(
            "machine: {name}\nnics: {{NET0: {{vfs: 4}}}}\nguests:\n{guests}board: {{emulation: {{NET0: igb}}}}\n"
        );
        let mut bench = Bench { board: KeptBoard::up(name, &model)?, pf: String::new() };
        bench.board.put_usr(&tree(INCUS))?;
        bench.board.say(START)?.trim().clone_into(&mut bench.pf);
        Ok(bench)
    }

    /// Writes the profiles of the model's guests; what was written and said.
    fn export(&self) -> Result<String, Failed> {
        self.board.say(&format!(
            "penstock export --to incus --output /root/out {} 2>&1 && cat /root/out/*",
            self.board.model()
        ))
    }

    fn launch(&self, guest: &str, options: &str) -> Result<String, Failed> {
        self.board.say(&format!(
            "incus profile create penstock-{guest} < /root/out/penstock-{guest}.profile.yaml && \
             incus launch small {guest} --profile default --profile penstock-{guest} -q {options} < /dev/null"
        ))
    }

    /// What does not hold of the model, and what `verify` notes.
    fn verify(&self) -> Result<(Vec<Value>, String), Failed> {
        let run = self.board.shell(&format!("penstock verify --json {}", self.board.model()));
        let told: Value = serde_json::from_str(&run.stdout)
            .map_err(|error| format!("{error}: {}{}", run.stdout, run.stderr))?;
        let verdicts = told["verdicts"].as_array().ok_or_else(|| format!("no verdicts: {told}"))?;
        if verdicts.len() < 12 {
            return Err(format!("few verdicts: {told}").into());
        }
        let wrong = verdicts.iter().filter(|verdict| verdict["outcome"] != "pass").cloned();
        Ok((wrong.collect(), run.stderr))
    }
}

fn incus_runs_what_was_exported() -> Outcome {
    let web = "  web:\n    cpus: 1\n    memory: 256MiB\n    functions:\n      - {vf: NET0#0, mac: 02:00:00:00:77:01, vlan: 100, mtu: 1400, interface: data0, spoofchk: on}\n\
               \x20     - {vf: NET0#1, interface: plain0, spoofchk: off}\n";
    let bench = Bench::up(&own_name("incus"), &format!("{web}  db: {{functions: [{{vf: NET0#3}}]}}\n"))?;
    bench.board.say(IMAGE)?;
    let pf = &bench.pf;
    let exported = bench.export()?;
    assert!(exported.contains(&format!("parent: '{pf}'")), "{exported}");
    // It does so indeed, below.
    assert!(exported.contains("that the spoof check of VF 3 stays as it is"), "{exported}");
    bench.launch("web", "")?;
    bench.launch("db", "")?;

    // The third VF was free, which the model has not given to anybody.
    let (wrong, said) = bench.verify()?;
    assert_eq!(wrong, Vec::<Value>::new(), "{said}");
    let otherwise = "Incus gave db NET0#2 as eth0, where the model has NET0#3";
    assert!(said.contains("Incus runs web") && said.contains(otherwise), "{said}");

    let db = bench.board.say(&format!("ip link show {pf} | grep 'vf 2 '"))?;
    assert!(db.contains("spoof checking off"), "{db}");

    // What Incus prints of its instances is the model again; which VF is meant is told by addresses that are derived.
    bench.board.say("incus list --format yaml > /root/list.yaml")?;
    let imported = bench.board.say("penstock import --from incus /root/list.yaml 2>/root/said")?;
    for line in [
        // Incus was told of the limits, and goes by them.
        "memory: \"256MiB\"\n    cpus: 1\n".to_owned(),
        format!(
            "- {{vf: \"{pf}#0\", mac: \"02:00:00:00:77:01\", vlan: 100, spoofchk: on, interface: \"data0\", mtu: 1400}}"
        ),
        format!("- {{vf: \"{pf}#1\", spoofchk: off, interface: \"plain0\"}}"),
        // Incus turns it off where nobody says anything of it.
        format!("- {{vf: \"{pf}#3\", spoofchk: off, interface: \"eth0\"}}"),
    ] {
        assert!(imported.contains(&line), "{line} is not in {imported}");
    }

    // Started in another order, each has another VF; all that was asked for is there all the same.
    bench.board.say("incus stop -f web db && incus start db && incus start web")?;
    let (wrong, said) = bench.verify()?;
    assert_eq!(wrong, Vec::<Value>::new(), "{said}");
    assert!(said.contains("Incus gave db NET0#0 as eth0"), "{said}");

    // A watch leaves the guests to Incus, also when one stops meanwhile: to apply the model would make a second one.
    let watched = bench.board.shell(&format!(
        "penstock verify --watch {} >/root/watched 2>&1 & watch=$!; \
         for try in $(seq 240); do grep -q 'what makes no event' /root/watched && break; sleep 0.5; done; \
         incus stop -f web; mkdir -p /run/penstock; echo > /run/penstock/lock; \
         for try in $(seq 240); do [ $(grep -c 'what makes no event' /root/watched) -ge 2 ] && break; sleep 0.5; done; \
         kill -INT $watch; wait $watch; cat /root/watched; incus start web",
        bench.board.model()
    ));
    let said = format!("{}{}", watched.stdout, watched.stderr);
    assert!(said.contains("db, which Incus runs") && said.contains(" holds  "), "{said}");
    assert!(said.matches("what makes no event").count() >= 2, "everything was looked at again: {said}");
    assert!(!said.contains("running (host)") && !said.contains("does not hold"), "{said}");

    // What somebody has changed inside shows, and so does an instance that has stopped.
    bench.board.say("incus exec web -- /bin/busybox ip link set data0 mtu 1300 < /dev/null")?;
    let (wrong, said) = bench.verify()?;
    let [one] = &wrong[..] else { return Err(format!("{wrong:?}: {said}").into()) };
    assert_eq!((&one["attribute"], &one["seen"]), (&"mtu".into(), &"1300".into()), "{one}");
    bench.board.say("incus stop -f web")?;
    let (wrong, said) = bench.verify()?;
    let stopped =
        |verdict: &Value| verdict["attribute"] == "running" && verdict["seen"] == "it is not defined here";
    assert!(wrong.iter().any(stopped), "{wrong:?}: {said}");
    Ok(())
}

fn each_member_runs_its_model() -> Outcome {
    let guest = |name: &str| {
        format!(
            "  {name}: {{functions: [{{vf: NET0#1, vlan: 100, mtu: 1400, interface: data0, spoofchk: on}}]}}\n"
        )
    };
    let first = Bench::up(&own_name("incus-first"), &guest("web"))?;
    let second = Bench::up(&own_name("incus-second"), &guest("db"))?;
    first.board.say(IMAGE)?;
    let meeting = tempfile::tempdir()?;
    let _tunnels = [
        tunnel(&first.board, meeting.path(), PORTS[0], PORTS[1])?,
        tunnel(&second.board, meeting.path(), PORTS[1], PORTS[0])?,
    ];
    let said = first.board.say(CLUSTER)?;
    let token = said.split_whitespace().last().unwrap_or_default();
    second.board.say(&format!(
        "printf 'cluster: {{enabled: true, server_name: second, server_address: 127.0.0.1:{}, cluster_token: {token}}}\n' | \
         incus admin init --preseed",
        PORTS[1]
    ))?;
    for (bench, guest, member) in [(&first, "web", "first"), (&second, "db", "second")] {
        bench.export()?;
        bench.launch(guest, &format!("--target {member}"))?;
    }
    let listed = first.board.say("incus list --format csv -c nL")?;
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["db,second", "web,first"]);
    for (bench, guest) in [(&first, "web"), (&second, "db")] {
        let (wrong, said) = bench.verify()?;
        assert_eq!(wrong, Vec::<Value>::new(), "{said}");
        assert!(said.contains(&format!("Incus runs {guest}")), "{said}");
    }
    // What another member runs is not here.
    second.board.say("sed 's/  db:/  web:/' $(ls /root/*.yaml | head -1) > /root/other.yaml")?;
    let other = second.board.shell("penstock verify /root/other.yaml");
    assert!(
        other.stdout.contains("web running (host): wanted running, seen it is not defined here"),
        "{}",
        other.stdout
    );
    Ok(())
}

/// A way between two boards over this machine, gone with this value: the one's `own` port becomes a socket in a directory where they meet,
/// and the socket of the `other` one's port is a port of its own.
fn tunnel(board: &KeptBoard, meeting: &Path, own: u16, other: u16) -> Result<Background, Failed> {
    let config = board.directory().join("ssh-config");
    fs::write(&config, board.over_ssh()?)?;
    let socket = |port: u16| meeting.join(port.to_string()).display().to_string();
    let ssh = Command::new("ssh").arg("-F").arg(config);
    let ssh = ssh.args(["-N", "-oExitOnForwardFailure=yes", "-oLogLevel=ERROR"]);
    let ssh = ssh.args(["-L", &format!("{}:127.0.0.1:{own}", socket(own))]);
    let ssh = ssh.args(["-R", &format!("{other}:{}", socket(other)), "it"]);
    let tunnel = ssh.start_beside()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !board.shell(&format!("ss -Hltn sport = :{other} | grep -q .")).status.eq(&0) {
        if Instant::now() > deadline {
            return Err(format!("port {other} is not led to the other board").into());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(tunnel)
}
