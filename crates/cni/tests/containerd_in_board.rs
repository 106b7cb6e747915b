//! The plugin under software that nobody here wrote: containerd of Debian, whose `ctr` asks plugins by its own CNI library, runs containers
//! with VFs on a board, by Debian's `host-device` and by `penstock cni`.
#![allow(clippy::disallowed_methods)]

mod bench;

use std::{env, path::PathBuf, process::ExitCode};

use bench::{Bench, STATE};
use penstock_host::Command;
use penstock_testkit::{
    needs::{self, Lack},
    trials::{Failed, Outcome, Test, Trials},
};
use serde_json::{Value, json};

/// Where `make test` has unpacked Debian's containerd, runc and containernetworking-plugins.
const TREE: &str = "PENSTOCK_CONTAINERD_TREE";

/// What of it goes into the board.
const PROGRAMS: [&str; 6] = [
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/sbin/runc",
    "usr/lib/cni/host-device",
    "usr/lib/cni/host-local",
];

/// Starts containerd, and makes a root file system of the board's own programs for its containers.
const START: &str = r#"set -e
mkdir -p /etc/cni/net.d /opt/cni /root/fs/proc /root/fs/sys /root/fs/dev /root/fs/etc /root/fs/usr
cp -a /bin /lib /lib64 /sbin /root/fs/
ln -s /root/usr/lib/cni /opt/cni/bin
ln -s $(command -v penstock) /opt/cni/bin/penstock-cni
export PATH=/root/usr/bin:/root/usr/sbin:$PATH
containerd --state /run/ctd --root /root/ctd --address /run/ctd.sock > /root/containerd.log 2>&1 &
for try in $(seq 300); do [ -S /run/ctd.sock ] && exit; sleep 0.2; done
tail /root/containerd.log >&2; exit 1"#;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", || needs::board().or_else(lacking));
    let tests: [(&str, Test); 1] = [("containerd_gives_containers_vfs_in_board", containers_get_vfs)];
    trials.add(&missing, tests);
    trials.run()
}

fn tree() -> PathBuf {
    env::var_os(TREE).map(PathBuf::from).unwrap_or_default()
}

/// Why there is no containerd to try, if so.
fn lacking() -> Option<Lack> {
    let missing = PROGRAMS.into_iter().find(|program| !tree().join(program).is_file())?;
    Some(Lack::Installable(format!(
        "there is no {missing} in the directory that {TREE} names: scripts/unpack-packages unpacks containerd, runc and containernetworking-plugins"
    )))
}

/// Has all later containers ask this plugin.
fn configure(bench: &Bench, plugin: &Value) -> Result<(), Failed> {
    let mut network = json!({
        "cniVersion": "1.0.0",
        "name": "data",
        "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"},
    });
    for (key, value) in plugin.as_object().expect("an object") {
        network[key] = value.clone();
    }
    bench.board.write("/etc/cni/net.d/10-data.conf", &network.to_string()).ended_with(0)?;
    Ok(())
}

/// `ctr run` of a container with the network, to its end.
fn container(name: &str, command: &str) -> String {
    format!(
        "PATH=/root/usr/bin:/root/usr/sbin:$PATH ctr -a /run/ctd.sock run --rm --cni --rootfs \
         --mount type=bind,src=/usr,dst=/usr,options=rbind:ro /root/fs {name} /usr/bin/sh -c '{command}'"
    )
}

fn containers_get_vfs() -> Outcome {
    let bench = Bench::up("containerd")?;
    let packed = bench.board.directory().join("containerd.tar.gz");
    Command::new("tar").args(["-C"]).arg(tree()).arg("-czf").arg(&packed).args(PROGRAMS).succeed()?;
    bench.board.shell_with("tar -C /root -xzf -", &packed).ended_with(0)?;
    bench.say(START)?;
    let first = |pf: &str| format!("basename $(readlink -f /sys/bus/pci/devices/{pf}/virtfn0)");

    // Unmodified, as its users have it.
    let vf = bench.say(&first(&bench.igb))?.trim().to_owned();
    configure(&bench, &json!({"type": "host-device", "pciBusID": vf}))?;
    let inside = bench.say(&container("others", "/usr/bin/ip -brief address show eth0"))?;
    assert!(inside.contains("10.9.0.2/24"), "{inside}");
    // It is back; host-device 1.1 leaves its interface another name.
    bench.say(&format!("ls /sys/bus/pci/devices/{vf}/net"))?;

    let before = bench.say(STATE)?;
    for pf in [&bench.igb, &bench.virtio] {
        let plugin = |mac: &str| json!({"type": "penstock-cni", "pf": pf, "vlan": 100, "mac": mac});
        // One stays while another, with the next VF, finds it through the NIC.
        configure(&bench, &plugin("02:00:00:00:aa:01"))?;
        let stay = container("stays", "/usr/bin/ip -brief address show eth0; exec /usr/bin/sleep 300");
        bench.say(&format!(
            "{stay} > /root/stays 2>&1 & for try in $(seq 300); do grep -q 10.9.0 /root/stays && exit; sleep 0.2; done; cat /root/stays >&2; exit 1"
        ))?;
        let stays = bench.say("cat /root/stays")?;
        let address = stays
            .split_whitespace()
            .find_map(|word| word.strip_suffix("/24"))
            .ok_or_else(|| format!("no address: {stays}"))?
            .to_owned();
        configure(&bench, &plugin("02:00:00:00:aa:02"))?;
        let look = format!(
            "/usr/bin/cat /sys/class/net/eth0/address; for try in 1 2 3 4 5 6; do /usr/bin/ping -q -c 2 -W 5 {address} && exit; done; exit 1"
        );
        let inside = bench.say(&container("asks", &look))?;
        assert!(inside.contains("02:00:00:00:aa:02"), "{inside}");
        assert!(inside.contains(" 0% packet loss"), "{inside}");
        // Its process ends, and containerd gives the VF back.
        bench.say(
            "pkill -KILL -f '^/usr/bin/sleep 300'; for try in $(seq 300); do pgrep -x ctr > /dev/null || exit 0; sleep 0.2; done; exit 1",
        )?;
        assert_eq!(bench.say(STATE)?, before, "{pf}");
    }
    Ok(())
}
