//! The plugin under software that nobody here wrote, on a board. containerd of Debian, whose `ctr` asks plugins by its own CNI library, runs
//! containers with VFs by Debian's `host-device` and by `penstock cni`. podman of Debian runs containers in a namespace that has a VF already, and
//! asks the plugin itself where it is a podman that does so.
#![allow(clippy::disallowed_methods)]

mod bench;

use std::{fs, path::Path, process::ExitCode};

use bench::{Bench, STATE};
use penstock_host::Command;
use penstock_testkit::{
    needs::{self, Lack},
    trials::{Failed, Outcome, Test, Trials},
    unpacked::{self, CONTAINERD, PODMAN, tree},
};
use serde_json::{Value, json};

/// What of containerd goes into the board.
const OF_CONTAINERD: [&str; 6] = [
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/sbin/runc",
    "usr/lib/cni/host-device",
    "usr/lib/cni/host-local",
];

/// What of podman goes into the board, beside libraries.
const OF_PODMAN: [&str; 3] = ["usr/bin/podman", "usr/bin/conmon", "usr/lib/podman/netavark"];

/// Where Debian 12 and 13 have libraries.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

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

/// Makes podman find what it needs: the libraries, since conmon starts podman without the environment that it had, and its programs.
/// Without systemd it makes control groups itself. `container` is podman with a place of its own, since overlayfs takes no overlayfs.
const PODMAN_START: &str = r#"set -e
for of in usr/lib lib; do cp -an /root/$of/x86_64-linux-gnu/. /usr/lib/x86_64-linux-gnu/ 2>/dev/null || true; done
cat > /root/containers.conf <<'END'
[containers]
log_driver = "k8s-file"
[network]
cni_plugin_dirs = ["/opt/cni/bin"]
network_config_dir = "/root/networks"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
conmon_path = ["/root/usr/bin/conmon"]
helper_binaries_dir = ["/root/usr/lib/podman"]
[engine.runtimes]
runc = ["/root/usr/sbin/runc"]
END
mkdir -p /root/networks
cat > /root/container <<'END'
#!/bin/sh
export CONTAINERS_CONF=/root/containers.conf PATH=/root/usr/bin:/root/usr/sbin:$PATH
exec podman --storage-driver vfs --root /root/podman --runroot /run/podman "$@"
END
chmod +x /root/container"#;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", || needs::board().or_else(lacking));
    // Of both on one board: it takes longer to boot than they take.
    let tests: [(&str, Test); 1] =
        [("containerd_and_podman_give_containers_vfs_in_board", containers_get_vfs)];
    trials.add(&missing, tests);
    trials.run()
}

/// Why there is no containerd or no podman to try, if so.
fn lacking() -> Option<Lack> {
    unpacked::lacking(CONTAINERD, &OF_CONTAINERD).or_else(|| unpacked::lacking(PODMAN, &OF_PODMAN))
}

/// Puts files and directories of a tree below `/root` of the board.
fn unpack(bench: &Bench, tree: &Path, paths: &[&str]) -> Outcome {
    let packed = bench.board.directory().join("packed.tar.gz");
    Command::new("tar").arg("-C").arg(tree).arg("-czf").arg(&packed).args(paths).succeed()?;
    bench.board.shell_with("tar -C /root -xzf -", &packed).ended_with(0)?;
    Ok(())
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

/// Shell that asks until two answers have come to two questions, which it prints: igbvf looks for its link every two seconds.
fn pings(address: &str) -> String {
    format!(
        "for try in 1 2 3 4 5 6; do said=$(/usr/bin/ping -q -c 2 -W 5 {address}); \
         case $said in *[[:space:]]0%[[:space:]]packet*) echo $said; exit;; esac; done; echo $said; exit 1"
    )
}

fn containers_get_vfs() -> Outcome {
    let bench = Bench::up("containerd")?;
    unpack(&bench, &tree(CONTAINERD), &OF_CONTAINERD)?;
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
        let look = format!("/usr/bin/cat /sys/class/net/eth0/address; {}", pings(&address));
        let inside = bench.say(&container("asks", &look))?;
        assert!(inside.contains("02:00:00:00:aa:02"), "{inside}");
        assert!(inside.contains(" 0% packet loss"), "{inside}");
        // Its process ends, and containerd gives the VF back.
        bench.say(
            "pkill -KILL -f '^/usr/bin/sleep 300'; for try in $(seq 300); do pgrep -x ctr > /dev/null || exit 0; sleep 0.2; done; exit 1",
        )?;
        assert_eq!(bench.say(STATE)?, before, "{pf}");
    }
    podman_runs_containers(&bench, &before)
}

/// podman's containers have a VF: in a namespace that somebody else's call of the plugin has given it to, and through podman's own calls.
/// The latter only podman 4 makes, which asks CNI plugins; podman 5 of Debian 13 speaks to netavark alone.
fn podman_runs_containers(bench: &Bench, before: &str) -> Outcome {
    let tree = tree(PODMAN);
    let libraries = LIBRARIES.into_iter().filter(|path| fs::exists(tree.join(path)).unwrap_or(false));
    let paths: Vec<&str> = OF_PODMAN.into_iter().chain(libraries).collect();
    unpack(bench, &tree, &paths)?;
    bench.say(PODMAN_START)?;
    let version = bench.say("/root/container --version")?;
    let number = version.split_whitespace().find_map(|word| word.split_once('.')?.0.parse::<u32>().ok());
    let asks_plugins = match number {
        Some(4) => true,
        Some(5) => false,
        _ => return Err(format!("it is not known which networks this podman has: {version}").into()),
    };
    if asks_plugins {
        // It would take netavark, which is there too.
        bench.say("sed -i 's/^\\[network\\]$/&\\nnetwork_backend = \"cni\"/' /root/containers.conf")?;
    }
    let run = |options: &str, command: &str| {
        format!("/root/container run {options} -v /usr:/usr:ro --rootfs /root/fs {command}")
    };
    for (pf, subnet) in [(&bench.igb, "10.11.0"), (&bench.virtio, "10.12.0")] {
        let plugin = |mac: &str| {
            json!({
                "type": "penstock-cni", "pf": pf, "vlan": 100, "mac": mac,
                "ipam": {"type": "host-local", "subnet": format!("{subnet}.0/24"), "dataDir": "/run/given"},
            })
        };
        // As whoever prepares a pod's network does.
        let mut named = plugin("02:00:00:00:bb:01");
        named["cniVersion"] = json!("1.0.0");
        named["name"] = json!("named");
        let call = |verb: &str| {
            format!(
                "CNI_COMMAND={verb} CNI_CONTAINERID=pod CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin CNI_NETNS=/run/netns/pod /opt/cni/bin/penstock-cni <<'END'\n{named}\nEND"
            )
        };
        bench.say("ip netns add pod")?;
        bench.say(&call("ADD"))?;
        let inside = bench.say(&run("--rm --network ns:/run/netns/pod", "/usr/bin/ip address show eth0"))?;
        assert!(inside.contains(&format!("{subnet}.2/24")), "{inside}");
        assert!(inside.contains("02:00:00:00:bb:01"), "{inside}");
        // It outlives the container, which had only been let in.
        assert!(bench.say("ip -n pod link show eth0")?.contains("02:00:00:00:bb:01"));
        if asks_plugins {
            let list =
                json!({"cniVersion": "0.4.0", "name": "data", "plugins": [plugin("02:00:00:00:bb:02")]});
            bench.board.write("/root/networks/20-data.conflist", &list.to_string()).ended_with(0)?;
            // The one that was let in is reached through the NIC.
            let look = format!(
                "/usr/bin/sh -c '/usr/bin/cat /sys/class/net/eth0/address; {}'",
                pings(&format!("{subnet}.2"))
            );
            let inside = bench.say(&run("--rm --network data", &look))?;
            assert!(inside.contains("02:00:00:00:bb:02"), "{inside}");
            assert!(inside.contains(" 0% packet loss"), "{inside}");
            // Killed, not ended by itself.
            bench.say(&run("--detach --name stays --network data", "/usr/bin/sleep 300"))?;
            assert_eq!(bench.say("ls /run/penstock/cni | grep -c json")?.trim(), "2");
            bench.say("/root/container rm --force --time 0 stays")?;
        }
        bench.say(&call("DEL"))?;
        bench.say("ip netns delete pod")?;
        assert_eq!(bench.say(STATE)?, before, "{pf}");
    }
    Ok(())
}
