//! Incus itself, of Debian, on a board whose igb NIC has VFs: it reads what `export` writes, its instances have what the model says, `verify`
//! sees that from inside them, and `import` makes the model again of what Incus prints.
#![allow(clippy::disallowed_methods)]

use std::{fs, process::ExitCode};

use penstock_host::Command;
use penstock_testkit::{
    board::{KeptBoard, own_name},
    needs::{self, Lack},
    trials::{Failed, Outcome, Test, Trials},
    unpacked::{self, INCUS, tree},
};
use serde_json::Value;

/// Incus with its daemon, an image of one program, and VFs whose interfaces have lasting names, by which it looks for them.
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
incus image import ../i.tar.gz --alias small -q < /dev/null
ls $pf/net"#;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", || needs::board().or_else(lacking));
    let tests: [(&str, Test); 1] = [("incus_runs_what_was_exported_in_board", incus_runs_what_was_exported)];
    trials.add(&missing, tests);
    trials.run()
}

fn lacking() -> Option<Lack> {
    unpacked::lacking(INCUS, &["usr/libexec/incus/incusd", "usr/bin/incus"])
}

struct Bench {
    board: KeptBoard,
}

impl Bench {
    fn say(&self, line: &str) -> Result<String, Failed> {
        let run = self.board.shell(line);
        match run.status {
            0 => Ok(run.stdout),
            status => Err(format!("{line}: status {status}: {}{}", run.stdout, run.stderr).into()),
        }
    }

    /// What does not hold of the model, and what `verify` notes.
    fn verify(&self) -> Result<(Vec<Value>, String), Failed> {
        let run = self.board.shell(&format!("penstock verify --json {}", self.board.model()));
        let told: Value = serde_json::from_str(&run.stdout)
            .map_err(|error| format!("{error}: {}{}", run.stdout, run.stderr))?;
        let verdicts = told["verdicts"].as_array().ok_or_else(|| format!("no verdicts: {told}"))?;
        if verdicts.len() < 20 {
            return Err(format!("few verdicts: {told}").into());
        }
        let wrong = verdicts.iter().filter(|verdict| verdict["outcome"] != "pass").cloned();
        Ok((wrong.collect(), run.stderr))
    }
}

fn incus_runs_what_was_exported() -> Outcome {
    let name = own_name("incus");
    let model = format!(
        "machine: {name}\nnics:\n  NET0: {{vfs: 4}}\nguests:\n  web:\n    functions:\n      - {{vf: NET0#0, mac: 02:00:00:00:77:01, vlan: \
         100, mtu: 1400, interface: data0, spoofchk: on}}\n      - {{vf: NET0#1, interface: plain0, spoofchk: off}}\n  db: {{functions: [{{vf: \
         NET0#3}}]}}\nboard: {{emulation: {{NET0: igb}}}}\n"
    );
    let bench = Bench { board: KeptBoard::up(&name, &model)? };
    put_incus(&bench.board)?;
    let pf = bench.say(START)?;
    let pf = pf.lines().last().unwrap_or_default();
    let export = format!(
        "penstock export --to incus --output /root/out {} 2>&1 && cat /root/out/penstock-web.profile.yaml",
        bench.board.model()
    );
    let exported = bench.say(&export)?;
    assert!(exported.contains(&format!("parent: '{pf}'")), "{exported}");
    // It does so indeed, below.
    assert!(exported.contains("that the spoof check of VF 3 stays as it is"), "{exported}");
    let launch = |guest: &str| {
        bench.say(&format!(
            "incus profile create penstock-{guest} < /root/out/penstock-{guest}.profile.yaml && \
             incus launch small {guest} --profile default --profile penstock-{guest} -q < /dev/null"
        ))
    };
    launch("web")?;
    launch("db")?;

    // The third VF was free, which the model has not given to anybody.
    let (wrong, said) = bench.verify()?;
    assert_eq!(wrong, Vec::<Value>::new(), "{said}");
    let otherwise = "Incus gave db NET0#2 as eth0, where the model has NET0#3";
    assert!(said.contains("Incus runs web") && said.contains(otherwise), "{said}");

    let db = bench.say(&format!("ip link show {pf} | grep 'vf 2 '"))?;
    assert!(db.contains("spoof checking off"), "{db}");

    // What Incus prints of its instances is the model again; which VF is meant is told by addresses that are derived.
    bench.say("incus list --format yaml > /root/list.yaml")?;
    let imported = bench.say("penstock import --from incus /root/list.yaml 2>/root/said")?;
    for line in [
        format!(
            "- {{vf: \"{pf}#0\", mac: \"02:00:00:00:77:01\", vlan: 100, spoofchk: on, interface: \"data0\", mtu: 1400}}"
        ),
        format!("- {{vf: \"{pf}#1\", spoofchk: off, interface: \"plain0\"}}"),
        format!("- {{vf: \"{pf}#3\", interface: \"eth0\"}}"),
    ] {
        assert!(imported.contains(&line), "{line} is not in {imported}");
    }

    // Started in another order, each has another VF; all that was asked for is there all the same.
    bench.say("incus stop -f web db && incus start db && incus start web")?;
    let (wrong, said) = bench.verify()?;
    assert_eq!(wrong, Vec::<Value>::new(), "{said}");
    assert!(said.contains("Incus gave db NET0#0 as eth0"), "{said}");

    // What somebody has changed inside shows, and so does an instance that has stopped.
    bench.say("incus exec web -- /bin/busybox ip link set data0 mtu 1300 < /dev/null")?;
    let (wrong, said) = bench.verify()?;
    let [one] = &wrong[..] else { return Err(format!("{wrong:?}: {said}").into()) };
    assert_eq!((&one["attribute"], &one["seen"]), (&"mtu".into(), &"1300".into()), "{one}");
    bench.say("incus stop -f web")?;
    let (wrong, said) = bench.verify()?;
    let stopped =
        |verdict: &Value| verdict["attribute"] == "running" && verdict["seen"] == "it is not defined here";
    assert!(wrong.iter().any(stopped), "{wrong:?}: {said}");
    let watched =
        bench.board.shell(&format!("timeout -s INT 5 penstock verify --watch {}", bench.board.model()));
    assert!(watched.stdout.contains("db, which Incus runs"), "{}{}", watched.stdout, watched.stderr);
    Ok(())
}

fn put_incus(board: &KeptBoard) -> Outcome {
    let packed = board.directory().join("incus.tar.gz");
    Command::new("tar")
        .arg("-C")
        .arg(tree(INCUS))
        .arg("-I")
        .arg("gzip -1")
        .arg("-cf")
        .arg(&packed)
        .arg("usr")
        .succeed()?;
    board.shell_with("tar -C / -xzf -", &packed).ended_with(0)?;
    fs::remove_file(packed)?;
    Ok(())
}
