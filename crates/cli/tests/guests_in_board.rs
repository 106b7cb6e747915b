//! VMs and containers on a board: what happens to them and to the host's VFs when something dies, is missing or is wrong.
#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path, process::ExitCode, time::Instant};

use penstock_testkit::{
    binary::Run,
    board::{self, KeptBoard},
    json,
    trials::{self, Failed, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("whatever_is_killed_no_vf_is_lost_in_board", || {
            board::on_its_own("kill", without_rtos, whatever_is_killed_no_vf_is_lost)
        }),
        ("faults_are_said_and_the_others_go_on_in_board", || {
            board::on_its_own("faults", model, faults_are_said)
        }),
    ])
}

/// The model that these tests share, for a board of this name.
fn model(machine: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/machine.yaml");
    fs::read_to_string(path).expect("a fixture").replace("MACHINE", machine)
}

/// The same with one VM and one container: a second VM is made no other way, and takes as long again each time.
fn without_rtos(machine: &str) -> String {
    // A VM that was killed is waited for as long as it may take: five times as long, as the processor is emulated.
    let all = model(machine).replace("    ready_within: 600\n", "    ready_within: 24\n");
    all.split("  rtos:\n").next().unwrap_or_default().to_owned()
}

/// All that a guest could take along, as one text: each VF with its driver and the address that the PF keeps for it, the
/// interfaces of the host, and what still runs for a guest.
fn host(board: &KeptBoard) -> Result<String, Failed> {
    let script = r#"
        for pf in /sys/bus/pci/devices/*/sriov_numvfs; do
            pf=${pf%/*}
            [ "$(cat "$pf/sriov_numvfs")" = 0 ] && continue
            echo "${pf##*/} $(ls "$pf/net") $(cat "$pf"/net/*/operstate)"
            for vf in "$pf"/virtfn*; do
                driver=$(readlink "$vf/driver"); override=$(cat "$vf/driver_override")
                echo "${vf##*/} driver=${driver##*/} override=$override"
            done
            ip link show dev "$(ls "$pf/net")" | sed -n 's/^ *\(vf .*\)/\1/p'
        done
        for process in /proc/[0-9]*; do
            case "$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)" in
            *guest=[p]enstock-*|*lxc-start*[p]enstock-*|*"[lxc monitor]"*[p]enstock-*) echo "runs: ${process##*/}" ;;
            esac
        done
        find /run/penstock/guests -name started.json 2>/dev/null
    "#;
    let seen = board.shell(script);
    seen.ended_with(0)?;
    Ok(seen.stdout)
}

/// Waits in a shell until LXC is about to start a container.
const STARTING: &str = "until grep -qs '^.lxc monitor' /proc/[0-9]*/cmdline || ! kill -0 $apply; do :; done";

/// Applies, waits for the moment (a shell's words), kills `victim` (a shell expression for process ids), lets the rest of the apply end.
fn apply_and_kill(board: &KeptBoard, victim: &str, wait: &str) -> Run {
    let model = board.model();
    board.shell(&format!(
        "penstock apply {model} >/tmp/apply.log 2>&1 & apply=$!; {wait}; kill -9 {victim}; wait $apply; \
         status=$?; cat /tmp/apply.log; exit $status"
    ))
}

/// What libvirt says of a VM that runs is good by its own schema, and the model that is imported of it has the VM's VF and size.
fn what_libvirt_says_is_imported(board: &KeptBoard) -> Outcome {
    let imported = board.shell(
        "set -e; cd /tmp; virsh -q -c qemu:///system dumpxml penstock-agent >agent.xml; virt-xml-validate agent.xml domain >&2; \
         penstock import --from libvirt agent.xml --quiet >imported.yaml; penstock check imported.yaml >&2; cat imported.yaml",
    );
    imported.ended_with(0)?;
    for line in ["    vfs: 4\n", "    memory: \"256MiB\"\n", "    cpus: 1\n", "      - {vf: \"eth0#1\"}\n"] {
        assert!(imported.stdout.contains(line), "{line} in {}", imported.stdout);
    }
    Ok(())
}

fn whatever_is_killed_no_vf_is_lost(board: &KeptBoard) -> Outcome {
    let model = board.model();
    // What is to come up may take its time, beside other boards.
    let patient = without_rtos(board.name()).replace("ready_within: 24\n", "ready_within: 600\n");
    board.write("/root/patient.yaml", &patient).ended_with(0)?;
    let apply = || board.inside(["penstock", "apply", "/root/patient.yaml"]).ended_with(0);
    let began = Instant::now();
    apply()?;
    let took = began.elapsed().as_secs_f64();
    board.inside(["penstock", "verify", model]).ended_with(0)?;
    what_libvirt_says_is_imported(board)?;
    board.inside(["penstock", "stop", model]).ended_with(0)?;
    let before = host(board)?;
    assert!(before.contains("virtfn3") && !before.contains("vfio"), "{before}");

    // Penstock itself, at moments spread over an apply.
    for moment in [0.2, 0.5, 0.8] {
        let moment = took * moment;
        apply_and_kill(board, "$apply", &format!("sleep {moment}"));
        given_back(board, &before, &format!("penstock was killed after {moment:.1} s"))?;
    }
    // The same while LXC starts a container: it gives up (it has nobody to tell that it runs), and the kernel brings the VF back later.
    apply_and_kill(board, "$apply", STARTING);
    given_back(board, &before, "penstock was killed while LXC started a container")?;
    // libvirt's daemon, while VMs are made.
    let moment = took * 0.55;
    apply_and_kill(board, "$(pidof libvirtd)", &format!("sleep {moment}"));
    given_back(board, &before, &format!("libvirt was killed after {moment:.1} s"))?;
    // Each guest while it runs.
    apply()?;
    for guest in ["box", "agent"] {
        let status = status(board)?;
        let pid = status[guest]["pid"].as_u64().ok_or_else(|| format!("{guest} does not run: {status}"))?;
        board.shell(&format!("kill -9 {pid}")).ended_with(0)?;
        let mut now = self::status(board)?;
        for _ in 0..100 {
            if now[guest]["condition"] == "died" {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
            now = self::status(board)?;
        }
        assert_eq!(now[guest]["condition"], "died", "{now}");
        board.inside(["penstock", "verify", model]).ended_with(1)?;
    }
    given_back(board, &before, "every guest was killed")?;
    apply()?;
    board.inside(["penstock", "verify", model]).ended_with(0)
}

/// Stops what is left and compares the host with what it was.
fn given_back(board: &KeptBoard, before: &str, what: &str) -> Outcome {
    let stop = board.inside(["penstock", "stop", board.model()]);
    if stop.status != 0 {
        return Err(format!("{what}, and stop ended with {}:\n{}", stop.status, stop.stderr).into());
    }
    let after = host(board)?;
    if after == before {
        return Ok(());
    }
    Err(format!("{what}, and the host is not as it was:\n{before}\nbut:\n{after}").into())
}

/// `penstock status --json`, the guests by name.
fn status(board: &KeptBoard) -> Result<Value, Failed> {
    let status = board.inside(["penstock", "status", "--json"]);
    status.ended_with(0)?;
    let all: Value = json::read(&status.stdout)?;
    Ok(all.get("guests").cloned().unwrap_or(all))
}

fn faults_are_said(board: &KeptBoard) -> Outcome {
    let name = board.name();
    // A kernel that does not boot: said with the last lines of its console, the others run.
    let broken = model(name).replace(
        "  rtos:\n    kind: vm\n    ready_within: 600\n",
        "  rtos:\n    kind: vm\n    boot: {kernel: /srv/no-kernel}\n    ready_within: 5\n",
    );
    board.shell("head -c 65536 /dev/zero >/srv/no-kernel").ended_with(0)?;
    board.write("/root/broken.yaml", &broken).ended_with(0)?;
    let apply = board.inside(["penstock", "apply", "/root/broken.yaml"]);
    apply.ended_with(1)?;
    let waited = apply.stderr.split("guest rtos is not ready after ").nth(1);
    let waited: Option<f64> = waited.and_then(|rest| rest.split(' ').next()?.parse().ok());
    assert!(waited.is_some_and(|seconds| (25.0..50.0).contains(&seconds)), "{}", apply.stderr);
    let now = status(board)?;
    assert_eq!(now["agent"]["condition"], "running", "{now}\n{}", apply.stderr);
    assert_eq!(now["box"]["condition"], "running", "{now}");
    let vf = board.shell("readlink /sys/bus/pci/devices/*/virtfn2/driver");
    assert!(!vf.stdout.contains("vfio"), "the VF of the guest that failed was given back: {}", vf.stdout);
    board.inside(["penstock", "stop", "/root/broken.yaml"]).ended_with(0)?;

    // An image that is not there. The other VM is no part of this: it would be started for nothing, which takes half a minute.
    let missing = (model(name).split("  rtos:\n").next().unwrap_or_default())
        .replace("  agent:\n    kind: vm\n", "  agent:\n    kind: vm\n    boot: {disk: /root/no-disk.img}\n");
    board.write("/root/missing.yaml", &missing).ended_with(0)?;
    let apply = board.inside(["penstock", "apply", "/root/missing.yaml"]);
    apply.ended_with(1)?;
    assert!(apply.stderr.contains("/root/no-disk.img"), "{}", apply.stderr);
    board.inside(["penstock", "stop", "/root/missing.yaml"]).ended_with(0)?;

    // More than the machine has: nothing is begun.
    for (wish, said) in [("memory: 64GiB", "this machine has"), ("pin: 77", "CPU 77, which is not here")] {
        let greedy = model(name).replace("  agent:\n", &format!("  agent:\n    {wish}\n"));
        board.write("/root/greedy.yaml", &greedy).ended_with(0)?;
        let apply = board.inside(["penstock", "apply", "/root/greedy.yaml"]);
        apply.ended_with(6)?;
        assert!(apply.stderr.contains(said), "{}", apply.stderr);
    }

    // The kernel has no VFIO: the container runs, each VM is said once with what is missing.
    let gone = "rmmod vfio_pci; mv $(find /lib/modules/$(uname -r) -name 'vfio-pci.ko*') /srv/";
    board.shell(gone).ended_with(0)?;
    let apply = board.inside(["penstock", "apply", board.model()]);
    apply.ended_with(1)?;
    for vm in ["agent", "rtos"] {
        let said = format!("error: guest {vm} failed");
        assert_eq!(apply.stderr.matches(&said).count(), 1, "{}", apply.stderr);
    }
    assert!(apply.stderr.contains("modprobe vfio-pci"), "{}", apply.stderr);
    assert_eq!(status(board)?["box"]["condition"], "running");
    let back =
        "mv /srv/vfio-pci.ko* /lib/modules/$(uname -r)/kernel/drivers/vfio/pci/; depmod; modprobe vfio-pci";
    board.shell(back).ended_with(0)?;
    board.inside(["penstock", "stop", board.model()]).ended_with(0)?;

    // libvirt is not there: the container runs, the VMs are said once each.
    let gone = "mv /usr/sbin/libvirtd /usr/sbin/libvirtd.away; kill -9 $(pidof libvirtd); \
                for try in $(seq 100); do pidof libvirtd >/dev/null || exit 0; sleep 0.1; done; exit 1";
    board.shell(gone).ended_with(0)?;
    let apply = board.inside(["penstock", "apply", board.model()]);
    apply.ended_with(1)?;
    assert!(apply.stderr.contains("libvirt"), "{}", apply.stderr);
    assert_eq!(status(board)?["box"]["condition"], "running");
    let back = "mv /usr/sbin/libvirtd.away /usr/sbin/libvirtd; \
                for try in $(seq 100); do virsh -q -c qemu:///system list >/dev/null 2>&1 && exit 0; sleep 0.3; done; exit 1";
    board.shell(back).ended_with(0)?;
    board.inside(["penstock", "stop", board.model()]).ended_with(0)?;

    // A VF in use by somebody else: refused, and with leave to try, the guest that is to have it fails alone.
    let taken = "modprobe vfio-pci; vf=$(readlink -f /sys/bus/pci/devices/*/virtfn1); vf=${vf##*/}; \
                 echo vfio-pci >/sys/bus/pci/devices/$vf/driver_override; echo $vf >/sys/bus/pci/drivers_probe; \
                 group=$(readlink /sys/bus/pci/devices/$vf/iommu_group); \
                 (exec 3<>/dev/vfio/${group##*/}; exec sleep 1000) >/dev/null 2>&1 & \
                 for try in $(seq 100); do [ -e /proc/$!/fd/3 ] && exit 0; sleep 0.1; done; exit 1";
    board.shell(taken).ended_with(0)?;
    let refused = board.inside(["penstock", "apply", board.model()]);
    refused.ended_with(3)?;
    assert!(refused.stderr.contains("--allow vfs-in-use:NET0"), "{}", refused.stderr);
    let apply = board.inside(["penstock", "apply", "--allow", "vfs-in-use:NET0", board.model()]);
    apply.ended_with(1)?;
    assert!(apply.stderr.contains("agent") && apply.stderr.contains("sleep"), "{}", apply.stderr);
    let now = status(board)?;
    assert_eq!(now["box"]["condition"], "running", "{now}");
    assert_eq!(now["rtos"]["condition"], "running", "{now}\n{}", apply.stderr);
    Ok(())
}
