//! Open vSwitch in a VM: Debian's programs, unpacked, with the datapath in user space.

use std::{env, path::PathBuf, sync::Arc};

use penstock_host::Command;
use penstock_testkit::{
    needs::Lack,
    script,
    unpacked::{self, OPEN_VSWITCH},
};
use tempfile::TempDir;

use super::{SECOND, Vm};

/// The switch, below that.
const SWITCH: &str = "usr/lib/openvswitch-switch/ovs-vswitchd";

/// Runs in a VM until it is dropped.
pub struct OpenVswitch {
    vm: Arc<Vm>,
    _programs: TempDir,
}

impl OpenVswitch {
    /// Why there is none to try, if so.
    pub fn lacking() -> Option<Lack> {
        if let Some(lack) = unpacked::lacking(OPEN_VSWITCH, &["usr/sbin/ovsdb-server"]) {
            return Some(lack);
        }
        // Libraries that most machines have are not unpacked.
        let script = format!("{}exec {}/{SWITCH} --version", libraries(), tree().display());
        let tried = Command::new("sh").args(["-c", &script]).deadline(SECOND * 20).run();
        match tried.map(|output| (output.status.success(), output.errors())) {
            Ok((true, _)) => None,
            Ok((false, said)) => Some(Lack::Machine(format!("its ovs-vswitchd does not start here: {said}"))),
            Err(error) => Some(Lack::Machine(format!("its ovs-vswitchd does not start here: {error}"))),
        }
    }

    /// Starts the database and the switch, and puts `ovs-vsctl` on the VM's path. User space makes segments itself, without which
    /// what comes from a veth has no checksums.
    pub fn start(vm: &Arc<Vm>) -> OpenVswitch {
        let (tree, programs) = (tree(), tempfile::tempdir().unwrap());
        let libraries = libraries();
        // The kernel here may have no module for a datapath.
        let control = format!(
            "#!/bin/sh\n{libraries}for word; do\n[ \"$before\" = add-br ] && set -- \"$@\" -- set bridge \"$word\" datapath_type=netdev\n\
             before=$word\ndone\nexec {}/usr/bin/ovs-vsctl \"$@\"\n",
            tree.display()
        );
        script::write(programs.path().join("ovs-vsctl"), &control);
        *vm.programs.lock().unwrap() = Some(programs.path().to_owned());
        vm.shell(&format!(
            "{libraries}set -e; cd {}; mkdir -p /run/openvswitch\n\
             usr/bin/ovsdb-tool create /run/database usr/share/openvswitch/vswitch.ovsschema\n\
             usr/sbin/ovsdb-server /run/database --remote=punix:/run/openvswitch/db.sock --pidfile --detach --log-file=/run/database.log\n\
             ovs-vsctl --no-wait init -- set Open_vSwitch . other_config:userspace-tso-enable=true\n\
             {SWITCH} --pidfile --detach --log-file=/run/switch.log >/dev/null 2>&1",
            tree.display()
        ));
        OpenVswitch { vm: Arc::clone(vm), _programs: programs }
    }
}

impl Drop for OpenVswitch {
    fn drop(&mut self) {
        self.vm.shell("kill $(cat /run/openvswitch/*.pid)");
    }
}

/// Has a shell find the libraries of the tree.
fn libraries() -> String {
    let of = |directory: &str| {
        tree().join(directory).join(format!("{}-linux-gnu", env::consts::ARCH)).display().to_string()
    };
    format!("export LD_LIBRARY_PATH={}:{}\n", of("usr/lib"), of("lib"))
}

fn tree() -> PathBuf {
    unpacked::tree(OPEN_VSWITCH)
}
