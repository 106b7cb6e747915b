//! What carries the frames of a VM's NIC and where it leads to, on a board: functions at taps of a bridge and by vDPA devices, an igb at a tap
//! of a bridge and at an embedded switch, and a VF of the host as the uplink of one.
#![allow(clippy::disallowed_methods)]

mod tenant;

use std::process::ExitCode;

use penstock_testkit::{
    board::{self, KeptBoard},
    trials::{self, Failed, Outcome},
};
use serde_json::Value;
use tenant::{ENABLE, dies_and_is_there_again, frames, said, text, verdicts, within};

fn main() -> ExitCode {
    trials::on_boards(&[
        ("a_vf_of_the_host_is_the_uplink_in_board", || {
            board::with_a_vm("uplink", UPLINK_VF, "node-1", a_vf_is_the_uplink)
        }),
        ("functions_are_taps_of_a_bridge_and_then_vdpa_devices_in_board", || {
            board::with_a_vm("taps", &with_net0("MACHINE", TAPS), "node-1", |board| {
                board.shell(OUTSIDE).ended_with(0)?;
                functions_are_at_taps(board)?;
                functions_are_vdpa_devices(board)
            })
        }),
    ])
}

/// A VM that owns a NIC with what `net0` says, an igb at a tap of a bridge, and one at an embedded switch that leads to an interface. The
/// board has bridge and interface beforehand.
fn with_net0(machine: &str, net0: &str) -> String {
    format!(
        r#"machine: {machine}
nics:
  NET0: {{match: {{mac: "0c:c4:7a:9a:61:ea"}}}}
guests:
  node-1:
    kind: vm
    memory: 512MiB
    huge_pages: 2MiB
    ready_within: 600
    nics:
      net0:
        vfs: 2
        mac: "02:00:00:00:01:00"
{net0}      net1: {{emulation: igb, path: tap, uplink: br0, mac: "02:00:00:00:02:00"}}
      net2:
        emulation: igb
        uplink: up0
        mac: "02:00:00:00:03:00"
        spoofchk: on
        allow: {{mac: ["02:00:00:00:03:01"], vlan: 100}}
"#
    )
}

/// Its functions are taps of the same bridge.
const TAPS: &str = r#"        path: tap
        uplink: br0
        functions: {0: {mac: "02:00:00:00:01:01"}, 1: {mac: "02:00:00:00:01:02"}}
"#;

/// They are vDPA devices, whose switch leads to a PF of the board.
const DEVICES: &str = r#"        path: vdpa
        uplink: NET0
        functions:
          0: {mac: "02:00:00:00:01:01", spoofchk: on}
          1: {mac: "02:00:00:00:01:02", vlan: 100, max_tx_rate: 500}
"#;

/// Has the VM make a VF of its igb, give it an address as on hardware, and say something by it. The address is what the VF's driver
/// finds. `ip` is iproute2's: the shell's own has no words for VFs.
const IGB: &str = "ip=/usr/bin/ip; pf=$(readlink -f /sys/class/net/net1/device) && echo 0 >$pf/sriov_drivers_autoprobe && \
    cat $pf/sriov_totalvfs && echo 1 >$pf/sriov_numvfs && \
    $ip link set net1 up && $ip link set net1 vf 0 mac 02:00:00:00:02:01 && \
    $ip -d link show net1 | grep -o 'vf 0 .*link/ether 02:00:00:00:02:01' | wc -l && \
    modprobe igbvf && echo 1 >$pf/sriov_drivers_autoprobe && \
    vf=$(readlink -f $pf/virtfn0) && echo ${vf##*/} >/sys/bus/pci/drivers_probe && \
    for turn in $(seq 60); do [ -e $vf/net ] && break; sleep 1; done; \
    cat $vf/net/*/address && name=$(ls $vf/net) && $ip link set $name up && $ip address add 192.0.2.9/24 dev $name && \
    for turn in $(seq 60); do ping -c 1 -W 1 192.0.2.10 >/dev/null; [ $(cat $vf/net/*/carrier) = 1 ] && break; done; \
    ping -c 3 -W 1 192.0.2.10 >/dev/null; true";

/// What the switch of the igb net2 leads to: a machine of its own, with an address in no VLAN and one in each of two. The board has another,
/// which nobody is led to.
const OUTSIDE: &str = "ip netns add outside && ip link add up0 type veth peer name far0 netns outside && ip link set up0 up && \
    o='ip -n outside' && $o link set far0 up && $o address add 192.0.2.10/24 dev far0 && \
    for vlan in 100 200; do $o link add link far0 name far0.$vlan type vlan id $vlan && $o link set far0.$vlan up && \
    $o address add 10.0.$vlan.10/24 dev far0.$vlan; done && ip address add 192.0.2.77/32 dev lo";

/// Has the VM make a VF of the igb net2 with the address that the switch lets through, and says whom it reaches: outside and the host
/// itself, then outside by tags that the VF's frames get, and then from another address.
const IGB_AT_SWITCH: &str = "ip=/usr/bin/ip; pf=$(readlink -f /sys/class/net/net2/device) && echo 0 >$pf/sriov_drivers_autoprobe && \
    echo 1 >$pf/sriov_numvfs && $ip link set net2 up && $ip link set net2 vf 0 mac 02:00:00:00:03:01 && modprobe igbvf && \
    echo 1 >$pf/sriov_drivers_autoprobe && vf=$(readlink -f $pf/virtfn0) && \
    bound() { echo ${vf##*/} >/sys/bus/pci/drivers_probe; \
    for turn in $(seq 60); do [ -e $vf/net ] && break; sleep 1; done; name=$(ls $vf/net) && $ip link set $name up && \
    for net in 192.0.2 10.0.100 10.0.200; do $ip address add $net.9/24 dev $name; done; \
    for turn in $(seq 60); do [ $(cat $vf/net/*/carrier) = 1 ] && break; sleep 1; done; }; \
    reaches() { for turn in $(seq $2); do ping -c 1 -W 1 $1 >/dev/null && echo \"$1 yes\" && return; done; echo \"$1 no\"; }; \
    bound; reaches 192.0.2.10 60; reaches 192.0.2.77 3; \
    $ip link set net2 vf 0 vlan 100 && reaches 10.0.100.10 60; $ip link set net2 vf 0 vlan 200 && reaches 10.0.200.10 3; \
    echo ${vf##*/} >$vf/driver/unbind; $ip link set net2 vf 0 vlan 0; $ip link set net2 vf 0 mac 02:00:00:00:03:99; \
    bound; reaches 192.0.2.10 5";

/// An igb at an embedded switch: what the model lets through gets outside and nothing else, and nothing gets to the host past the switch.
fn an_igb_is_at_a_switch(board: &KeptBoard, model: &str) -> Outcome {
    // The host would know the way back.
    board.shell("ip route add 192.0.2.9 dev tap020000000300").ended_with(0)?;
    let seen = within(board, IGB_AT_SWITCH)?;
    assert_eq!(seen, "192.0.2.10 yes\n192.0.2.77 no\n10.0.100.10 yes\n10.0.200.10 no\n192.0.2.10 no\n");
    let metrics = board.inside(["penstock", "metrics"]).stdout;
    for reason in ["spoofed_mac", "foreign_vlan"] {
        let of = |line: &&str| {
            line.contains("port=\"node-1/net2\"") && line.contains(&format!("reason=\"{reason}\""))
        };
        let dropped = metrics.lines().find(of).and_then(|line| line.rsplit(' ').next());
        assert!(dropped.is_some_and(|count| count != "0"), "{reason} in {metrics}");
    }
    // Without the filter of its tap the VM reaches the host, which `verify` tells.
    board.shell("tc filter del dev tap020000000300 ingress").ended_with(0)?;
    let back = "name=$(ls /sys/class/net/net2/device/virtfn0/net) && \
        for turn in $(seq 30); do ping -I $name -c 1 -W 1 192.0.2.77 >/dev/null && exit; done; exit 1";
    within(board, back)?;
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(1)?;
    let lines = said(&verify.stdout)?;
    let heard = lines.iter().find(|line| line.starts_with("node-1/net2 host "));
    assert!(
        heard.is_some_and(|line| line.starts_with("node-1/net2 host fail: no filter of tap020000000300")),
        "{lines:#?}"
    );
    Ok(())
}

fn functions_are_at_taps(board: &KeptBoard) -> Outcome {
    let model = board.model();
    // A board has the bridge that is the host's own on a real machine.
    board.shell("ip link del br0").ended_with(0)?;
    let refused = board.inside(["penstock", "check", model, "--here"]);
    refused.ended_with(6)?;
    assert!(refused.stderr.contains("this machine has no network interface br0"), "{}", refused.stderr);
    board.shell("ip link add br0 type bridge && ip link set br0 up").ended_with(0)?;
    board.inside(["penstock", "check", model, "--here"]).ended_with(0)?;
    board.inside(["penstock", "apply", model]).ended_with(0)?;
    // In the order of their names: units start side by side, and the first one up has the first number.
    let taps = "ip -o link show master br0 | cut -d: -f2 | sort";
    let all = " tap020000000100\n tap020000000101\n tap020000000102\n tap020000000200\n";
    assert_eq!(board.shell(taps).stdout, all);
    // Greater than the bridge's own, whatever udev would give them.
    assert_eq!(
        board.shell("cat /sys/class/net/tap*/address").stdout,
        "fe:00:00:00:01:00\nfe:00:00:00:01:01\nfe:00:00:00:01:02\nfe:00:00:00:02:00\nfe:00:00:00:03:00\n"
    );
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    let lines = said(&verify.stdout)?;
    for function in ["node-1/net0", "node-1/net0#0", "node-1/net0#1", "node-1/net1"] {
        for verdict in ["port pass: connected", "uplink pass: br0"] {
            let line = format!("{function} {verdict}");
            assert!(lines.contains(&line), "{line} in {lines:#?}");
        }
    }
    // The VM makes its VFs, and a frame of each comes out of its own tap.
    let seen = within(board, ENABLE)?;
    assert_eq!(seen, "2\n02:00:00:00:01:01\n02:00:00:00:01:02\n");
    let verify = board.inside(["penstock", "verify", model, "--json"]);
    verify.ended_with(0)?;
    let lines = frames(&verify.stdout)?;
    let names = ["node-1/net0", "node-1/net0#0", "node-1/net0#1", "node-1/net1"];
    for (from, to) in
        names.iter().flat_map(|from| names.map(|to| (*from, to))).filter(|(from, to)| from != to)
    {
        let line = format!("pass {from} -> {to}: arrives");
        assert!(lines.contains(&line), "{line} in {lines:#?}");
    }
    for number in 0..3 {
        let learned = board.shell(&format!(
            "bridge fdb show dev tap02000000010{number} | grep -v permanent | grep -c '^02:00:00:00:01:0{number} '"
        ));
        assert_eq!(learned.stdout.trim(), "1", "{learned:?}");
    }
    // What the VM does with its igb's VF is seen at that NIC's one tap.
    let seen = within(board, IGB)?;
    assert_eq!(seen, "7\n1\n02:00:00:00:02:01\n");
    let learned = "bridge fdb show dev tap020000000200 | grep -c '^02:00:00:00:02:01 '";
    assert_eq!(board.shell(learned).stdout.trim(), "1");
    // With vhost-net where the board has it.
    let vhost = board.shell("[ ! -e /dev/vhost-net ] || tr '\\0' ' ' </proc/$(pgrep -of 'qemu-system.*guest=penstock-node-1')/cmdline | grep -o '\"vhost\":true' | wc -l");
    assert!(["", "3"].contains(&vhost.stdout.trim()), "{vhost:?}");
    // A stop leaves no tap, and neither does the undo of what comes next.
    board.inside(["penstock", "stop", model]).ended_with(0)?;
    assert_eq!(board.shell(taps).stdout, "");
    Ok(())
}

/// Has the board's libvirt confine its QEMUs by AppArmor, as on any Debian; a board has no profiles by itself.
const CONFINE: &str = "mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security; \
    apparmor_parser -r /etc/apparmor.d/usr.sbin.libvirtd /etc/apparmor.d/usr.lib.libvirt.virt-aa-helper && \
    systemctl restart libvirtd && virsh -q -c qemu:///system capabilities | grep -c '<model>apparmor</model>'";

/// Which vDPA devices QEMU has open, who may open them beside, and whether QEMU is confined.
const OPENED: &str = "pid=$(pgrep -of 'qemu-system.*guest=penstock-node-1') && \
    ls -l /proc/$pid/fd | grep -o '/dev/vhost-vdpa-[0-9]*' | sort -u | wc -l && stat -c '%U %a' /dev/vhost-vdpa-* | sort -u && \
    grep -c '^libvirt-.*(enforce)$' /proc/$pid/attr/current";

/// Has the VM's first VF send from an address that is none of its own, and then from its own again.
const FORGE: &str = "vf=$(ls /sys/class/net/net0/device/../virtfn0/virtio*/net) && \
    as() { ip link set $vf down && ip link set $vf address $1 && ip link set $vf up; } && \
    as 02:aa:aa:aa:aa:aa && ip address add 192.0.2.9/24 dev $vf && ! ping -c 2 -W 1 192.0.2.10 >/dev/null && \
    ip address del 192.0.2.9/24 dev $vf && as 02:00:00:00:01:01";

fn functions_are_vdpa_devices(board: &KeptBoard) -> Outcome {
    let model = "/root/devices.yaml";
    board.write(model, &with_net0("devices", DEVICES)).ended_with(0)?;
    let confined = board.shell(CONFINE);
    confined.ended_with(0)?;
    assert_eq!(confined.stdout.trim(), "1");
    let refused = board.inside(["penstock", "check", model, "--here"]);
    refused.ended_with(4)?;
    let rule = "/dev/vhost-vdpa-[0-9]* rw,";
    assert!(refused.stderr.contains("AppArmor") && refused.stderr.contains(rule), "{}", refused.stderr);
    // The other rule is for the memory of huge pages.
    let allow = format!(
        "cd /etc/apparmor.d/local && mkdir -p abstractions && printf '%s\\n' '{rule}' '/ rw,' >>abstractions/libvirt-qemu"
    );
    board.shell(&allow).ended_with(0)?;
    board.inside(["penstock", "check", model, "--here"]).ended_with(0)?;
    let left = "ls /sys/bus/vdpa/devices /dev/vduse 2>/dev/null | grep penstock; ip -o link | grep -o 'tap0[0-9]*'; \
        systemctl list-units --all --plain --no-legend 'penstock-switch-*'; virsh -q -c qemu:///system list --name --all";
    assert_eq!(board.shell(left).stdout.trim(), "", "a check leaves nothing");

    board.inside(["penstock", "apply", model]).ended_with(0)?;
    let verified = || -> Result<(Vec<String>, Vec<String>), Failed> {
        let verify = board.inside(["penstock", "verify", model, "--json"]);
        verify.ended_with(0)?;
        Ok((said(&verify.stdout)?, frames(&verify.stdout)?))
    };
    let (lines, _) = verified()?;
    for line in [
        "node-1/net0 port pass: connected",
        "node-1/net0 state pass: ready",
        "node-1/net0 uplink pass: NET0",
        "node-1/net0#0 port pass: connected",
        "node-1/net0#0 state pass: reserved, off",
        "node-1/net0#0 spoofchk pass: on",
        "node-1/net0#1 vlan pass: 100",
        "node-1/net0#1 max_tx_rate pass: 500 Mbit/s",
        "node-1/net1 port pass: connected",
        "node-1/net2 port pass: connected",
        "node-1/net2 spoofchk pass: on",
        "node-1/net2 vlans pass: 0,100",
        "node-1/net2 more_macs pass: 02:00:00:00:03:01",
        "node-1/net2 uplink pass: up0",
        "node-1/net2 host pass: gets nothing of the tap",
    ] {
        assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
    }
    let opened = board.shell(OPENED);
    opened.ended_with(0)?;
    assert_eq!(opened.stdout, "3\nroot 600\n1\n");
    let status = board.inside(["penstock", "status"]).stdout;
    assert!(status.contains("uplink NET0 (0000:01:00.0), 2 VFs, vDPA devices"), "{status}");
    board.inside(["penstock", "plan", "--detailed-exitcode", model]).ended_with(0)?;

    // The VM makes its VFs, and their frames cross the switch, which holds what is set for them.
    let seen = within(board, ENABLE)?;
    assert_eq!(seen, "2\n02:00:00:00:01:01\n02:00:00:00:01:02\n");
    let crosses = || -> Outcome {
        let (lines, paths) = verified()?;
        assert!(lines.contains(&"node-1/net0#1 state pass: ready".to_owned()), "{lines:#?}");
        for line in [
            "node-1/net0 -> node-1/net0#0: arrives",
            "node-1/net0#0 -> node-1/net0: arrives",
            "node-1/net0#0 -> node-1/net0#1: isolated",
            "node-1/net0#1 -> node-1/net0: isolated",
        ] {
            assert!(paths.contains(&format!("pass {line}")), "{line} in {paths:#?}");
        }
        Ok(())
    };
    crosses()?;
    within(board, FORGE)?;
    let metrics = board.inside(["penstock", "metrics"]).stdout;
    let forged =
        |line: &&str| line.contains("port=\"node-1/net0#0\"") && line.contains("reason=\"spoofed_mac\"");
    let dropped = metrics.lines().find(forged).and_then(|line| line.rsplit(' ').next());
    assert!(dropped.is_some_and(|count| count != "0"), "{metrics}");

    // A switch that dies is there again, and goes on with the devices that QEMU has open.
    dies_and_is_there_again(board, "penstock-switch-node-1:net0.service", model)?;
    crosses()?;
    an_igb_is_at_a_switch(board, model)?;

    // The way back takes everything along: the VM, then devices and taps.
    board.inside(["penstock", "undo"]).ended_with(0)?;
    assert_eq!(board.shell(left).stdout.trim(), "", "an undo leaves something");
    Ok(())
}

/// The switch of a VM's NIC leads to a VF of the host in a VLAN. The VF's NIC is a virtio one, since VFs of an igb have no promiscuous
/// mode. Over a cable is a container with a VF in that VLAN and one in none.
const UPLINK_VF: &str = r#"machine: MACHINE
nics:
  NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}}
  NET1: {match: {mac: "0c:c4:7a:9a:61:eb"}, vfs: 3}
guests:
  far:
    functions: [NET1#0, {vf: NET1#1, vlan: 100}]
  node-1:
    kind: vm
    memory: 512MiB
    huge_pages: 2MiB
    ready_within: 600
    nics:
      net0:
        vfs: 1
        uplink: {vf: NET0#1, trust: on, spoofchk: off, vlan: 100}
        mac: "02:00:00:00:01:00"
board:
  cables: [[NET0, NET1]]
"#;

/// What `verify` says of a function of the host: attribute, outcome and what was seen.
fn of_function(verified: &str, name: &str) -> Result<Vec<String>, Failed> {
    let all = verdicts(verified)?;
    let of = all.iter().filter(|verdict| verdict["subject"]["function"] == name);
    let line = |verdict: &Value| {
        let (outcome, seen) = (text(&verdict["outcome"]), text(&verdict["seen"]));
        format!("{} {outcome}: {seen}", text(&verdict["attribute"]))
    };
    Ok(of.map(line).collect())
}

/// The interface whose MAC address is ADDRESS hears frames to all, and those to FOREIGN that PF sends: says which came, and whether the
/// kernel has it promiscuous.
const PROMISCUOUS: &str = r#"import json, socket, subprocess, time
def named(address):
    for _, name in socket.if_nameindex():
        if open(f"/sys/class/net/{name}/address").read().strip() == address:
            return name
listener, sender = named("ADDRESS"), named("PF")
subprocess.run(["ip", "link", "set", listener, "up", "promisc", "on"], check=True)
detail = json.loads(subprocess.check_output(["ip", "-d", "-j", "link", "show", listener]))[0]
time.sleep(2)
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
ear.bind((listener, 0x88b5))
ear.settimeout(0.5)
mouth = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
mouth.bind((sender, 0))
source = bytes.fromhex("PF".replace(":", ""))
heard, end = set(), time.time() + 10
while time.time() < end:
    for target in ("ff:ff:ff:ff:ff:ff", "02:00:00:00:99:99"):
        mouth.send(bytes.fromhex(target.replace(":", "")) + source + b"\x88\xb5" + bytes(46))
    try:
        while True:
            heard.add("all" if ear.recv(2048)[:6] == b"\xff" * 6 else "foreign")
    except socket.timeout:
        pass
print(detail["promiscuity"], *sorted(heard))
"#;

fn a_vf_is_the_uplink(board: &KeptBoard) -> Outcome {
    let model = board.model();
    board.inside(["penstock", "check", model, "--here"]).ended_with(0)?;
    board.inside(["penstock", "apply", model]).ended_with(0)?;
    let verified = |status: i32| -> Result<String, Failed> {
        let verify = board.inside(["penstock", "verify", model, "--json"]);
        verify.ended_with(status)?;
        Ok(verify.stdout)
    };
    let holds = |verified: &str| -> Outcome {
        let lines = of_function(verified, "NET0#1")?;
        for line in [
            "up pass: up",
            "carrier pass: carrier",
            "promiscuous pass: on",
            "trust pass: on",
            "spoofchk pass: off",
            "vlan pass: 100",
        ] {
            assert!(lines.contains(&line.to_owned()), "{line} in {lines:#?}");
        }
        assert!(lines.iter().any(|line| line.starts_with("driver pass: virtio")), "{lines:#?}");
        let lines = said(verified)?;
        assert!(lines.contains(&"node-1/net0 uplink pass: NET0#1".to_owned()), "{lines:#?}");
        // Frames to and from an address that is none of the host's NIC, in the uplink's VLAN and in no other.
        let lines = frames(verified)?;
        for line in [
            "node-1/net0 -> NET1#1: arrives",
            "NET1#1 -> node-1/net0: arrives",
            "node-1/net0 -> NET1#0: isolated",
            "NET1#0 -> node-1/net0: isolated",
        ] {
            assert!(lines.contains(&format!("pass {line}")), "{line} in {lines:#?}");
        }
        Ok(())
    };
    holds(&verified(0)?)?;
    board.inside(["penstock", "plan", "--detailed-exitcode", model]).ended_with(0)?;

    // Nobody else takes it, and what is changed by hand is told and put right while the VM runs.
    let vf = "$(ls /sys/bus/pci/devices/0000:01:00.0/virtfn1/virtio*/net)";
    board.shell(&format!("ip link set {vf} down")).ended_with(0)?;
    let lines = of_function(&verified(1)?, "NET0#1")?;
    assert!(lines.contains(&"up fail: down".to_owned()), "{lines:#?}");
    board.inside(["penstock", "apply", model]).ended_with(0)?;
    holds(&verified(0)?)?;

    // An igb's VF is as promiscuous as the kernel has it, and gets no frame to another address than its own.
    let heard = PROMISCUOUS.replace("PF", "0c:c4:7a:9a:61:ea");
    let report = board.shell(&format!(
        "pf=$(grep -l 0c:c4:7a:9a:61:eb /sys/class/net/*/address | xargs dirname) && name=$(basename $pf) && \
         vf=$(ls $pf/device/virtfn2/net) && ip link set $name vf 2 trust on && ip link set $name vf 2 spoofchk off && \
         address=$(cat /sys/class/net/$vf/address) && cat >/tmp/heard.py <<'END'\n{heard}END\n\
         sed -i s/ADDRESS/$address/ /tmp/heard.py && python3 /tmp/heard.py"
    ));
    report.ended_with(0)?;
    assert_eq!(report.stdout.trim(), "1 all");

    // The VF stays the host's when the VM has gone, and is listened to no more.
    board.inside(["penstock", "stop", model]).ended_with(0)?;
    let left = board.shell(&format!("ip -d -j link show {vf} | tr ',' '\\n' | grep promiscuity"));
    assert_eq!(left.stdout.trim(), "\"promiscuity\":0");
    Ok(())
}
