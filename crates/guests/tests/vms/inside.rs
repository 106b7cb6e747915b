//! What is told from inside a VM: by its agent, by its console, or not at all.

use penstock_host::Command;
use penstock_model::Boot;
use penstock_model::Inside;
use penstock_model::Vm;
use std::fs;
use std::time::Duration;

use crate::host::{Host, TIMEOUT, a, chain, looked_into, says};

#[test]
fn inside_by_the_agent() {
    let host = Host::new();
    let vms = host
        .running(Vm { boot: Boot::Kernel { kernel: "/dev/null".into(), initramfs: None }, ..Vm::default() });
    host.on(
        "qemu-agent-command",
        r#"
        case "$*" in
        *guest-ping*) echo '{"return":{}}' ;;
        *guest-exec-status*)
            if [ ! -e $HERE/asked ]; then touch $HERE/asked; echo '{"return":{"exited":false}}'
            else cat $HERE/ended; fi ;;
        *nosuch*guest-exec*) echo 'error: Failed to execute child process "nosuch" (No such file or directory)' >&2; exit 1 ;;
        *guest-exec*) echo '{"return":{"pid":7}}' ;;
        *nosuch*guest-file-open*) echo "error: failed to open file '/nosuch'" >&2; exit 1 ;;
        *guest-file-open*) echo '{"return":1000}' ;;
        *guest-file-read*) echo '{"return":{"count":6,"buf-b64":"Zm9vYmFy","eof":false}}' ;;
        *guest-file-close*) touch $HERE/closed; echo '{"return":{}}' ;;
        *guest-network*) echo '{"return":[{"name":"enp0s4","hardware-address":"02:00:00:00:01:99"},
            {"name":"eth7","hardware-address":"02:00:00:00:01:04"},{"name":"br0","hardware-address":"02:00:00:00:02:00"}]}' ;;
        esac; exit 0"#,
    );
    fs::write(host.path("ended"), r#"{"return":{"exited":true,"exitcode":3,"out-data":"Zm9v"}}"#).unwrap();
    let place = vms.place(&a()).unwrap();
    assert_eq!(place.describe(), "inside a");
    assert_eq!(place.own_program(), None);
    let output = place.run(&Command::new("x").current_dir("/tmp")).unwrap();
    assert_eq!((output.status.code(), output.text()), (Some(3), "foo".to_owned()));
    let error = place.run(&Command::new("nosuch")).unwrap_err();
    assert!(chain(&error).contains("the program \"nosuch\" is not installed"), "{}", chain(&error));
    fs::write(host.path("ended"), r#"{"return":{"exited":false}}"#).unwrap();
    let error = place.run(&Command::new("x").deadline(Duration::from_millis(300))).unwrap_err();
    assert!(chain(&error).contains("did not end within 0.3 s"), "{}", chain(&error));
    // A guest that never says that the file ends.
    assert_eq!(place.read("/endless", 20).unwrap(), b"foobarfoobarfoobarfo");
    assert!(host.path("closed").exists());
    assert!(chain(&place.read("/nosuch", 20).unwrap_err()).contains("failed to open file"));
    assert!(place.namespace().is_err());

    // "enp0s4 2 9000 0x1003 1 /sys/devices/pci0000:00/0000:00:04.0/virtio1", and a bridge that claims to be the function
    let lines = "enp0s4 2 9000 0x1003 1 /sys/devices/pci0000:00/0000:00:04.0/virtio1\nbr0 9 1500 0x1002 - /x/0000:04:10.0\n";
    let lines = Command::new("base64").arg("-w0").input(lines).succeed().unwrap().text();
    fs::write(
        host.path("ended"),
        format!(r#"{{"return":{{"exited":true,"exitcode":0,"out-data":"{lines}"}}}}"#),
    )
    .unwrap();
    let reports = place.interfaces().unwrap();
    let seen: Vec<_> = reports
        .iter()
        .map(|report| {
            (report.interface.name.as_str(), report.index, report.interface.mtu, report.device.as_deref())
        })
        .collect();
    let function = Some("0000:04:10.0");
    assert_eq!(seen, [("enp0s4", 2, 9000, function), ("eth7", 2, 0, function), ("br0", 9, 1500, None)]);

    host.kill();
    let error = place.run(&Command::new("x")).map(drop);
    host.on("qemu-agent-command", "echo 'error: failed to get domain' >&2; exit 1");
    assert!(error.is_ok() || chain(&error.unwrap_err()).contains("does not run any more"));
    assert!(chain(&place.run(&Command::new("x")).unwrap_err()).contains("the VM does not run any more"));
}

/// It says so a moment before its agent answers.
#[test]
fn a_builtin_guest_that_has_said_that_it_is_ready_is_asked_again_soon() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    host.on(
        "qemu-agent-command",
        r#"
        [ -e $HERE/asked ] && echo '{"return":{}}' && exit 0
        touch $HERE/asked; echo 'error: Guest agent is not responding: not connected' >&2; exit 1"#,
    );
    fs::write(host.file("console.log"), "penstock-guest: begin\r\npenstock-guest: ready\r\n").unwrap();
    vms.await_ready(&a(), Duration::from_secs(4)).unwrap();
    assert!(host.path("asked").exists());
}

/// Nested in an emulated processor, a kernel may hang before its first word.
#[test]
fn a_builtin_guest_that_says_nothing_is_made_anew_once_and_that_is_told() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    fs::write(host.file("console.log"), "").unwrap();
    let said = host.file("console.log");
    host.on(
        "create",
        &format!(r"printf 'penstock-guest: begin\npenstock-guest: ready\n' >{}", said.display()),
    );
    host.on("qemu-agent-command", r#"echo '{"return":{}}'; exit 0"#);
    assert!(!vms.status().unwrap()[&a()].made_again);
    let before = host.pid();
    vms.await_ready(&a(), Duration::from_secs(8)).unwrap();
    assert_ne!(host.pid(), before);
    assert!(vms.status().unwrap()[&a()].made_again);
    vms.stop(&a(), TIMEOUT).unwrap();
    assert!(!vms.status().unwrap()[&a()].made_again, "of the run that is over");
}

#[test]
fn a_vm_whose_maker_died_is_noted_by_whoever_waits_for_it() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    host.on("qemu-agent-command", r#"echo '{"return":{}}'; exit 0"#);
    fs::write(host.file("console.log"), "penstock-guest: begin\r\npenstock-guest: ready\r\n").unwrap();
    let started = || -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(host.file("started.json")).unwrap()).unwrap()
    };
    let whole = started();
    let mut cut_short = whole.clone();
    cut_short["init"] = serde_json::Value::Null;
    fs::write(host.file("started.json"), cut_short.to_string()).unwrap();
    vms.await_ready(&a(), TIMEOUT).unwrap();
    assert_eq!(started(), whole);
    assert!(whole["init"]["id"].is_number(), "{whole}");
}

#[test]
fn inside_by_the_console() {
    let host = Host::new();
    let vms = host.running(looked_into(Inside::Console));
    let error = vms.await_ready(&a(), Duration::from_millis(200)).unwrap_err();
    says(&error, &["it has not said on its console that it is ready"]);
    let place = vms.place(&a()).unwrap();
    assert!(chain(&place.interfaces().unwrap_err()).contains("has not printed"));
    fs::write(
        host.file("console.log"),
        "penstock-guest: begin\r\npenstock-nic: net0 02:00:00:00:01:04 up 1500 192.0.2.1/24\r\n\
         penstock-nic: eth0 02:00:00:00:01:77 up 1500\r\npenstock-guest: ready\r\n",
    )
    .unwrap();
    vms.await_ready(&a(), TIMEOUT).unwrap();
    let reports = place.interfaces().unwrap();
    let devices: Vec<_> = reports.iter().map(|report| report.device.as_deref()).collect();
    assert_eq!(devices, [Some("0000:04:10.0"), None], "by the address before the name");
    assert!(place.run(&Command::new("true")).is_err() && place.read("/etc/passwd", 9).is_err());
    assert!(!host.calls().iter().any(|call| call.starts_with("qemu-agent-command")));
    // Put aside by virtlogd meanwhile.
    fs::rename(host.file("console.log"), host.file("console.log.0")).unwrap();
    fs::write(host.file("console.log"), "more\n").unwrap();
    assert_eq!(place.interfaces().unwrap().len(), 2);
}

#[test]
fn inside_not_at_all() {
    let host = Host::new();
    let vms = host.running(looked_into(Inside::None));
    vms.await_ready(&a(), TIMEOUT).unwrap();
    assert!(vms.place(&a()).err().unwrap().contains("inside: none"));
    let xml = fs::read_to_string(host.file("domain.xml")).unwrap();
    assert!(!xml.contains("guest_agent"), "{xml}");
    let initramfs = fs::read(host.file("initramfs")).unwrap();
    assert!(!initramfs.windows(12).any(|window| window == b"bin/penstock"), "nothing to run it there");
}
