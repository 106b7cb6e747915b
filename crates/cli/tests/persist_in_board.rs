//! A board that is rebooted: what `apply --persist` installs makes the model come true again, and nobody types anything. And
//! a kernel that is started with what GRUB made of the drop-in.
#![allow(clippy::disallowed_methods)]

use std::{process::ExitCode, thread};

use nix::sched::{CloneFlags, unshare};
use penstock_apply::{HostExecutor, Mode, Options, journal::Entry, run};
use penstock_host::{Root, scan::boot::setup};
use penstock_model::{Inventory, Source};
use penstock_plan::{
    Executors, boot_needs,
    persist::{self, UNIT_DIRECTORY, WANTED_BY, Wanted},
};
use penstock_testkit::{
    board::{KeptBoard, own_name},
    grub, json, needs,
    trials::{Failed, Outcome, Test, Trials},
};
use serde_json::Value;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", needs::board);
    trials.add(&missing, [("a_model_comes_true_again_after_a_reboot_in_board", after_a_reboot as Test)]);
    let missing = missing.or_else(|| trials.lacking("GRUB's tools", grub::lacking));
    trials.add(&missing, [("a_kernel_that_grub_starts_needs_no_reboot_in_board", started_by_grub as Test)]);
    trials.run()
}

fn model(machine: &str) -> String {
    format!(
        "machine: {machine}
nics:
  NET0: {{vfs: 3}}
guests:
  alpha: {{functions: [{{vf: NET0#0, vlan: 100, address: 10.9.0.1/24}}]}}
  beta: {{functions: [{{vf: NET0#1, mac: \"02:00:00:00:00:77\"}}]}}
"
    )
}

/// The PF's VFs as `ip` shows them, their drivers as sysfs does, and the containers' own addresses: each said by the
/// kernel, none by Penstock.
const LOOK: &str = r#"
    for numvfs in /sys/bus/pci/devices/*/sriov_numvfs; do
        pf=${numvfs%/*}
        [ -d "$pf/net" ] || continue
        echo "$pf $(cat "$numvfs") $(cat "$pf/sriov_drivers_autoprobe")"
        ip -d -j link show dev "$(ls "$pf/net" | head -n 1)" | sed 's/.*"vfinfo_list"//; s/"stats64".*//'
        for vf in "$pf"/virtfn*; do driver=$(readlink "$vf/driver"); echo "${vf##*/} ${driver##*/}"; done
    done
    for guest in alpha beta; do
        pid=$(lxc-info -P /run/penstock/guests -n "penstock-$guest" -p -H)
        nsenter --net="/proc/$pid/ns/net" ip -j address show dev eth0 | grep -o '"address":"[^"]*"\|"local":"[0-9.]*"'
    done
"#;

/// Everything below /etc that is a file or a link, with what it holds; but for the ids of containers, which the first start of one
/// leaves there (docs/containers.md).
const ETC: &str = r"cd /etc; find . -type f ! -name machine-id ! -name 'sub[ug]id*' -exec md5sum {} + | sort; find . -type l -printf '%p %l\n' | sort";

/// What systemd and the units themselves say of those that failed.
const FAILED_UNITS: &str = "systemctl --failed --no-legend --plain | while read -r unit _; do \
                            systemctl status --no-pager --full --lines 200 $unit; done";

fn text(board: &KeptBoard, line: &str) -> Result<String, Failed> {
    let seen = board.shell(line);
    seen.ended_with(0)?;
    Ok(seen.stdout)
}

fn after_a_reboot() -> Outcome {
    let name = own_name("persist");
    let board = KeptBoard::up_with(&name, &model(&name), &["--keep-disk", "--systemd"])?;
    let path = board.model().to_owned();
    let etc = text(&board, ETC)?;
    let shown = board.inside(["penstock", "plan", "--persist", &path]);
    shown.ended_with(0)?;
    for sign in ["+++ /etc/penstock/model.yaml", "+  alpha: ", "run: systemctl enable penstock-nics.service"]
    {
        assert!(shown.stdout.contains(sign), "{sign} is not in {}", shown.stdout);
    }
    assert_eq!(text(&board, ETC)?, etc, "to show it is not to do it");
    board.inside(["penstock", "apply", "--persist", &path]).ended_with(0)?;
    let with = text(&board, ETC)?;
    let again = board.inside(["penstock", "apply", "--persist", &path]);
    again.ended_with(0)?;
    assert!(again.stderr.contains("Nothing to do for the next boots"), "{}", again.stderr);
    assert_eq!(text(&board, ETC)?, with);
    let before = text(&board, LOOK)?;
    assert!(before.contains("02:00:00:00:00:77") && before.contains("10.9.0.1"), "{before}");

    board.reset(&["--orderly"]).ended_with(0)?;
    let settled = board.shell("systemctl is-system-running --wait");
    assert_eq!(settled.stdout.trim(), "running", "{}", board.shell(FAILED_UNITS).stdout);
    assert_eq!(text(&board, LOOK)?, before, "the machine is another one after the reboot");
    board.inside(["penstock", "verify", &path]).ended_with(0)?;
    let order = text(
        &board,
        "for unit in penstock-nics.service network-pre.target penstock-guests.service; do \
         systemctl show -p ActiveEnterTimestampMonotonic --value $unit; done",
    )?;
    let order: Vec<u64> = order.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(order.len() == 3 && order[0] > 0 && order.is_sorted(), "{order:?}");

    // A model that cannot be applied: loud, and the rest of the machine goes on.
    let wrong = "sed -i 's/ --nic [^ ]*//' /etc/systemd/system/penstock-nics.service; \
                 sed -i 's/NET0: {vfs: 3}/NET0: {vfs: three}/' /etc/penstock/model.yaml; \
                 systemctl daemon-reload; systemctl stop penstock-guests; systemctl restart penstock-nics";
    assert_ne!(board.shell(wrong).status, 0);
    let said = text(
        &board,
        "journalctl --sync; journalctl -b -u penstock-nics -o cat; systemctl is-failed penstock-nics",
    )?;
    assert!(said.contains("/etc/penstock/model.yaml:3") && said.trim_end().ends_with("failed"), "{said}");
    assert_eq!(text(&board, LOOK)?, before, "what is there is left alone");

    let state: Value = json::read(&board.inside(["penstock", "status", "--json"]).stdout)
        .map_err(|error| error.to_string())?;
    assert_eq!(
        state["at_boot"]["units"],
        serde_json::json!(["penstock-guests.service", "penstock-nics.service"])
    );
    // What was edited above goes with the rest, and is kept aside.
    let undone = board.inside(["penstock", "undo", "--persist"]);
    undone.ended_with(0)?;
    for edited in ["/etc/penstock/model.yaml", "/etc/systemd/system/penstock-nics.service"] {
        let told = format!("somebody has edited {edited} since Penstock wrote it");
        assert!(undone.stderr.contains(&told), "{told}: {}", undone.stderr);
    }
    let kept = text(&board, "cat /var/lib/penstock/runs/*/edited/etc/penstock/model.yaml")?;
    assert!(kept.contains("NET0: {vfs: three}"), "{kept}");
    assert_eq!(text(&board, ETC)?, etc, "not everything is as it was");
    assert_eq!(text(&board, LOOK)?, before, "it is for the next boots, and nothing else");
    Ok(())
}

fn started_by_grub() -> Outcome {
    let name = own_name("grub");
    let text =
        format!("machine: {name}\nnics: {{NET0: }}\nguests: {{vm: {{kind: vm, functions: [NET0#0]}}}}\n");
    let asked = |line: &str| -> Result<(i32, Value), Failed> {
        let board = KeptBoard::up_with(&name, &text, &["--cold", "--kernel-arguments", line])?;
        let live = board.shell("cat /proc/cmdline").stdout;
        assert!(live.trim().ends_with(line), "{live}");
        let plan = board.inside(["penstock", "plan", "--json", board.model()]);
        let told = json::read(&plan.stdout).map_err(|error| format!("{error}: {}", plan.stderr))?;
        Ok((plan.status, told))
    };
    let (status, told) = asked("quiet")?;
    // The board's kernel uses the IOMMU unasked, so that it can be planned; what it lacks is pass-through.
    assert_eq!((status, &told["needs_reboot"]), (0, &Value::Bool(true)));
    assert_eq!(told["boot"]["needs"][0]["lines"], serde_json::json!(["guests.vm.functions"]));
    let line = of_grub(&text)?;
    let (status, told) = asked(&line)?;
    assert_eq!((status, &told["needs_reboot"]), (0, &Value::Bool(false)), "{told}");
    Ok(())
}

/// What GRUB's own tools make of the drop-in for a model, on a machine whose IOMMU is off: the words that its menu gives
/// the kernel.
fn of_grub(text: &str) -> Result<String, Failed> {
    let text = text.to_owned();
    let work = move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let machine = grub::Machine::new();
        let root = Root::at(machine.root());
        let model = penstock_model::parse(&Source::new("m.yaml", text.as_str())).expect("a good model").model;
        let mut inventory = Inventory::default();
        inventory.cpus.model = "Intel(R) Xeon(R)".to_owned();
        let needs = boot_needs(&model, &inventory);
        let wants = format!("{UNIT_DIRECTORY}/{WANTED_BY}.wants");
        let found = setup(&root, &persist::paths(), &wants).expect("its files");
        let program = "/usr/bin/penstock";
        let waits = std::time::Duration::ZERO;
        let wanted = Wanted {
            model: &model,
            text: &text,
            program,
            search_path: None,
            options: &[],
            needs: &needs,
            waits,
            cut_off: None,
        };
        let made = persist::persist(&wanted, &found);
        let mut host = HostExecutor::new(root).expect("a carrier");
        let mut carriers = Executors::of_host(&mut host);
        let mut journal: Vec<Entry> = Vec::new();
        let options = Options { mode: Mode::Apply, ..Options::default() };
        run(&made.plan, &mut carriers, &mut journal, &mut (), &options).expect("the steps are carried out");
        machine.command_line()
    };
    thread::spawn(work).join().map_err(|_| "GRUB's tools failed".into())
}
