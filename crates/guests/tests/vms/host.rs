//! The host of these tests: a tree in the place of its sysfs, and a script in that of `virsh`.

use penstock_guests::Builtin;
use penstock_guests::Condition;
use penstock_guests::Containers;
use penstock_guests::GuestError;
use penstock_guests::Guests;
use penstock_guests::Vms;
use penstock_host::Command;
use penstock_host::Root;
use penstock_model::GuestName;
use penstock_model::Inside;
use penstock_model::Vm;
use penstock_plan::action::GuestDefinition;
use penstock_plan::action::GuestFunction;
use penstock_testkit::script;
use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

pub const TIMEOUT: Duration = Duration::from_secs(20);

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
    # Until it is what was asked for, it is this script still.
    until grep -q guest=penstock-a /proc/$!/cmdline; do :; done
    # What it is made of, which libvirt keeps with more around it.
    cp "$3" "$pids/penstock-a.xml"
    echo $! >"$pids/penstock-a.pid"
    touch "$HERE/paused"
    ;;
list) if [ -e "$HERE/paused" ]; then echo penstock-a; fi ;;
resume) rm "$HERE/paused" ;;
suspend) touch "$HERE/paused" ;;
shutdown | destroy)
    if [ ! -e "$pids/penstock-a.pid" ]; then echo "error: failed to get domain 'penstock-a'" >&2; exit 1; fi
    kill "$(cat "$pids/penstock-a.pid")"
    rm -f "$pids/penstock-a.pid" "$pids/penstock-a.xml" "$HERE/paused"
    ;;
qemu-agent-command) echo '{"return":{}}' ;;
esac
"#;

/// A libvirt that has made the VM for somebody else by the time that it is asked, of this domain (sed(1)).
pub fn exists_by_then(edit: &str) -> String {
    format!(
        "sh -c 'while :; do sleep 0.1; done' qemu -name guest=penstock-a,debug-threads=on >/dev/null 2>&1 &
         until grep -q guest=penstock-a /proc/$!/cmdline; do :; done
         sed '{edit}' \"$3\" >$HERE/root/run/libvirt/qemu/penstock-a.xml
         echo $! >$HERE/root/run/libvirt/qemu/penstock-a.pid
         echo \"error: operation failed: domain 'penstock-a' already exists with uuid 1\" >&2
         exit 1"
    )
}

pub const SILENCE: &str = "echo 'error: failed to connect to the hypervisor' >&2; exit 1";

/// A host with one function, and what stands for its libvirt.
pub struct Host {
    directory: tempfile::TempDir,
}

impl Host {
    pub fn new() -> Host {
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn script(&self, name: &str, text: &str) {
        script::write(self.path(name), text);
    }

    /// What the fake does for a verb before all else.
    pub fn on(&self, verb: &str, text: &str) {
        let text = text.replace("$HERE", &self.path("").to_string_lossy());
        self.script(&format!("on-{verb}"), &text);
    }

    /// A function in IOMMU group 7.
    pub fn function(&self, bdf: &str, driver: Option<&str>) {
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

    pub fn vms(&self) -> Vms {
        self.vms_in("state")
    }

    /// Those of this state.
    pub fn vms_in(&self, state: &str) -> Vms {
        let builtin = Builtin { directories: vec![self.path("builtin")] };
        Vms::new(Root::at(self.path("root")), self.path(state), builtin).through(self.path("virsh"))
    }

    pub fn guests(&self) -> Guests {
        self.guests_in("state")
    }

    /// Those of this state.
    pub fn guests_in(&self, state: &str) -> Guests {
        let containers = Containers::new(Root::at(self.path("root")), self.path(state));
        Guests::of(self.path(state), containers, self.vms_in(state))
    }

    /// Makes the state know of a start whose process nobody has seen: that of whoever was killed meanwhile.
    pub fn begun(&self, state: &str) {
        let mut started: serde_json::Value =
            serde_json::from_slice(&fs::read(self.file("started.json")).unwrap()).unwrap();
        started["init"] = serde_json::Value::Null;
        fs::write(self.path(state).join("penstock-a/started.json"), started.to_string()).unwrap();
    }

    pub fn defined(&self, vm: Vm) -> Vms {
        let vms = self.vms();
        vms.define(&definition("a", vm), TIMEOUT).unwrap();
        vms
    }

    pub fn running(&self, vm: Vm) -> Vms {
        let vms = self.defined(vm);
        vms.create(&a(), TIMEOUT).unwrap();
        vms.resume(&a(), TIMEOUT).unwrap();
        vms
    }

    pub fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path("state/penstock-a").join(name)
    }

    pub fn pid(&self) -> u32 {
        let pid = fs::read_to_string(self.path("root/run/libvirt/qemu/penstock-a.pid")).unwrap();
        pid.trim().parse().unwrap()
    }

    pub fn kill(&self) {
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

pub fn a() -> GuestName {
    "a".parse().unwrap()
}

pub fn definition(guest: &str, vm: Vm) -> GuestDefinition {
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

pub fn looked_into(inside: Inside) -> Vm {
    Vm { inside, ..Vm::default() }
}

pub fn condition(vms: &Vms) -> Condition {
    vms.status().unwrap()[&a()].condition
}

pub fn chain(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

#[track_caller]
pub fn says(error: &GuestError, words: &[&str]) {
    let text = chain(error);
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}
