//! Rehearsals that boot real kernels: what a user does, through the binary.
#![allow(clippy::disallowed_methods)]

use std::{
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use penstock_host::running::Running;
use penstock_testkit::{
    binary::{self, Run, run},
    board::own_name,
    json, programs,
    trials::{self, Failed, Outcome},
};
use serde_json::Value;

fn main() -> ExitCode {
    trials::on_boards(&[
        ("the_examples_hold_in_board", the_examples_hold),
        ("the_published_machine_is_proven_from_inside_in_board", the_published_machine_is_proven_from_inside),
        ("vlans_keep_guests_apart_in_board", vlans_keep_guests_apart),
        ("what_a_driver_cannot_do_is_said_in_board", what_a_driver_cannot_do_is_said),
        ("a_mac_changed_behind_the_tools_back_is_found_in_board", a_changed_mac_is_found),
        ("what_guests_are_told_is_as_the_machine_is_in_board", what_guests_are_told_is_as_the_machine_is),
        ("another_servers_inventory_is_rehearsed_in_board", another_servers_inventory_is_rehearsed),
        ("what_this_kernel_lacks_is_tested_in_board", what_this_kernel_lacks_is_tested),
        ("an_interrupt_leaves_nothing_running_in_board", an_interrupt_leaves_nothing_running),
    ])
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rehearse").join(name)
}

/// A copy in `at` of a model whose machine is its file's name, for a board that is kept: the copy, and the name of its machine.
fn for_own_board(at: &Path, file: &str) -> Result<(PathBuf, String), Failed> {
    let original = file.trim_end_matches(".yaml");
    let name = own_name(original);
    let text = std::fs::read_to_string(here(file))?;
    let copy = at.join(file);
    std::fs::write(&copy, text.replace(&format!("machine: {original}\n"), &format!("machine: {name}\n")))?;
    Ok((copy, name))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Rehearses a model into a fresh directory; gives how that ended, and the evidence.
fn rehearse(model: &Path) -> Result<(Run, Value, tempfile::TempDir), Failed> {
    let directory = tempfile::tempdir()?;
    let run =
        run(directory.path(), ["rehearse".as_ref(), "--output".as_ref(), "run".as_ref(), model.as_os_str()]);
    let evidence = std::fs::read_to_string(directory.path().join("run/evidence.json"))
        .map_err(|error| format!("no evidence ({error}), status {}:\n{}", run.status, run.stderr))?;
    Ok((run, serde_json::from_str(&evidence)?, directory))
}

fn verdicts(evidence: &Value) -> &Vec<Value> {
    evidence["verdicts"].as_array().expect("evidence has verdicts")
}

fn outcomes<'a>(evidence: &'a Value, attribute: &'a str) -> Vec<&'a str> {
    let about = verdicts(evidence).iter().filter(|verdict| verdict["attribute"] == attribute);
    about.map(|verdict| verdict["outcome"].as_str().unwrap_or_default()).collect()
}

fn the_examples_hold() -> Outcome {
    for name in ["smallest.yaml", "storage-node.yaml", "containers.yaml"] {
        let (run, evidence, directory) = rehearse(&example(name))?;
        run.ended_with(0)?;
        assert!(!verdicts(&evidence).is_empty());
        let wrong: Vec<&Value> = (verdicts(&evidence).iter())
            .filter(|verdict| verdict["outcome"] != "pass" && verdict["emulated"] != true)
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        let report = std::fs::read_to_string(directory.path().join("run/report.html"))?;
        assert!(report.contains("<svg") && !report.contains("http://") && !report.contains("https://"));
        let serial = std::fs::read_to_string(directory.path().join("run/serial.log"))?;
        assert!(serial.contains("Linux version"), "{name}: the serial log starts with the first byte");
    }
    Ok(())
}

/// The published machine: every MAC address is proven from inside each VM, what they said is kept, and what they are told
/// of their NICs too.
fn the_published_machine_is_proven_from_inside() -> Outcome {
    let (run, evidence, directory) = rehearse(&example("xeon-d.yaml"))?;
    run.ended_with(0)?;
    for guest in ["rt-2", "linux-2"] {
        let inside = |verdict: &&Value| verdict["vantage"]["guest"] == guest && verdict["attribute"] == "mac";
        let macs: Vec<&Value> = verdicts(&evidence).iter().filter(inside).collect();
        assert_eq!(macs.len(), 5, "{guest}");
        assert!(macs.iter().all(|verdict| verdict["outcome"] == "pass"), "{macs:?}");
        let said = std::fs::read_to_string(directory.path().join(format!("run/consoles/{guest}.log")))?;
        assert!(said.contains("penstock-guest: ready"), "{said}");
    }
    let header = std::fs::read_to_string(directory.path().join("run/generated/rt-2/nic_table.h"))?;
    assert!(header.contains("0x02, 0x00, 0x00, 0x00, 0x01, 0x05"), "{header}");
    // Each VM is resumed only after the PFs' owners were seen ready.
    let steps = evidence["steps"].as_array().cloned().unwrap_or_default();
    let at = |what: &str| {
        steps.iter().position(|step| step["what"].as_str().is_some_and(|is| is.starts_with(what)))
    };
    for owner in ["guest pf0: wait", "guest pf1: wait"] {
        assert!(at(owner) < at("guest rt-2: let it run") && at(owner).is_some(), "{steps:?}");
    }
    Ok(())
}

fn vlans_keep_guests_apart() -> Outcome {
    let (run, evidence, _directory) = rehearse(&here("vlans.yaml"))?;
    run.ended_with(0)?;
    for attribute in ["mac", "vlan", "spoofchk", "trust", "mtu"] {
        let told = verdicts(&evidence).iter().filter(|verdict| {
            verdict["attribute"] == attribute
                && !verdict["wanted"].as_str().is_some_and(|wanted| wanted.contains(' '))
        });
        let seen: Vec<&Value> = told.map(|verdict| &verdict["outcome"]).collect();
        assert!(!seen.is_empty() && seen.iter().all(|outcome| *outcome == "pass"), "{attribute}: {seen:?}");
    }
    what_an_emulated_nic_pretends(&evidence);
    // Four VFs in guests and the PF on the host: each ordered pair was tried, both those that must and must not reach.
    let reached: Vec<&Value> =
        verdicts(&evidence).iter().filter(|verdict| verdict["subject"].get("path").is_some()).collect();
    assert_eq!(reached.len(), 20);
    let isolated = reached.iter().filter(|verdict| verdict["wanted"] == "isolated").count();
    assert_eq!(isolated, 16, "all but red with red and plain with the PF: {reached:?}");
    Ok(())
}

/// The emulated 82576 takes spoof checks and does nothing: its driver says that they are on, and a forged frame arrives.
/// Which is told, and not held against a model that is right for a real one. Where the model has no frame pass
/// inside the NIC, none is forged.
fn what_an_emulated_nic_pretends(evidence: &Value) {
    let shown = |of: &str| -> Vec<(&Value, &Value, String)> {
        (verdicts(evidence).iter())
            .filter(|verdict| verdict["attribute"] == "spoofchk" && verdict["subject"]["function"] == of)
            .filter(|verdict| verdict["wanted"].as_str().is_some_and(|wanted| wanted.contains("arrive")))
            .map(|verdict| {
                (
                    &verdict["outcome"],
                    &verdict["emulated"],
                    verdict["seen"].as_str().unwrap_or_default().to_owned(),
                )
            })
            .collect()
    };
    for of in ["NET0#0", "NET0#1", "NET0#3"] {
        let shown = shown(of);
        let pretends = |seen: &str| seen.contains("not enforced by this emulated NIC");
        assert!(
            matches!(&shown[..], [(outcome, emulated, seen)]
                if **outcome == "unsupported" && **emulated == true && pretends(seen)),
            "{of}: {shown:?}"
        );
    }
    assert!(shown("NET0#2").is_empty(), "nobody else is in its VLAN");
}

fn what_a_driver_cannot_do_is_said() -> Outcome {
    let (run, evidence, _directory) = rehearse(&here("unsupported.yaml"))?;
    run.ended_with(1)?;
    // The kernel reports `auto` for a driver that has no link state at all; that it has none was seen when it was set.
    assert_eq!(outcomes(&evidence, "link_state"), ["unsupported"]);
    let step = evidence["steps"]
        .as_array()
        .and_then(|steps| steps.iter().find(|step| step["outcome"] == "unsupported"));
    assert!(step.is_some_and(|step| step["what"].as_str().is_some_and(|what| what.contains("state enable"))));
    let (run, evidence, _directory) = rehearse(&here("best-effort.yaml"))?;
    run.ended_with(0)?;
    assert_eq!(outcomes(&evidence, "link_state"), ["unsupported"]);
    Ok(())
}

fn a_changed_mac_is_found() -> Outcome {
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    let (model, name) = for_own_board(at, "vlans.yaml")?;
    run(at, ["board".as_ref(), "up".as_ref(), model.as_os_str()]).ended_with(0)?;
    then_down(at, &name, || on_a_kept_board(at, &name, &model))?;
    let list = run(at, ["board", "list", "--json"]);
    let list = json::read(&list.stdout)?.to_string();
    assert!(!list.contains(&name), "{list}");
    Ok(())
}

/// On a board that was only booted: apply, verify, break it, see that found, stop, start again.
fn on_a_kept_board(at: &Path, name: &str, model: &Path) -> Outcome {
    let inside = |words: &[&str]| run(at, ["board", "ssh", name].into_iter().chain(words.iter().copied()));
    let copy = std::fs::read_to_string(model)?;
    inside(&["sh", "-c", &format!("cat > /root/vlans.yaml <<'END'\n{copy}END")]).ended_with(0)?;
    inside(&["penstock", "apply", "/root/vlans.yaml"]).ended_with(0)?;
    inside(&["penstock", "verify", "/root/vlans.yaml"]).ended_with(0)?;

    let again = inside(&["penstock", "plan", "/root/vlans.yaml", "--json"]);
    again.ended_with(0)?;
    let plan: Value = json::read(&again.stdout)?;
    assert_eq!(
        plan["steps"].as_array().map(Vec::len),
        Some(0),
        "a model that holds has an empty plan: {plan}"
    );

    inside(&["ip", "link", "set", "uplink0", "vf", "1", "mac", "02:00:00:00:00:99"]).ended_with(0)?;
    let broken = inside(&["penstock", "verify", "/root/vlans.yaml", "--json"]);
    broken.ended_with(1)?;
    let verified: Value = json::read(&broken.stdout)?;
    assert!(outcomes(&verified, "mac").contains(&"fail"), "{verified}");

    inside(&["penstock", "stop", "/root/vlans.yaml"]).ended_with(0)?;
    let links = inside(&["ls", "/sys/bus/pci/drivers/igbvf"]);
    let bound: Vec<&str> = links.stdout.lines().filter(|line| line.starts_with("0000:")).collect();
    assert_eq!(bound, ["0000:01:11.0"], "every VF came back and was let go, but the one that is no guest's");
    inside(&["penstock", "verify", "/root/vlans.yaml"]).ended_with(1)?;
    // The MAC that somebody changed is mended before the guests start again.
    inside(&["penstock", "apply", "/root/vlans.yaml"]).ended_with(0)?;
    inside(&["penstock", "verify", "/root/vlans.yaml"]).ended_with(0)?;
    Ok(())
}

/// The board makes what the model alone makes; a file that somebody changes is found, and mended.
fn what_guests_are_told_is_as_the_machine_is() -> Outcome {
    let model = here("told.yaml");
    let (rehearsed, evidence, directory) = rehearse(&model)?;
    rehearsed.ended_with(0)?;
    assert_eq!(outcomes(&evidence, "generate"), ["pass"; 4]);
    let at = directory.path();
    run(at, ["generate".as_ref(), "--output".as_ref(), "own".as_ref(), model.as_os_str()]).ended_with(0)?;
    for (board, own) in [
        ("generated/pf0/nic_table.h", "generated/pf0/nic_table.h"),
        ("generated/a/10-eth0.link", "generated/a/10-eth0.link"),
        ("generated/told.txt", "told.txt"),
    ] {
        let board = std::fs::read_to_string(at.join("run").join(board))?;
        assert_eq!(board, std::fs::read_to_string(at.join("own").join(own))?, "{own}");
    }
    let told = std::fs::read_to_string(at.join("own/told.txt"))?;
    let seen = verdicts(&evidence).iter().find(|verdict| {
        verdict["attribute"] == "mac"
            && verdict["subject"]["function"] == "NET0#0"
            && verdict["vantage"]["guest"] == "a"
    });
    let seen = seen.and_then(|verdict| verdict["seen"].as_str()).ok_or("the MAC was not seen inside")?;
    assert!(told.contains(seen), "{told}, and inside it is {seen}");

    let (kept, name) = for_own_board(at, "told.yaml")?;
    std::fs::create_dir(at.join("templates"))?;
    std::fs::copy(here("templates/told.txt.j2"), at.join("templates/told.txt.j2"))?;
    run(at, ["board".as_ref(), "up".as_ref(), kept.as_os_str()]).ended_with(0)?;
    then_down(at, &name, || mended(at, &name))
}

/// Tries something on the board `name`, of which nothing is left whatever comes of that.
fn then_down(at: &Path, name: &str, tried: impl FnOnce() -> Outcome) -> Outcome {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(tried));
    let down = run(at, ["board", "down", name]);
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    down.ended_with(0)
}

fn mended(at: &Path, name: &str) -> Outcome {
    let inside = |words: &[&str]| run(at, ["board", "ssh", name].into_iter().chain(words.iter().copied()));
    inside(&["penstock", "apply", "/root/told.yaml"]).ended_with(0)?;
    inside(&["sh", "-c", "echo by hand > /root/told.txt"]).ended_with(0)?;
    let broken = inside(&["penstock", "verify", "/root/told.yaml", "--json"]);
    broken.ended_with(1)?;
    let verified: Value = json::read(&broken.stdout)?;
    assert_eq!(outcomes(&verified, "generate").iter().filter(|outcome| **outcome == "fail").count(), 1);
    inside(&["penstock", "generate", "/root/told.yaml", "--check"]).ended_with(1)?;
    inside(&["penstock", "apply", "/root/told.yaml"]).ended_with(0)?;
    inside(&["penstock", "generate", "/root/told.yaml", "--check"]).ended_with(0)?;
    inside(&["penstock", "verify", "/root/told.yaml"]).ended_with(0)
}

/// A model that knows its NICs by address and driver, and the inventory of the server that it is for.
fn another_servers_inventory_is_rehearsed() -> Outcome {
    let directory = tempfile::tempdir()?;
    let recorded = penstock_testkit::sysfs::machine("x550-two-port");
    let scan = run(
        directory.path(),
        ["scan".as_ref(), "--json".as_ref(), "--root".as_ref(), recorded.path().as_os_str()],
    );
    scan.ended_with(0)?;
    std::fs::write(directory.path().join("server.json"), &scan.stdout)?;
    let model = "nics: {NET1: {match: {bdf: \"0000:04:00.1\", driver: ixgbe}, vfs: 3}}\n\
                 guests: {a: {functions: [NET1#0, NET1#2]}}\n";
    std::fs::write(directory.path().join("server.yaml"), model)?;
    let words = ["rehearse", "server.yaml", "--inventory", "server.json", "--output", "run"];
    run(directory.path(), words).ended_with(0)?;
    let evidence: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.path().join("run/evidence.json"))?)?;
    assert_eq!(evidence["machine"]["nics"][0]["mac"], "0c:c4:7a:9a:61:eb", "the server's own address");
    Ok(())
}

/// Namespace tests that the kernel of the machine at hand may be too small for: on a board none is skipped.
fn what_this_kernel_lacks_is_tested() -> Outcome {
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    let name = &own_name("kernel");
    std::fs::write(at.join("kernel.yaml"), format!("machine: {name}\nnics: {{NET0: {{vfs: 1}}}}\n"))?;
    run(at, ["board", "up", "kernel.yaml"]).ended_with(0)?;
    then_down(at, name, || {
        run(at, ["board", "ssh", name, "modprobe", "tun"]).ended_with(0)?;
        // One is bounded in time, which emulation stretches; it needs no module and runs everywhere else.
        passes_on_board(at, name, "penstock-host", "netlink_in_netns", &["--skip", "hundreds_of_endpoints"])?;
        // Ports of bonds, and of bridges that filter VLANs.
        passes_on_board(at, name, "penstock-apply", "executor_in_netns", &[])?;
        // Version 2 of the control groups alone counts out what containers may use.
        passes_on_board(at, name, "penstock-guests", "containers", &["limits_in_netns"])?;
        passes_on_board(at, name, "penstock-guests", "rates", &[])?;
        passes_on_board(at, name, "penstock-guests", "devices", &[])
    })
}

/// Runs an integration test of this workspace on the board `name`; all that it tries there has to pass.
fn passes_on_board(at: &Path, name: &str, package: &str, test: &str, words: &[&str]) -> Outcome {
    let stripped = at.join(test);
    binary::strip(&programs::executable(package, test)?, &stripped)?;
    let inside = format!("/root/{test}");
    let copy = binary::command(at)
        .args(["board", "ssh", name, "sh", "-c", &format!("cat > {inside} && chmod +x {inside}")])
        .stdin(std::fs::File::open(&stripped)?)
        .output()?;
    Run::from(copy).ended_with(0)?;
    let command = ["board", "ssh", name, &inside, "--test-threads=1"];
    let tests = run(at, command.iter().chain(words));
    tests.ended_with(0)?;
    assert!(tests.stdout.contains("; 0 failed; 0 ignored"), "{}\n{}", tests.stdout, tests.stderr);
    Ok(())
}

fn an_interrupt_leaves_nothing_running() -> Outcome {
    let directory = tempfile::tempdir()?;
    let mut child = binary::command(directory.path())
        .args(["rehearse", "--cold", "--output", "run"])
        .arg(example("smallest.yaml"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let emulator = wait_for(Duration::from_secs(60), || child_of(child.id(), "qemu"))
        .ok_or("the emulator never started")?;
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    assert!(interrupt.success());
    let started = Instant::now();
    let output = {
        child.wait()?;
        child.wait_with_output()?
    };
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(Running::of(emulator), None, "the emulator still runs");
    Ok(())
}

fn wait_for<T>(timeout: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return Some(found);
        }
        thread::sleep(Duration::from_millis(50));
    }
    None
}

/// The child of `parent` whose command line has `word` in it.
fn child_of(parent: u32, word: &str) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()).find(|process| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        status.contains(&format!("PPid:\t{parent}\n"))
            && command.contains(word)
            && command.contains("-device")
    })
}
