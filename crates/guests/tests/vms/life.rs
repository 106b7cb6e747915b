//! From a definition to its end.

use penstock_guests::Builtin;
use penstock_guests::Condition;
use penstock_guests::Vms;
use penstock_host::Root;
use penstock_model::Boot;
use penstock_model::Inside;
use penstock_model::Vm;
use penstock_plan::Execute;
use penstock_plan::Fact;
use penstock_plan::GuestAction;
use penstock_plan::Observe;
use penstock_plan::action::GuestDefinition;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::host::{Host, TIMEOUT, a, chain, condition, definition, looked_into, says};

/// `make campaign` found it: killed between the directory and the definition, an undo passed over what had been made.
#[test]
fn what_a_killed_definition_left_is_not_gone_until_it_is_removed() {
    let host = Host::new();
    let mut guests = host.guests();
    fs::create_dir_all(host.path("state/penstock-a")).unwrap();
    let defined = |defined| Fact::GuestDefined { guest: a(), defined };
    assert!(guests.holds(&defined(true)).unwrap().is_err());
    assert!(guests.holds(&defined(false)).unwrap().is_err());
    guests.execute(&GuestAction::UndefineGuest { guest: a() }, TIMEOUT).unwrap();
    assert!(!host.path("state/penstock-a").exists());
    assert_eq!(guests.holds(&defined(false)).unwrap(), Ok(()));
}

#[test]
fn a_life() {
    let host = Host::new();
    let mut guests = host.guests();
    let mut execute = |action: GuestAction| {
        guests.execute(&action, TIMEOUT).unwrap_or_else(|error| panic!("{action}: {}", chain(&error)));
        let fact = action.after();
        assert_eq!(guests.holds(&fact).unwrap(), Ok(()), "{fact}");
    };
    execute(GuestAction::DefineGuest(definition("a", Vm::default())));
    execute(GuestAction::CreateGuest { guest: a() });
    // Twice is as good as once.
    execute(GuestAction::CreateGuest { guest: a() });
    let found = &host.guests().found().unwrap()[&a()];
    assert!(found.running && found.suspended);
    execute(GuestAction::ResumeGuest { guest: a() });
    assert!(host.guests().found().unwrap()[&a()].not_awaited, "who made it may die now");
    execute(GuestAction::AwaitGuest { guest: a(), within: 10 });
    assert!(!host.guests().found().unwrap()[&a()].not_awaited);
    execute(GuestAction::SuspendGuest { guest: a() });
    execute(GuestAction::ResumeGuest { guest: a() });
    assert_eq!(condition(&host.vms()), Condition::Running);
    execute(GuestAction::StopGuest { guest: a() });
    execute(GuestAction::StopGuest { guest: a() });
    assert_eq!(condition(&host.vms()), Condition::Stopped);
    execute(GuestAction::UndefineGuest { guest: a() });
    let calls = host.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("create ")).count(), 1);
    assert!(calls.contains(&"shutdown penstock-a".to_owned()), "{calls:?}");
    assert!(!calls.iter().any(|call| call.starts_with("destroy")), "it went when it was asked to: {calls:?}");
    assert!(!host.file("").exists());
}

/// Whoever had it made was killed while libvirt was at it: it has no process yet, and is not gone for that.
#[test]
fn one_that_libvirt_is_making_still_is_not_stopped() {
    let host = Host::new();
    let mut guests = host.guests();
    let stopped = Fact::GuestRunning { guest: a(), running: false };
    let begun = |host: &Host| {
        host.running(Vm::default());
        let text = fs::read_to_string(host.file("started.json")).unwrap();
        let mut started: serde_json::Value = serde_json::from_str(&text).unwrap();
        started["init"] = serde_json::Value::Null;
        host.vms().stop(&a(), TIMEOUT).unwrap();
        fs::write(host.file("started.json"), started.to_string()).unwrap();
        fs::remove_file(host.path("calls")).unwrap();
    };
    for action in [GuestAction::StopGuest { guest: a() }, GuestAction::UndefineGuest { guest: a() }] {
        begun(&host);
        assert_eq!(condition(&host.vms()), Condition::Stopped);
        assert_eq!(
            guests.holds(&stopped).unwrap(),
            Err("it does not run, and its start was not taken back".to_owned())
        );
        guests.execute(&action, TIMEOUT).unwrap();
        assert_eq!(host.calls(), ["destroy penstock-a"], "{action}");
        assert_eq!(guests.holds(&stopped).unwrap(), Ok(()));
    }
}

/// `make campaign` found it: a VM was not there any more when its start was taken back, and could not be suspended.
#[test]
fn how_a_guest_ran_is_gone_with_it() {
    let host = Host::new();
    let mut guests = host.guests();
    let ran = [GuestAction::SuspendGuest { guest: a() }, GuestAction::ResumeGuest { guest: a() }];
    for action in &ran {
        assert!(guests.is_gone(action), "{action}: it was never defined");
    }
    for action in [
        GuestAction::DefineGuest(definition("a", Vm::default())),
        GuestAction::CreateGuest { guest: a() },
        GuestAction::ResumeGuest { guest: a() },
    ] {
        guests.execute(&action, TIMEOUT).unwrap();
    }
    for action in &ran {
        assert!(!guests.is_gone(action), "{action}: it runs");
    }
    guests.execute(&GuestAction::StopGuest { guest: a() }, TIMEOUT).unwrap();
    for action in &ran {
        assert!(guests.is_gone(action), "{action}: it was stopped");
    }
    assert!(!guests.is_gone(&GuestAction::UndefineGuest { guest: a() }), "its definition is there");
}

#[test]
fn what_a_builtin_guest_boots() {
    let host = Host::new();
    host.defined(Vm { command_line: Some("single".to_owned()), ..Vm::default() })
        .create(&a(), TIMEOUT)
        .unwrap();
    let initramfs = fs::read(host.file("initramfs")).unwrap();
    assert!(initramfs.starts_with(b"initramfs"));
    let holds = |words: &[u8]| initramfs.windows(words.len()).any(|window| window == words);
    assert!(holds(b"02:00:00:00:01:04 eth0 -\n") && holds(b"penstock/bin/penstock\0"));
    let xml = fs::read_to_string(host.file("domain.xml")).unwrap();
    assert!(xml.contains(" single</cmdline>") && xml.contains("penstock-a/vmlinuz</kernel>"), "{xml}");
}

#[test]
fn one_that_does_not_end_is_ended() {
    let host = Host::new();
    let vms = host.running(looked_into(Inside::Console));
    host.on("shutdown", "exit 0");
    vms.stop(&a(), Duration::from_secs(1)).unwrap();
    assert!(host.calls().contains(&"destroy penstock-a".to_owned()));
    assert_eq!(condition(&vms), Condition::Stopped);
}

#[test]
fn one_that_died_says_its_last_words() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    fs::write(host.file("console.log"), "fine\r\nKernel panic - not syncing\r\n").unwrap();
    host.kill();
    let status = &vms.status().unwrap()[&a()];
    assert_eq!(status.condition, Condition::Died);
    assert_eq!(status.last_words, ["fine", "Kernel panic - not syncing"]);
    let error = vms.await_ready(&a(), TIMEOUT).unwrap_err();
    says(&error, &["guest a died", "console: Kernel panic"]);
    assert_eq!(vms.place(&a()).err().unwrap(), "it does not run");
    vms.stop(&a(), TIMEOUT).unwrap();
    assert_eq!(condition(&vms), Condition::Stopped);
    says(&vms.resume(&a(), TIMEOUT).unwrap_err(), &["guest a is not there"]);
}

#[test]
fn one_that_never_comes_up() {
    let host = Host::new();
    let vms = host
        .running(Vm { boot: Boot::Kernel { kernel: "/dev/null".into(), initramfs: None }, ..Vm::default() });
    fs::write(host.file("console.log"), "VFS: Unable to mount root fs\r\n").unwrap();
    host.on("qemu-agent-command", "echo 'error: Guest agent is not responding: not connected' >&2; exit 1");
    let error = vms.await_ready(&a(), Duration::from_secs(1)).unwrap_err();
    says(
        &error,
        &["guest a is not ready after ", "Guest agent is not responding", "Unable to mount root fs"],
    );
    assert!(vms.place(&a()).err().unwrap().starts_with("its agent does not answer: "));
}

#[test]
fn a_guest_changes_its_kind() {
    let host = Host::new();
    let mut guests = host.guests();
    let container = GuestDefinition { vm: None, ..definition("a", Vm::default()) };
    for wanted in [definition("a", Vm::default()), container.clone(), definition("a", Vm::default())] {
        guests.execute(&GuestAction::DefineGuest(wanted.clone()), TIMEOUT).unwrap();
        let kind = guests.status().unwrap()[&a()].kind;
        assert_eq!(kind == penstock_model::GuestKind::Vm, wanted.vm.is_some());
    }
    let error = guests.execute(&GuestAction::StartGuest { guest: a() }, TIMEOUT).unwrap_err();
    assert!(chain(&error).contains("guest a is a VM"), "{}", chain(&error));
    guests.execute(&GuestAction::CreateGuest { guest: a() }, TIMEOUT).unwrap();
    assert!(guests.execute(&GuestAction::DefineGuest(container), TIMEOUT).is_err(), "not while it is there");
}

#[test]
fn the_path_of_the_state_may_be_anything() {
    let host = Host::new();
    let state = host.path("st&te 'x'");
    let vms = Vms::new(
        Root::at(host.path("root")),
        state.clone(),
        Builtin { directories: vec![host.path("builtin")] },
    )
    .through(host.path("virsh"));
    vms.define(&definition("a", Vm::default()), TIMEOUT).unwrap();
    vms.create(&a(), TIMEOUT).unwrap();
    let xml = fs::read_to_string(Path::new(&state).join("penstock-a/domain.xml")).unwrap();
    assert!(xml.contains("st&amp;te &apos;x&apos;/penstock-a/console.log"), "{xml}");
    vms.stop(&a(), TIMEOUT).unwrap();
}
