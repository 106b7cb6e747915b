//! VMs with a script in the place of `virsh`: it notes how it is called, starts processes that look like QEMU, and plays
//! the answers of libvirt and of guests. Real ones run in the tests that need a board.
#![allow(clippy::disallowed_methods)]

use std::{
    error::Error,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use penstock_guests::{Builtin, Condition, Containers, GuestError, Guests, Vms};
use penstock_host::{Command, Root};
use penstock_model::{
    Boot, ByteSize, DataPath, Emulation, GuestName, Inside, Mac, TenantNic, VfSettings, Vm,
};
use penstock_plan::{
    Execute, ExecuteError, Fact, GuestAction, Observe,
    action::{GuestDefinition, GuestFunction, GuestNic},
};

const TIMEOUT: Duration = Duration::from_secs(20);

const FAKE: &str = r#"#!/bin/sh
# -q -c CONNECTION VERB...
shift 3
echo "$*" >>"$HERE/calls"
verb=$1
if [ -e "$HERE/on-$verb" ]; then . "$HERE/on-$verb"; fi
pids=$HERE/root/run/libvirt/qemu
case $verb in
create)
    sh -c 'while :; do sleep 0.1; done' qemu -name guest=penstock-a,debug-threads=on >/dev/null 2>&1 &
    echo $! >"$pids/penstock-a.pid"
    touch "$HERE/paused"
    ;;
list) if [ -e "$HERE/paused" ]; then echo penstock-a; fi ;;
resume) rm "$HERE/paused" ;;
suspend) touch "$HERE/paused" ;;
shutdown | destroy)
    if [ ! -e "$pids/penstock-a.pid" ]; then echo "error: failed to get domain 'penstock-a'" >&2; exit 1; fi
    kill "$(cat "$pids/penstock-a.pid")"
    rm -f "$pids/penstock-a.pid" "$HERE/paused"
    ;;
qemu-agent-command) echo '{"return":{}}' ;;
esac
"#;

const SILENCE: &str = "echo 'error: failed to connect to the hypervisor' >&2; exit 1";

/// A host with one function, and what stands for its libvirt.
struct Host {
    directory: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let host = Host { directory: tempfile::tempdir().unwrap() };
        for directory in [
            "root/run/libvirt/qemu",
            "root/var/log/libvirt/qemu",
            "root/dev",
            "root/sys/kernel/iommu_groups/7/devices",
        ] {
            fs::create_dir_all(host.path(directory)).unwrap();
        }
        symlink("/proc", host.path("root/proc")).unwrap();
        fs::write(host.path("root/dev/kvm"), "").unwrap();
        host.function("0000:04:10.0", Some("vfio-pci"));
        for file in ["vmlinuz", "initramfs"] {
            fs::create_dir_all(host.path("builtin")).unwrap();
            fs::write(host.path("builtin").join(file), file).unwrap();
        }
        host.script("virsh", &FAKE.replace("$HERE", &host.path("").to_string_lossy()));
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What the fake does for a verb before all else.
    fn on(&self, verb: &str, text: &str) {
        let text = text.replace("$HERE", &self.path("").to_string_lossy());
        self.script(&format!("on-{verb}"), &text);
    }

    /// A function in IOMMU group 7.
    fn function(&self, bdf: &str, driver: Option<&str>) {
        let directory = self.path("root/sys/bus/pci/devices").join(bdf);
        fs::create_dir_all(&directory).unwrap();
        let _ = fs::remove_file(directory.join("driver"));
        if let Some(driver) = driver {
            symlink(format!("../../drivers/{driver}"), directory.join("driver")).unwrap();
        }
        let group = self.path("root/sys/kernel/iommu_groups/7");
        let _ = symlink(&group, directory.join("iommu_group"));
        fs::write(group.join("devices").join(bdf), "").unwrap();
    }

    fn vms(&self) -> Vms {
        let builtin = Builtin { directories: vec![self.path("builtin")] };
        Vms::new(Root::at(self.path("root")), self.path("state"), builtin).through(self.path("virsh"))
    }

    fn guests(&self) -> Guests {
        let containers = Containers::new(Root::at(self.path("root")), self.path("state"));
        Guests::of(self.path("state"), containers, self.vms())
    }

    fn defined(&self, vm: Vm) -> Vms {
        let vms = self.vms();
        vms.define(&definition("a", vm), TIMEOUT).unwrap();
        vms
    }

    fn running(&self, vm: Vm) -> Vms {
        let vms = self.defined(vm);
        vms.create(&a(), TIMEOUT).unwrap();
        vms.resume(&a(), TIMEOUT).unwrap();
        vms
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path("state/penstock-a").join(name)
    }

    fn pid(&self) -> u32 {
        let pid = fs::read_to_string(self.path("root/run/libvirt/qemu/penstock-a.pid")).unwrap();
        pid.trim().parse().unwrap()
    }

    fn kill(&self) {
        Command::new("kill").args(["-9", &self.pid().to_string()]).succeed().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while penstock_host::running::Running::of(self.pid()).is_some() {
            assert!(Instant::now() < deadline, "it dies");
        }
    }
}

impl Drop for Host {
    /// No process outlives its test.
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.path("root/run/libvirt/qemu/penstock-a.pid")) {
            let _ = Command::new("kill").args(["-9", pid.trim()]).run();
        }
    }
}

fn a() -> GuestName {
    "a".parse().unwrap()
}

fn definition(guest: &str, vm: Vm) -> GuestDefinition {
    GuestDefinition {
        memory: Some(16 << 20),
        vm: Some(vm),
        functions: vec![GuestFunction {
            mac: Some("02:00:00:00:01:04".parse().unwrap()),
            ..GuestFunction::bare("0000:04:10.0".parse().unwrap(), "eth0".parse().unwrap())
        }],
        ..GuestDefinition::bare(guest.parse().unwrap())
    }
}

fn looked_into(inside: Inside) -> Vm {
    Vm { inside, ..Vm::default() }
}

fn condition(vms: &Vms) -> Condition {
    vms.status().unwrap()[&a()].condition
}

fn chain(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

#[track_caller]
fn says(error: &GuestError, words: &[&str]) {
    let text = chain(error);
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

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
    execute(GuestAction::AwaitGuest { guest: a(), within: 10 });
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
fn one_is_stopped_without_libvirt() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    let pid = host.pid();
    for verb in ["list", "shutdown", "destroy"] {
        host.on(verb, SILENCE);
    }
    vms.stop(&a(), TIMEOUT).unwrap();
    assert_eq!(penstock_host::running::Running::of(pid), None);
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
        &["guest a is not ready after 1.", "Guest agent is not responding", "Unable to mount root fs"],
    );
    assert!(vms.place(&a()).err().unwrap().starts_with("its agent does not answer: "));
}

#[test]
fn what_a_vm_needs_is_looked_at_first() {
    let host = Host::new();
    let refused = |vm: Vm| {
        let error = host.defined(vm).create(&a(), TIMEOUT).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
        chain(&error)
    };
    let expect = |vm: Vm, words: &str| {
        let text = refused(vm);
        assert!(text.contains(words), "{words:?} is not in: {text}");
    };
    let kernel = |kernel: &str, initramfs: Option<&str>| Vm {
        boot: Boot::Kernel { kernel: kernel.into(), initramfs: initramfs.map(str::to_owned) },
        ..Vm::default()
    };
    expect(kernel("/nonexistent/k", None), "the kernel /nonexistent/k of guest a does not exist");
    expect(
        kernel("/dev/null", Some("/nonexistent/i")),
        "the initramfs /nonexistent/i of guest a does not exist",
    );
    let disk = Boot::Disk { path: "/nonexistent/d".into(), format: Default::default() };
    expect(Vm { boot: disk, ..Vm::default() }, "the disk image /nonexistent/d of guest a does not exist");
    let huge = Vm { huge_pages: Some(ByteSize(2 << 20)), ..Vm::default() };
    expect(huge.clone(), "needs 8 huge pages of 2MiB, and this kernel has none of that size");
    let pages = host.path("root/sys/kernel/mm/hugepages/hugepages-2048kB");
    fs::create_dir_all(&pages).unwrap();
    fs::write(pages.join("free_hugepages"), "7\n").unwrap();
    expect(huge, "needs 8 huge pages of 2MiB, and 7 are free");

    host.function("0000:04:10.2", Some("igbvf"));
    expect(
        Vm::default(),
        "its IOMMU group 7 is not viable, for the host uses 0000:04:10.2 (driver igbvf) in it",
    );
    host.function("0000:04:10.2", Some("pcieport"));
    host.function("0000:04:10.0", Some("igbvf"));
    expect(Vm::default(), "it is bound to igbvf, not to vfio-pci");
    host.function("0000:04:10.0", None);
    expect(Vm::default(), "it is bound to no driver, not to vfio-pci");
    fs::remove_file(host.path("root/sys/bus/pci/devices/0000:04:10.0/iommu_group")).unwrap();
    expect(Vm::default(), "it is behind no IOMMU");
    host.function("0000:04:10.0", Some("vfio-pci"));

    fs::rename(host.path("builtin"), host.path("elsewhere")).unwrap();
    let text = refused(Vm::default());
    assert!(text.contains("builtin guest are not there; looked in /"), "{text}");
    fs::remove_file(host.path("root/dev/kvm")).unwrap();
    expect(Vm::default(), "this host has no KVM");
    assert_eq!(host.calls(), Vec::<String>::new(), "libvirt was not asked");
    let lots = GuestDefinition { memory: Some(1 << 50), ..definition("a", Vm::default()) };
    fs::write(host.path("root/dev/kvm"), "").unwrap();
    host.vms().define(&lots, TIMEOUT).unwrap();
    says(
        &host.vms().create(&a(), TIMEOUT).unwrap_err(),
        &["guest a needs 1073741824 MiB of memory, and the host has"],
    );
}

#[test]
fn a_function_is_one_guests() {
    let host = Host::new();
    let vms = host.running(Vm::default());
    vms.define(&definition("b", Vm::default()), TIMEOUT).unwrap();
    let error = vms.create(&"b".parse().unwrap(), TIMEOUT).unwrap_err();
    says(&error, &["function 0000:04:10.0 of guest b is in use: guest a has it"]);
    assert_eq!(error.hint().as_deref(), Some("stop it first: penstock stop MODEL a"));
    let other = GuestDefinition { memory: Some(32 << 20), ..definition("a", Vm::default()) };
    assert!(matches!(vms.define(&other, TIMEOUT), Err(GuestError::Running { .. })));
    assert!(matches!(vms.undefine(&a(), TIMEOUT), Err(GuestError::Running { .. })));
}

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

/// A VM that owns a NIC with one VF by vDPA devices.
fn with_devices() -> GuestDefinition {
    let mac = |last: u8| Mac::new([2, 0, 0, 0, 1, last]);
    let nic = TenantNic {
        emulation: Emulation::Virtio,
        mac: mac(0),
        vfs: vec![VfSettings { mac: Some(mac(1)), ..VfSettings::default() }],
        settings: VfSettings::default(),
        addresses: Vec::new(),
        mtu: None,
        path: DataPath::VhostVdpa,
        uplink: None,
        uplink_settings: None,
        queues: 1,
        allow: None,
        vf_allow: Default::default(),
    };
    let own = GuestNic { name: "net0".parse().unwrap(), nic, uplink_at: None };
    GuestDefinition { nics: vec![own], ..definition("a", Vm::default()) }
}

#[test]
fn a_vm_is_made_with_the_vdpa_devices_that_are_there_and_not_without_them() {
    let host = Host::new();
    let vms = host.vms();
    vms.define(&with_devices(), TIMEOUT).unwrap();
    let device = |name: &str| {
        fs::create_dir_all(host.path("root/sys/bus/vdpa/devices").join(name)).unwrap();
    };
    device("penstock-020000000100/vhost-vdpa-4");
    let error = vms.create(&a(), TIMEOUT).unwrap_err();
    says(&error, &["a/net0#0", "penstock-020000000101"]);
    assert_eq!(host.calls(), Vec::<String>::new(), "libvirt is not asked");

    device("penstock-020000000101/vhost-vdpa-7");
    vms.create(&a(), TIMEOUT).unwrap();
    let xml = fs::read_to_string(host.file("domain.xml")).unwrap();
    let order = ["<source dev='/dev/vhost-vdpa-7'/>", "<source dev='/dev/vhost-vdpa-4'/>"];
    let at = order.map(|line| xml.find(line).unwrap());
    assert!(at[0] < at[1], "the VF before its PF: {xml}");
    assert_eq!(vms.found().unwrap()[&a()].vdpa, ["net0".parse().unwrap()].into());
}

#[test]
fn a_qemu_that_apparmor_would_keep_from_its_vdpa_devices_is_found_before_it_is_made() {
    let host = Host::new();
    let vms = host.vms();
    for file in ["root/sys/bus/vdpa/drivers/vhost_vdpa", "root/dev/vduse", "root/etc/apparmor.d/abstractions"]
    {
        fs::create_dir_all(host.path(file)).unwrap();
    }
    fs::write(host.path("root/dev/vduse/control"), "").unwrap();
    let abstraction = host.path("root/etc/apparmor.d/abstractions/libvirt-qemu");
    fs::write(&abstraction, "/dev/vhost-net rw,\n").unwrap();
    let nic = "net0".parse().unwrap();
    // Whether somebody starts switches again is of the machine that this runs on, and asked last.
    let refused = || match vms.makes_devices(&a(), &nic) {
        Ok(()) | Err(GuestError::NoSystemd { .. }) => None,
        Err(error @ GuestError::NoVdpaRule { .. }) => error.hint(),
        Err(other) => panic!("{}", chain(&other)),
    };
    assert_eq!(refused(), None, "libvirt confines nobody");
    host.on("capabilities", "echo '<secmodel><model>apparmor</model></secmodel>'");
    let hint = refused().unwrap();
    let own = "/etc/apparmor.d/local/abstractions/libvirt-qemu";
    assert!(hint.contains(&format!("echo '/dev/vhost-vdpa-[0-9]* rw,' >>{own}")), "{hint}");

    // A libvirt that writes the rule itself, as far as it says.
    fs::create_dir_all(host.path("root/usr/lib/libvirt")).unwrap();
    let rule = "cat >/dev/null; echo '  \"/dev/vhost-vdpa-0\" rw,'";
    host.script("root/usr/lib/libvirt/virt-aa-helper", &format!("#!/bin/sh\n{rule}\n"));
    assert_eq!(refused(), None);
    host.script(
        "root/usr/lib/libvirt/virt-aa-helper",
        "#!/bin/sh\ncat >/dev/null; echo '  \"/dev/vhost-net\" rw,'\n",
    );
    assert!(refused().is_some());
    fs::create_dir_all(host.path("root/etc/apparmor.d/local/abstractions")).unwrap();
    fs::write(host.path(&format!("root{own}")), "  /dev/vhost-vdpa-[0-9]* rw,\n").unwrap();
    assert_eq!(refused(), None);
}
