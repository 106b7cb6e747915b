//! What happens when libvirt, QEMU or Penstock itself is not there or does not do what it is asked.

use penstock_guests::{Condition, GuestError};
use penstock_host::running::Running;
use penstock_model::{NicName, Vm};
use penstock_plan::{Execute, ExecuteError, Fact, GuestAction, Observe, action::GuestDefinition};
use std::{fs, os::unix::fs::symlink};

use crate::host::{Host, SILENCE, TIMEOUT, a, chain, condition, definition, exists_by_then, says};

#[test]
fn one_is_stopped_without_libvirt() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    let pid = host.pid();
    for verb in ["list", "shutdown", "destroy"] {
        host.on(verb, SILENCE);
    }
    vms.stop(&a(), TIMEOUT).unwrap();
    assert_eq!(Running::of(pid), None);
    assert_eq!(condition(&vms), Condition::Stopped, "and nobody has to be asked");
}

#[test]
fn nothing_is_guessed_without_libvirt() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    host.on("list", SILENCE);
    let error = vms.status().unwrap_err();
    says(&error, &["libvirt does not answer", "failed to connect to the hypervisor"]);
    assert!(error.hint().unwrap().contains("systemctl status libvirtd"));
}

/// A start that fails for that is taken back, by undo too.
#[test]
fn what_libvirt_was_not_there_to_make_is_taken_back_without_it() {
    let host = Host::new();
    let vms = host.vms();
    vms.define(&definition("a", Vm::default()), TIMEOUT).unwrap();
    for verb in ["create", "list", "destroy"] {
        host.on(verb, SILENCE);
    }
    let error = vms.create(&a(), TIMEOUT).unwrap_err();
    says(&error, &["libvirt does not answer", "failed to connect to the hypervisor"]);
    let mut guests = host.guests();
    for action in [GuestAction::StopGuest { guest: a() }, GuestAction::UndefineGuest { guest: a() }] {
        let fact = action.after();
        guests.execute(&action, TIMEOUT).unwrap();
        assert_eq!(guests.holds(&fact).unwrap(), Ok(()), "{fact}");
    }
    assert!(!host.path("state/penstock-a").exists());
}

/// Its daemon is started again within a moment, and what was asked meanwhile is asked again.
#[test]
fn libvirt_may_be_away_for_a_moment() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    host.on("list", &format!("if [ ! -e $HERE/away ]; then touch $HERE/away; {SILENCE}; fi"));
    assert_eq!(condition(&vms), Condition::Running);
}

#[test]
fn no_libvirt_at_all() {
    let host = Host::new();
    let vms = host.vms().through("/nonexistent/virsh".into());
    vms.define(&definition("a", Vm::default()), TIMEOUT).unwrap();
    let error = vms.create(&a(), TIMEOUT).unwrap_err();
    says(&error, &["the program \"virsh\" is not installed"]);
    assert!(error.hint().unwrap().contains("install libvirt"));
    assert!(matches!(error.into_carry_error("make it"), ExecuteError::Missing { .. }));
    assert_eq!(condition(&vms), Condition::Stopped, "nothing is left");
}

#[test]
fn qemu_refuses() {
    let host = Host::new();
    let vms = host.defined(Vm::default());
    fs::write(
        host.path("root/var/log/libvirt/qemu/penstock-a.log"),
        "qemu: of the start before\n2026-01-01 00:00:00.000+0000: starting up libvirt version: 11.3.0\n\
         -msg timestamp=on\nchar device redirected to /dev/pts/3 (label charserial0)\n\
         2026-01-01T00:00:00.1Z qemu-system-x86_64: vfio 0000:04:10.0: group 7 is not viable\n",
    )
    .unwrap();
    host.on("create", "echo 'error: Failed to create domain from x\nerror: internal error: QEMU unexpectedly closed the monitor' >&2; exit 1");
    let error = vms.create(&a(), TIMEOUT).unwrap_err();
    says(&error, &["the VM was not made", "QEMU unexpectedly closed", "qemu: 2026", "group 7 is not viable"]);
    assert!(!chain(&error).contains("of the start before"));
    assert!(error.hint().unwrap().contains("IOMMU group"));
    assert!(host.calls().contains(&"destroy penstock-a".to_owned()), "nothing is left of it");
    assert_eq!(condition(&vms), Condition::Stopped);
}

/// Penstock was killed between asking libvirt and noting what came of it.
#[test]
fn one_that_nobody_saw_made_is_found() {
    let host = Host::new();
    let vms = host.defined(Vm::default());
    vms.create(&a(), TIMEOUT).unwrap();
    let started = fs::read_to_string(host.file("started.json")).unwrap();
    let mut started: serde_json::Value = serde_json::from_str(&started).unwrap();
    started["init"] = serde_json::Value::Null;
    fs::write(host.file("started.json"), started.to_string()).unwrap();
    let status = &vms.status().unwrap()[&a()];
    assert_eq!((status.condition, status.pid), (Condition::Suspended, Some(host.pid())));
    vms.stop(&a(), TIMEOUT).unwrap();
    assert_eq!(condition(&vms), Condition::Stopped);

    // Nor is there a process yet: libvirt is told to end it all the same.
    fs::write(host.file("started.json"), started.to_string()).unwrap();
    vms.stop(&a(), TIMEOUT).unwrap();
    assert_eq!(host.calls().last().unwrap(), "destroy penstock-a");
    assert!(!host.file("started.json").exists());

    // Nor does the next one stand in its way.
    fs::write(host.file("started.json"), started.to_string()).unwrap();
    vms.create(&a(), TIMEOUT).unwrap();
    let calls = host.calls();
    let last: Vec<&str> =
        calls[calls.len() - 2..].iter().map(|call| call.split(' ').next().unwrap()).collect();
    assert_eq!(last, ["destroy", "create"]);
}

/// A file that libvirt left behind, whose number another process has by now.
#[test]
fn another_process_is_not_taken_for_qemu() {
    let host = Host::new();
    let vms = host.defined(Vm::default());
    vms.create(&a(), TIMEOUT).unwrap();
    host.kill();
    let mut started: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(host.file("started.json")).unwrap()).unwrap();
    started["init"] = serde_json::Value::Null;
    fs::write(host.file("started.json"), started.to_string()).unwrap();
    let own = std::process::id().to_string();
    fs::write(host.path("root/run/libvirt/qemu/penstock-a.pid"), own).unwrap();
    assert_eq!(vms.status().unwrap()[&a()].pid, None);
    fs::remove_file(host.path("root/run/libvirt/qemu/penstock-a.pid")).unwrap();
}

/// `sudo` dropped PENSTOCK_STATE: libvirt refused to make the domain a second time, and the one that ran was ended for that.
#[test]
fn one_that_was_started_with_another_state_is_let_alone() {
    let host = Host::new();
    host.running(Vm::default());
    let (pid, other) = (host.pid(), host.vms_in("other"));
    let is_refused = |outcome: Result<(), GuestError>| {
        let error = outcome.unwrap_err();
        says(&error, &[&format!("as process {pid}"), &host.path("other").to_string_lossy()]);
        let hint = error.hint().unwrap();
        let of = format!(" PENSTOCK_STATE={}, ", host.path("state").display());
        assert!(hint.contains(&of) && hint.contains("destroy penstock-a"), "{hint}");
        assert!(matches!(error.into_carry_error("make it"), ExecuteError::Missing { .. }));
    };
    is_refused(other.define(&definition("a", Vm::default()), TIMEOUT));
    // Defined there before it was started here.
    fs::create_dir_all(host.path("other/penstock-a")).unwrap();
    fs::copy(host.file("definition.json"), host.path("other/penstock-a/definition.json")).unwrap();
    let exists = "operation failed: domain 'penstock-a' already exists with uuid 1";
    host.on("create", &format!("echo \"error: {exists}\" >&2; exit 1"));
    let nic: NicName = "net0".parse().unwrap();
    is_refused(other.define(&definition("a", Vm::default()), TIMEOUT));
    is_refused(other.make_taps(&a(), &nic, TIMEOUT));
    is_refused(other.start_switch(&a(), &nic, TIMEOUT));
    is_refused(other.create(&a(), TIMEOUT));
    is_refused(other.stop_switch(&a(), &nic, TIMEOUT));
    is_refused(other.remove_taps(&a(), &nic, TIMEOUT));
    for begun in [false, true] {
        // Whoever began to make it there was killed before he had asked libvirt.
        if begun {
            host.begun("other");
            assert_eq!(condition(&other), Condition::Stopped);
        }
        is_refused(other.undefine(&a(), TIMEOUT));
        is_refused(other.stop(&a(), TIMEOUT));
    }
    // What was refused needs not be taken back.
    let mut refused = host.guests_in("other");
    let define = GuestAction::DefineGuest(definition("a", Vm::default()));
    let pairs = [
        (define, GuestAction::UndefineGuest { guest: a() }),
        (GuestAction::CreateGuest { guest: a() }, GuestAction::StopGuest { guest: a() }),
        (
            GuestAction::StartSwitch { guest: a(), nic: nic.clone() },
            GuestAction::StopSwitch { guest: a(), nic: nic.clone() },
        ),
    ];
    for (action, inverse) in &pairs {
        assert!(!refused.is_gone(inverse), "{inverse}");
        refused.execute(action, TIMEOUT).unwrap_err();
        assert!(refused.is_gone(inverse), "{inverse}");
        assert!(!host.guests_in("other").is_gone(inverse), "{inverse}");
    }
    let claims = GuestAction::IsolateGuest { guest: a(), cpus: "0".parse().unwrap(), on: false };
    let error = refused.execute(&claims, TIMEOUT).unwrap_err();
    assert!(error.to_string().contains(&format!("as process {pid}")), "{error}");
    // What asks whether it runs hears of it, too: what needs its end is not done.
    let stopped = Fact::GuestRunning { guest: a(), running: false };
    let seen = host.guests_in("other").holds(&stopped).unwrap().unwrap_err();
    assert!(seen.contains(&format!("runs as process {pid}")), "{seen}");
    assert!(Running::of(pid).is_some());
    assert!(!host.calls().contains(&"destroy penstock-a".to_owned()), "{:?}", host.calls());
    // A guest that is defined nowhere there is taken for a container.
    fs::remove_dir_all(host.path("other/penstock-a")).unwrap();
    let stop = GuestAction::StopSwitch { guest: a(), nic };
    let error = host.guests_in("other").execute(&stop, TIMEOUT).unwrap_err();
    assert!(error.to_string().contains(&format!("as process {pid}")), "{error}");
    assert_eq!(condition(&host.vms()), Condition::Running);
    // It is the state that counts, not how its path is written.
    symlink(host.path("state"), host.path("link")).unwrap();
    host.begun("state");
    assert_eq!(condition(&host.vms_in("link")), Condition::Running);
    host.vms_in("link").stop(&a(), TIMEOUT).unwrap();
    other.stop(&a(), TIMEOUT).unwrap();
}

#[test]
fn one_that_somebody_else_has_made_meanwhile_is_not_ended() {
    let host = Host::new();
    let vms = host.defined(Vm::default());
    host.on("create", &exists_by_then("s,/state/,/other/,"));
    let error = vms.create(&a(), TIMEOUT).unwrap_err();
    says(&error, &[&format!("as process {}", host.pid())]);
    says(&vms.stop(&a(), TIMEOUT).unwrap_err(), &[&format!("as process {}", host.pid())]);
    assert!(Running::of(host.pid()).is_some());
    assert!(!host.calls().contains(&"destroy penstock-a".to_owned()), "{:?}", host.calls());
    assert!(!host.file("started.json").exists());

    // libvirt is at it still, and there is no process yet.
    host.kill();
    host.on("list", "case \"$*\" in *--all*) echo penstock-a ;; esac");
    host.on("create", "echo 'error: domain penstock-a is already being started' >&2; exit 1");
    says(&vms.create(&a(), TIMEOUT).unwrap_err(), &["the VM was not made", "already being started"]);
    assert!(!host.calls().contains(&"destroy penstock-a".to_owned()), "{:?}", host.calls());
    assert!(!host.file("started.json").exists());

    // Its daemon has a language of its own.
    host.on("create", "echo 'error: Domain penstock-a wird bereits gestartet' >&2; exit 1");
    says(&vms.create(&a(), TIMEOUT).unwrap_err(), &["the VM was not made", "wird bereits gestartet"]);
    assert!(!host.calls().contains(&"destroy penstock-a".to_owned()), "{:?}", host.calls());
}

/// Somebody has removed the record of its start: it was taken for that of another state for good.
#[test]
fn one_whose_record_is_gone_is_known_by_what_libvirt_keeps() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    let pid = host.pid();
    fs::remove_file(host.file("started.json")).unwrap();
    let status = &vms.status().unwrap()[&a()];
    assert_eq!((status.condition, status.pid), (Condition::Running, Some(pid)));
    vms.create(&a(), TIMEOUT).unwrap();
    assert_eq!(host.pid(), pid, "it is there already");
    let otherwise = GuestDefinition { memory: Some(32 << 20), ..definition("a", Vm::default()) };
    let error = vms.define(&otherwise, TIMEOUT).unwrap_err();
    says(&error, &[&format!("as process {pid}")]);
    let hint = error.hint().unwrap();
    assert!(hint.contains("has removed the record") && hint.contains("`penstock stop MODEL a`"), "{hint}");
    assert!(hint.ends_with("destroy penstock-a") && !hint.contains("sudo"), "{hint}");
    let mut guests = host.guests();
    let stop = GuestAction::StopGuest { guest: a() };
    assert!(guests.holds(&stop.after()).unwrap().is_err());
    guests.execute(&stop, TIMEOUT).unwrap();
    assert_eq!(guests.holds(&stop.after()).unwrap(), Ok(()));
    assert_eq!(Running::of(pid), None);
    vms.undefine(&a(), TIMEOUT).unwrap();
}

/// A container of that name was to become a VM: it was removed, and only then was the VM refused.
#[test]
fn what_is_to_become_a_vm_that_is_refused_stays_what_it_is() {
    let host = Host::new();
    host.running(Vm::default());
    let mut other = host.guests_in("other");
    other.execute(&GuestAction::DefineGuest(GuestDefinition::bare(a())), TIMEOUT).unwrap();
    let before = fs::read(host.path("other/penstock-a/definition.json")).unwrap();
    let define = |memory| GuestDefinition { memory: Some(memory), ..definition("a", Vm::default()) };
    let undefine = GuestAction::UndefineGuest { guest: a() };
    other.execute(&GuestAction::DefineGuest(define(16 << 20)), TIMEOUT).unwrap_err();
    assert_eq!(fs::read(host.path("other/penstock-a/definition.json")).unwrap(), before);
    assert!(other.is_gone(&undefine));

    // Another definition of it that is made is taken back.
    host.vms().stop(&a(), TIMEOUT).unwrap();
    other.execute(&GuestAction::DefineGuest(define(32 << 20)), TIMEOUT).unwrap();
    assert!(!other.is_gone(&undefine));
}

/// Penstock was killed while libvirt was at it, and the next one asked for it again: nobody knew of it any more.
#[test]
fn one_that_libvirt_has_made_meanwhile_for_who_was_killed_is_not_forgotten() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    host.begun("state");
    let begun = fs::read(host.file("started.json")).unwrap();
    vms.stop(&a(), TIMEOUT).unwrap();
    fs::write(host.file("started.json"), begun).unwrap();
    host.on("create", &exists_by_then(""));
    let error = vms.create(&a(), TIMEOUT).unwrap_err();
    says(&error, &["the VM was not made", "already exists"]);
    assert_eq!(host.calls().last().unwrap(), "destroy penstock-a");
    assert!(!host.path("root/run/libvirt/qemu/penstock-a.pid").exists(), "nothing is left");
    assert!(!host.file("started.json").exists());
    vms.undefine(&a(), TIMEOUT).unwrap();
}
