//! libvirt, of Debian, on a board whose igb NIC has VFs: what `export` writes for it gives VMs these VFs, with what the model says of them.
#![allow(clippy::disallowed_methods)]

use std::process::ExitCode;

use penstock_host::Command;
use penstock_testkit::{
    board::{KeptBoard, own_name},
    needs::{self, Lack},
    trials::{Failed, Outcome, Test, Trials},
    unpacked::{self, LIBVIRT, tree},
};

/// From a tree's top.
const DRIVER: &str = "usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_network.so";

/// VFs, libvirt with its driver for networks, and a VM without devices, which takes one of a pool.
const START: &str = r#"set -e
ip link set eth0 up
echo 4 > /sys/class/net/eth0/device/sriov_numvfs
for try in $(seq 300); do [ $(ls -d /sys/class/net/eth0/device/virtfn*/net/* 2>/dev/null | wc -l) = 4 ] && break; sleep 0.1; done
kill $(pidof libvirtd)
while pidof libvirtd > /dev/null; do sleep 0.1; done
setsid libvirtd > /run/libvirtd.log 2>&1 < /dev/null &
for try in $(seq 300); do virsh net-list > /dev/null 2>&1 && break; sleep 0.1; done
cat > /root/plain.xml <<END
<domain type='qemu'>
  <name>plain</name><memory unit='MiB'>96</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <interface type='network'><source network='penstock-NET0'/><mac address='02:00:00:00:88:01'/></interface>
  </devices>
</domain>
END"#;

/// What the PF keeps for each VF, and the drivers of the first three.
const STATE: &str = "ip link show eth0 | sed -n 's/^ *vf /vf /p'
for vf in 0 1 2; do basename $(readlink /sys/class/net/eth0/device/virtfn$vf/driver); done";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", || needs::board().or_else(lacking));
    let tests: [(&str, Test); 1] =
        [("libvirt_gives_vms_what_was_exported_in_board", gives_vms_what_was_exported)];
    trials.add(&missing, tests);
    trials.run()
}

fn lacking() -> Option<Lack> {
    unpacked::lacking(LIBVIRT, &[DRIVER])
}

fn say(board: &KeptBoard, line: &str) -> Result<String, Failed> {
    let run = board.shell(line);
    match run.status {
        0 => Ok(run.stdout),
        status => Err(format!("{line}: status {status}: {}{}", run.stdout, run.stderr).into()),
    }
}

fn gives_vms_what_was_exported() -> Outcome {
    let name = own_name("libvirt");
    let model = format!(
        "machine: {name}\nnics: {{NET0: {{vfs: 4, defaults: {{vlan: 200}}}}}}\nguests:\n  vm: {{kind: vm, memory: 128MiB, functions: [{{vf: \
         NET0#0, mac: 02:00:00:00:77:01, vlan: 100}}]}}\nboard: {{emulation: {{NET0: igb}}}}\n"
    );
    let board = KeptBoard::up(&name, &model)?;
    let packed = board.directory().join("driver.tar.gz");
    Command::new("tar").arg("-C").arg(tree(LIBVIRT)).arg("-czf").arg(&packed).arg("usr").succeed()?;
    board.shell_with("tar -C / -xzf -", &packed).ended_with(0)?;
    say(&board, START)?;
    let before = say(&board, STATE)?;
    assert!(before.ends_with("igbvf\nigbvf\nigbvf\n"), "{before}");

    say(&board, &format!("penstock export --to libvirt --output /root/out {}", board.model()))?;
    say(&board, "virsh net-define /root/out/penstock-NET0.network.xml && virsh net-start penstock-NET0")?;
    say(&board, "virsh create --paused /root/plain.xml")?;
    say(&board, "virsh attach-device plain /root/out/penstock-NET0-vf0.interface.xml")?;
    let with = say(&board, STATE)?;
    let lines: Vec<&str> = with.lines().collect();
    // The VF of the model's VM, and the first of the pool, in which that one is not.
    assert!(lines[0].contains("02:00:00:00:77:01") && lines[0].contains("vlan 100,"), "{with}");
    assert!(lines[1].contains("02:00:00:00:88:01") && lines[1].contains("vlan 200,"), "{with}");
    assert_eq!(lines[2..4], before.lines().collect::<Vec<_>>()[2..4], "{with}");
    assert_eq!(lines[4..], ["vfio-pci", "vfio-pci", "igbvf"], "{with}");

    say(&board, "virsh destroy plain")?;
    assert_eq!(say(&board, STATE)?, before);
    Ok(())
}
