//! Other programs, of Debian, on a board with an igb NIC: what `export` writes for libvirt gives VMs VFs with what the model says of them, and what
//! it writes for netplan and for systemd makes the NIC so that `verify` finds it as the model has it. Incus has its own tests.
#![allow(clippy::disallowed_methods)]

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use penstock_testkit::{
    board::{KeptBoard, own_name},
    needs,
    trials::{Outcome, Test, Trials},
    unpacked::{self, LIBVIRT, tree},
};
use serde_json::Value;

/// From a tree's top.
const DRIVER: &str = "usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_network.so";
/// What `virsh net-define --validate` holds a file against; that of domains is beside it.
const SCHEMA: &str = "usr/share/libvirt/schemas/network.rng";

/// VFs, libvirt with its driver for networks, which has it when the board has started it anew, and a VM without devices, which takes one of a pool.
const START: &str = r#"set -e
ip link set eth0 up
echo 4 > /sys/class/net/eth0/device/sriov_numvfs
for try in $(seq 300); do [ $(ls -d /sys/class/net/eth0/device/virtfn*/net/* 2>/dev/null | wc -l) = 4 ] && break; sleep 0.1; done
old=$(pidof libvirtd)
kill $old
for try in $(seq 600); do new=$(pidof libvirtd) && [ "$new" != "$old" ] && virsh net-list > /dev/null 2>&1 && break; sleep 0.1; done
virsh net-list > /dev/null
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

/// netplan with its renderer, which boards keep from starting, and the file that was written for it. The VFs' interfaces have their names a moment
/// after netplan has made the VFs; at a boot it is asked again, too (`netplan-sriov-apply.service`).
const NETPLAN: &str = "set -e
ldconfig
systemctl unmask -q systemd-networkd systemd-networkd.socket
systemctl start systemd-networkd
rm -rf /etc/netplan
mkdir /etc/netplan
penstock export --to netplan --output /etc/netplan \"$1\"
chmod 600 /etc/netplan/*
netplan apply
udevadm settle
netplan apply";

/// systemd's udev and networkd with the files that were written for them, as at a boot.
const NETWORKD: &str = "set -e
systemctl unmask -q systemd-networkd systemd-networkd.socket
penstock export --to networkd --output /etc/systemd/network \"$1\"
udevadm trigger --settle --action=add /sys/class/net/ens1
systemctl start systemd-networkd";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let libvirt = trials.lacking("libvirt on boards", || {
        needs::board().or_else(|| unpacked::lacking(LIBVIRT, &[DRIVER, SCHEMA]))
    });
    let test: (&str, Test) = ("libvirt_gives_vms_what_was_exported_in_board", libvirt_gives_vms_vfs);
    trials.add(&libvirt, [test]);
    let netplan = trials.lacking("netplan on boards", || {
        needs::board().or_else(|| unpacked::lacking(unpacked::NETPLAN, &["usr/sbin/netplan"]))
    });
    let test: (&str, Test) = ("netplan_makes_the_nic_of_the_model_in_board", netplan_makes_the_nic);
    trials.add(&netplan, [test]);
    let boards = trials.lacking("boards", needs::board);
    let test: (&str, Test) = ("systemd_makes_the_nic_of_the_model_in_board", networkd_makes_the_nic);
    trials.add(&boards, [test]);
    trials.run()
}

fn netplan_makes_the_nic() -> Outcome {
    let name = own_name("netplan");
    let model = format!(
        "machine: {name}\nnics: {{NET0: {{vfs: 3, mtu: 1400, addresses: [192.0.2.9/24], defaults: {{vlan: 100}}}}}}\n\
         board: {{emulation: {{NET0: igb}}}}\n"
    );
    let board = KeptBoard::up_with(&name, &model, &["--systemd"])?;
    board.put_usr(&tree(unpacked::NETPLAN))?;
    makes_the_nic(&board, NETPLAN)
}

fn networkd_makes_the_nic() -> Outcome {
    let name = own_name("networkd");
    let model = format!(
        "machine: {name}\nnics: {{NET0: {{vfs: 3, mtu: 1400, addresses: [192.0.2.9/24], defaults: {{vlan: 100, spoofchk: off, trust: on}}}}}}\n\
         board: {{emulation: {{NET0: igb}}}}\n"
    );
    let board = KeptBoard::up_with(&name, &model, &["--systemd"])?;
    makes_the_nic(&board, NETWORKD)
}

/// `script` has another program make the model's NIC; what of it does not hold is the one thing that is Penstock's alone.
fn makes_the_nic(board: &KeptBoard, script: &str) -> Outcome {
    let made = board.inside(["sh", "-c", script, "sh", board.model()]);
    assert_eq!(made.status, 0, "{}{}", made.stdout, made.stderr);
    // Links come up in their own time.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let told: Value =
            serde_json::from_str(&board.shell(&format!("penstock verify --json {}", board.model())).stdout)?;
        let verdicts = told["verdicts"].as_array().ok_or_else(|| format!("no verdicts: {told}"))?;
        assert!(verdicts.len() > 12, "{told}");
        let wrong: Vec<&Value> = verdicts.iter().filter(|verdict| verdict["outcome"] != "pass").collect();
        match wrong[..] {
            [one] if one["attribute"] == "autoprobe" => return Ok(()),
            _ if Instant::now() < deadline => thread::sleep(Duration::from_secs(1)),
            _ => return Err(format!("{wrong:?}; what made it said: {}{}", made.stdout, made.stderr).into()),
        }
    }
}

fn libvirt_gives_vms_vfs() -> Outcome {
    let name = own_name("libvirt");
    let model = format!(
        "machine: {name}\nnics: {{NET0: {{vfs: 4, defaults: {{vlan: 200}}}}}}\nguests:\n  vm: {{kind: vm, memory: 128MiB, functions: [{{vf: \
         NET0#0, mac: 02:00:00:00:77:01, vlan: 100}}]}}\nboard: {{memory: 2GiB, emulation: {{NET0: igb}}}}\n"
    );
    // The hardware of `guests/machine.yaml`, so that one saved board serves both.
    let board = KeptBoard::up(&name, &model)?;
    board.put_usr(&tree(LIBVIRT))?;
    board.say(START)?;
    let before = board.say(STATE)?;
    assert!(before.ends_with("igbvf\nigbvf\nigbvf\n"), "{before}");

    board.say(&format!("penstock export --to libvirt --output /root/out {}", board.model()))?;
    board.say(
        "virsh net-define --validate /root/out/penstock-NET0.network.xml && virsh net-start penstock-NET0",
    )?;
    board.say("virsh create --paused /root/plain.xml")?;
    board.say("virsh attach-device plain /root/out/penstock-NET0-vf0.interface.xml")?;
    let with = board.say(STATE)?;
    let lines: Vec<&str> = with.lines().collect();
    // The VF of the model's VM, and the first of the pool, in which that one is not.
    assert!(lines[0].contains("02:00:00:00:77:01") && lines[0].contains("vlan 100,"), "{with}");
    assert!(lines[1].contains("02:00:00:00:88:01") && lines[1].contains("vlan 200,"), "{with}");
    assert_eq!(lines[2..4], before.lines().collect::<Vec<_>>()[2..4], "{with}");
    assert_eq!(lines[4..], ["vfio-pci", "vfio-pci", "igbvf"], "{with}");

    board.say("virsh destroy plain")?;
    assert_eq!(board.say(STATE)?, before);

    // The VM of the model as a domain of libvirt's own, which gives the VF back when it ends.
    board.say("virsh define --validate /root/out/penstock-vm.domain.xml && virsh start --paused vm")?;
    let with = board.say(STATE)?;
    let lines: Vec<&str> = with.lines().collect();
    assert!(lines[0].contains("02:00:00:00:77:01") && lines[0].contains("vlan 100,"), "{with}");
    assert_eq!(lines[1..4], before.lines().collect::<Vec<_>>()[1..4], "{with}");
    assert_eq!(lines[4..], ["vfio-pci", "igbvf", "igbvf"], "{with}");
    board.say("virsh destroy vm && virsh undefine vm")?;
    assert_eq!(board.say(STATE)?, before);
    Ok(())
}
