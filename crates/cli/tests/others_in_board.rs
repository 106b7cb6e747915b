//! Side by side with others on a real kernel: VFs that somebody else made, drivers that the operator chose, and a network
//! manager that takes whatever interface appears. What is so before and after is read by `ip` and from sysfs.
#![allow(clippy::disallowed_methods)]

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use penstock_testkit::{
    board::{KeptBoard, own_name},
    trials::{self, Failed, Outcome},
};

fn main() -> ExitCode {
    trials::on_boards(&[
        ("vfs_that_somebody_else_made_are_used_and_stay_his_in_board", vfs_stay_his),
        ("a_pf_that_is_late_tells_its_vfs_their_addresses_all_the_same_in_board", a_pf_that_is_late),
    ])
}

/// Three VFs as an operator makes them. The PF's link comes back when they are there.
const MAKE: &str = "set -e
ip link set eth0 up
echo 3 > /sys/class/net/eth0/device/sriov_numvfs
ip link set eth0 vf 0 mac 02:aa:00:00:00:00 vlan 7 spoofchk off
ip link set eth0 vf 1 mac 02:aa:00:00:00:01 vlan 7
ip link set eth0 vf 2 mac 02:aa:00:00:00:02
for try in $(seq 100); do grep -q 1 /sys/class/net/eth0/carrier && break; sleep 0.1; done";

/// All that somebody else has set: the PF's link, name, MTU, what it keeps for its VFs, their number and drivers.
const HIS: &str = r#"d=/sys/class/net/eth0/device
ip -d -j link show eth0 | sed 's/.*"flags"/"flags"/; s/"operstate":"[A-Z]*"//'
cat $d/sriov_numvfs $d/sriov_drivers_autoprobe
for v in $d/virtfn*; do echo ${v##*/} $(basename $(readlink $v/driver)) $(cat $v/driver_override) $(ls $v/net | wc -l); done"#;

/// systemd-networkd as it is on servers that use it, with a file that takes every interface but the board's own.
const NETWORKD: &str = "set -e
mkdir -p /run/dbus /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp /run/systemd/network
chown -R systemd-network:systemd-network /run/systemd/netif
dbus-daemon --system --fork
/usr/lib/systemd/systemd-udevd --daemon 2>/dev/null
udevadm trigger --subsystem-match=net --settle
printf '[Match]\\nName=eth* enp*\\n[Network]\\nLinkLocalAddressing=no\\nAddress=198.51.100.7/24\\n' > /run/systemd/network/50-greedy.network
/usr/lib/systemd/systemd-networkd >/run/networkd.log 2>&1 </dev/null &";

struct Bench {
    board: KeptBoard,
}

impl Bench {
    fn say(&self, line: &str) -> Result<String, Failed> {
        let run = self.board.shell(line);
        if run.status != 0 {
            return Err(format!("{line}: status {}: {}{}", run.status, run.stdout, run.stderr).into());
        }
        Ok(run.stdout)
    }

    /// A verb on the model inside, which ends with `status`; all that it said.
    fn verb(&self, words: &str, status: i32) -> Result<String, Failed> {
        let run = self.board.shell(&format!("penstock {words} {} 2>&1", self.board.model()));
        if run.status != status {
            return Err(format!("{words}: status {}, not {status}: {}", run.status, run.stdout).into());
        }
        Ok(run.stdout)
    }

    /// Waits until the interface of a VF has the greedy file's address, or not.
    fn configured(&self, vf: u32, wanted: bool) -> Outcome {
        let line = format!(
            "ip -br addr show dev $(ls /sys/class/net/eth0/device/virtfn{vf}/net) | grep -c 198.51.100.7; true"
        );
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let seen = self.say(&line)?;
            if (seen.trim() == "1") == wanted {
                return Ok(());
            }
            if Instant::now() > until {
                let log = self.say("networkctl list --no-pager; ip -br addr; tail -30 /run/networkd.log")?;
                return Err(format!("VF {vf} configured: {seen}, wanted: {wanted}\n{log}").into());
            }
            thread::sleep(Duration::from_millis(300));
        }
    }
}

fn vfs_stay_his() -> Outcome {
    let name = own_name("others");
    let model = format!(
        "machine: {name}\nnics:\n  NET0: {{externally_managed: on, vfs: 2}}\nguests:\n  \
         a: {{functions: [{{vf: NET0#0, address: 10.9.0.1/24, mac: \"02:aa:00:00:00:00\"}}]}}\n  \
         b: {{functions: [{{vf: NET0#1, address: 10.9.0.2/24}}]}}\n"
    );
    let bench = Bench { board: KeptBoard::up(&name, &model)? };
    let missing = bench.verb("plan", 6)?;
    assert!(missing.contains("0000:01:00.0 has 0; it is externally managed"), "{missing}");
    bench.say(MAKE)?;
    let his = bench.say(HIS)?;
    assert!(his.contains("virtfn2 igbvf (null) 1"), "{his}");

    what_others_chose_is_respected(&bench)?;
    assert_eq!(bench.say(HIS)?, his);

    // Nobody tells networkd: it takes VFs on the host.
    bench.say(NETWORKD)?;
    (0..3).try_for_each(|vf| bench.configured(vf, true))?;
    let his = bench.say(HIS)?;

    bench.verb("apply", 0)?;
    bench.verb("verify", 0)?;
    assert!(bench.verb("apply", 0)?.contains("Nothing to do"));
    let used = bench.say(HIS)?.replace("igbvf (null) 0", "igbvf (null) 1");
    assert_eq!(used, his, "the interfaces of two VFs are with guests, and nothing else is different");
    // What is there is read into a model that changes nothing.
    bench.say("penstock scan --as-model > /root/read.yaml")?;
    let read = bench.say("penstock plan /root/read.yaml; cat /root/read.yaml")?;
    assert!(read.contains("Nothing to do") && read.contains("externally_managed: true"), "{read}");

    // A guest dies and its VF comes back by itself: it is let alone, as the one that is no guest's is not.
    bench
        .say("kill -9 $(penstock status --json | tr ',{' '\\n\\n' | sed -n 's/.*\"pid\": *//p' | head -1)")?;
    bench.say("for try in $(seq 300); do ls /sys/class/net/eth0/device/virtfn0/net/* >/dev/null 2>&1 && exit; sleep 0.2; done; exit 1")?;
    bench.say("ip link set $(ls /sys/class/net/eth0/device/virtfn0/net) up; udevadm settle")?;
    let listed = bench.say(
        "for try in $(seq 60); do listed=$(networkctl list --no-pager --no-legend $(ls /sys/class/net/eth0/device/virtfn0/net)); \
         case $listed in *unmanaged*) break;; esac; sleep 1; done; echo $listed",
    )?;
    assert!(listed.contains("unmanaged"), "{listed}");
    bench.configured(0, false)?;
    bench.configured(2, true)?;

    // Given back: as it was, and networkd has it again.
    bench.verb("stop", 0)?;
    assert_eq!(bench.say(HIS)?, his);
    assert_eq!(bench.say("ls /run/systemd/network")?, "50-greedy.network\n");
    (0..3).try_for_each(|vf| bench.configured(vf, true))?;

    bench.verb("apply", 0)?;
    bench.say("penstock undo")?;
    assert_eq!(bench.say(HIS)?, his);
    assert_eq!(bench.say("ls /run/systemd/network")?, "50-greedy.network\n");
    Ok(())
}

/// A driver that is wanted otherwise than somebody else has chosen is refused, and nothing is touched.
fn what_others_chose_is_respected(bench: &Bench) -> Outcome {
    let vf = "/sys/class/net/eth0/device/virtfn1";
    bench.say(&format!(
        "echo 0000:01:10.2 > {vf}/driver/unbind; echo vfio-pci > {vf}/driver_override; echo 0000:01:10.2 > /sys/bus/pci/drivers_probe"
    ))?;
    let refused = bench.verb("apply", 3)?;
    assert!(refused.contains("somebody has set its driver_override to vfio-pci"), "{refused}");
    bench.say("mkdir -p /etc/driverctl.d; echo vfio-pci > /etc/driverctl.d/pci-0000:01:10.2")?;
    let refused = bench.verb("apply", 3)?;
    assert!(refused.contains("driverctl unset-override 0000:01:10.2"), "{refused}");
    let scan = bench.say("penstock scan")?;
    assert!(scan.contains("chosen with driverctl: 0000:01:10.2 vfio-pci"), "{scan}");
    bench.say("test $(basename $(readlink /sys/class/net/eth0/device/virtfn1/driver)) = vfio-pci")?;
    bench.say(&format!(
        "rm /etc/driverctl.d/*; echo 0000:01:10.2 > {vf}/driver/unbind; echo > {vf}/driver_override; echo 0000:01:10.2 > /sys/bus/pci/drivers/igbvf/bind"
    ))?;
    Ok(())
}

/// Takes the PF down as soon as it keeps the last VF's address, for as long as a driver takes to negotiate a link.
const DOWN: &str = "(until ip link show eth0 | grep -q 'vf 2.*02:aa:00:00:00:02'; do :; done; \
                    ip link set eth0 down; sleep 3; ip link set eth0 up) >/dev/null 2>&1 &";

/// A VF's driver asks its PF for the address once, while it is bound, and makes one up when nobody answers: while the PF is
/// down, on the host or inside the container that has it.
fn a_pf_that_is_late() -> Outcome {
    let name = own_name("late");
    let vfs = "vfs: 3";
    let guests = "  a: {functions: [{vf: NET0#0, mac: \"02:aa:00:00:00:00\"}, {vf: NET0#1, mac: \"02:aa:00:00:00:01\"}]}\n  \
                  b: {functions: [{vf: NET0#2, mac: \"02:aa:00:00:00:02\"}]}\n";
    let owned = format!(
        "machine: {name}\nnics: {{NET0: {{{vfs}}}}}\nguests:\n  owner:\n    functions: [NET0]\n    \
         init: [sh, -c, \"ip link set eth0 down; sleep 3; ip link set eth0 up; exec sleep infinity\"]\n{guests}"
    );
    let bench = Bench { board: KeptBoard::up(&name, &owned)? };
    bench.verb("apply", 0)?;
    bench.verb("verify", 0)?;
    bench.verb("stop", 0)?;

    let on_host = format!("nics: {{NET0: {{{vfs}}}}}\nguests:\n{guests}");
    bench.board.write("/root/host.yaml", &on_host).ended_with(0)?;
    bench.say("echo 0 >/sys/class/net/eth0/device/sriov_numvfs")?;
    let apply = "penstock apply /root/host.yaml 2>&1; penstock verify /root/host.yaml 2>&1";
    let said = bench.board.shell(&format!("{DOWN} {apply}"));
    said.ended_with(0)
}
