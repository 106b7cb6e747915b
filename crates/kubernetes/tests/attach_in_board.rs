//! The hook with what it is made for: Debian's runc starts containers on a board whose igb NIC has VFs, and `penstock cni` moves them. What the
//! agent would have written down of the claim, the test writes; what it would call to take the claim back, the test calls.
#![allow(clippy::disallowed_methods)]

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use penstock_host::Command;
use penstock_kubernetes::claim::{
    parameters::VfMode,
    state::{AttachRecord, PreparedClaim, PreparedDevice, RUN},
};
use penstock_testkit::{
    binary,
    board::{KeptBoard, own_name},
    needs::{self, Lack},
    trials::{Outcome, Test, Trials},
    unpacked::{self, CONTAINERD},
};
use serde_json::json;

/// Below what is unpacked of containerd.
const RUNC: &str = "usr/sbin/runc";
const UID: &str = "3c2c3dbf-8d5a-4dd5-9e3a-0a5f6d3c6f11";

/// Two VFs with their driver's interfaces; the first one's address and what the kernel's run is called.
const MAKE: &str = r#"set -e
pf=$(dirname /sys/bus/pci/drivers/igb/*/sriov_numvfs)
ip link set $(ls $pf/net) up
echo 2 > $pf/sriov_numvfs
vf=$(readlink -f $pf/virtfn0)
for try in $(seq 300); do [ -d $vf/net ] && break; sleep 0.1; done
ls $vf/net > /dev/null
echo ${vf##*/} $(cat /proc/sys/kernel/random/boot_id) $(command -v penstock)"#;

/// All that must be as before in the end.
const STATE: &str = r#"pf=$(dirname /sys/bus/pci/drivers/igb/*/sriov_numvfs)
ip link show $(ls $pf/net) | grep ' vf '
for vf in $pf/virtfn*; do d=$(ls -d $vf/net/*); echo $(basename $(readlink $vf/driver)) ${d##*/} $(cat $d/address $d/mtu $d/flags); done
ls /run/penstock/cni | grep json; true"#;

/// A root file system of the board's own programs, and a pod's network namespace.
const BUNDLE: &str = r#"set -e
mkdir -p /root/b/rootfs/usr /root/b/rootfs/proc
for of in bin sbin lib lib64; do ln -s usr/$of /root/b/rootfs/$of; done
chmod +x /root/runc /root/penstock-kubernetes
ip netns add pod"#;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", || needs::board().or_else(lacking));
    let tests: [(&str, Test); 1] =
        [("a_container_has_its_vf_or_does_not_start_in_board", a_container_has_its_vf)];
    trials.add(&missing, tests);
    trials.run()
}

fn runc() -> PathBuf {
    unpacked::tree(CONTAINERD).join(RUNC)
}

fn lacking() -> Option<Lack> {
    unpacked::lacking(CONTAINERD, &[RUNC])
}

/// Runs a container of the pod: its status, and what it or runc said.
fn container(board: &KeptBoard, name: &str) -> (bool, String) {
    let run = board.shell(&format!("/root/runc --root /run/r run -b /root/b {name}"));
    (run.status == 0, format!("{}{}", run.stdout, run.stderr))
}

fn a_container_has_its_vf() -> Outcome {
    let name = own_name("attach");
    let model = format!(
        "machine: {name}\nnics:\n  NET0: {{vfs: 2}}\nguests:\n  a: {{functions: [NET0#0]}}\nboard: {{emulation: {{NET0: igb}}}}\n"
    );
    let board = KeptBoard::up(&name, &model)?;
    let made = board.say(MAKE)?;
    let words: Vec<&str> = made.split_whitespace().collect();
    let [function, boot, penstock] = words[..] else { return Err(format!("three words: {made}").into()) };
    let before = board.say(STATE)?;
    put_programs(&board)?;
    board.say(BUNDLE)?;

    let claim = PreparedClaim {
        format: PreparedClaim::FORMAT,
        uid: UID.parse()?,
        namespace: "default".to_owned(),
        name: "data".to_owned(),
        pod_claim: None,
        driver: "sriov.penstock.dev".to_owned(),
        pods: Vec::new(),
        boot: boot.to_owned(),
        penstock: penstock.into(),
        run: RUN.into(),
        devices: vec![PreparedDevice {
            pool: name.clone(),
            device: "net0-0".to_owned(),
            requests: vec!["vf".to_owned()],
            function: function.parse()?,
            mode: VfMode::Netdev,
            interface: "net1".parse()?,
            mac: None,
            group: None,
            configuration: json!({
                "cniVersion": "1.1.0", "name": UID, "type": "penstock-cni", "deviceID": function, "mac": "02:00:00:00:aa:01",
                "vlan": 100, "mtu": 1400, "addresses": ["10.9.0.7/24"],
            }),
        }],
    };
    board.say("mkdir -p /var/lib/penstock && mkdir -m 700 -p /var/lib/penstock/kubernetes /var/lib/penstock/kubernetes/claims",
    )?;
    let file = format!("/var/lib/penstock/kubernetes/claims/{UID}.json");
    board.write(&file, &serde_json::to_string(&claim)?).ended_with(0)?;
    let specification = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0}, "cwd": "/", "env": ["PATH=/usr/sbin:/usr/bin"],
            "args": ["/usr/bin/ip", "address", "show", "net1"],
        },
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
        ],
        "hooks": {"createRuntime": [{
            "path": "/root/penstock-kubernetes", "timeout": 60,
            "args": ["penstock-kubernetes", "attach", "--claim", UID, "--device", "net0-0"],
        }]},
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "network", "path": "/run/netns/pod"}]},
    });
    board.write("/root/b/config.json", &specification.to_string()).ended_with(0)?;

    // The first container gets it; those after it, in the same pod, find it.
    for container_name in ["first", "second", "third"] {
        let (holds, said) = container(&board, container_name);
        assert!(holds, "{container_name}: {said}");
        for words in ["02:00:00:00:aa:01", "mtu 1400", "10.9.0.7/24", ",UP"] {
            assert!(said.contains(words), "{container_name}: {words}: {said}");
        }
    }
    let record = board.say(&format!("cat {RUN}/{UID}.net0-0.json"))?;
    let record: AttachRecord = serde_json::from_str(&record)?;
    assert_eq!((record.netns, record.failure), (PathBuf::from("/run/netns/pod"), None));
    let pf = board.say("ip link show $(ls $(dirname /sys/bus/pci/drivers/igb/*/sriov_numvfs)/net)")?;
    assert!(pf.contains("02:00:00:00:aa:01") && pf.contains("vlan 100"), "{pf}");

    // Stolen from the pod: its next container does not start, and it is said why.
    board.say("ip -n pod link set net1 netns 1 name stolen")?;
    let (holds, said) = container(&board, "fourth");
    assert!(!holds && said.contains("the container has no interface net1"), "{said}");
    let record = board.say(&format!("cat {RUN}/{UID}.net0-0.json"))?;
    assert!(record.contains("the container has no interface net1"), "{record}");

    // Taken back, with all that it had before.
    let take_back = format!(
        "echo '{{\"cniVersion\":\"1.1.0\",\"name\":\"{UID}\",\"type\":\"penstock-cni\",\"cni.dev/valid-attachments\":[]}}' | CNI_COMMAND=GC penstock cni"
    );
    board.say(&take_back)?;
    assert_eq!(board.say(STATE)?, before);

    // No VF at all.
    board.say(&format!("rm -r {RUN}; echo 0 > $(echo /sys/bus/pci/drivers/igb/*/sriov_numvfs)"))?;
    let (holds, said) = container(&board, "fifth");
    assert!(!holds && said.contains("there is no PCI function"), "{said}");
    // The agent's file is not there.
    board.say(&format!("rm {file}"))?;
    let (holds, said) = container(&board, "sixth");
    assert!(!holds && said.contains("is not prepared on this node"), "{said}");
    Ok(())
}

/// Puts runc and a smaller copy of this package's program on the board.
fn put_programs(board: &KeptBoard) -> Outcome {
    let directory = board.directory();
    let stripped = directory.join("penstock-kubernetes");
    binary::strip(Path::new(env!("CARGO_BIN_EXE_penstock-kubernetes")), &stripped)?;
    std::fs::copy(runc(), directory.join("runc"))?;
    let packed = directory.join("programs.tar.gz");
    let pack = Command::new("tar").arg("-C").arg(directory).arg("-czf").arg(&packed);
    pack.args(["penstock-kubernetes", "runc"]).succeed()?;
    board.shell_with("tar -C /root -xzf -", &packed).ended_with(0)?;
    Ok(())
}
