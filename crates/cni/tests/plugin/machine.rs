//! A machine made of namespaces: VFs are veth interfaces that a tree in the place of `/sys` calls VFs.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use penstock_cni::journal::Step;
use penstock_testkit::{namespace::Namespace, script};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{self, Ended, after, name_of, netns, with};

/// A machine with a PF and two VFs.
pub struct Machine {
    pub host: Namespace,
    pub directory: TempDir,
}

impl Ended {
    pub fn code(&self) -> u64 {
        self.document["code"].as_u64().unwrap_or(0)
    }
}

pub const VFS: [&str; 2] = ["0000:01:10.0", "0000:01:10.1"];

impl Machine {
    pub fn new() -> Machine {
        let host = Namespace::new();
        host.batch(
            "ip",
            "link add pf0 address 02:00:00:00:00:10 type veth peer name wire\n\
             link add vf0 address 02:00:00:00:00:20 type veth peer name wire0\n\
             link add vf1 address 02:00:00:00:00:21 type veth peer name wire1\n\
             link set wire0 up\nlink set wire1 up\nlink set pf0 up\nlink set vf0 up mtu 1400\n",
        );
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine { host, directory };
        let pf = machine.path("sys/bus/pci/devices/0000:01:00.0");
        fs::create_dir_all(pf.join("net/pf0")).unwrap();
        fs::write(pf.join("sriov_numvfs"), "2\n").unwrap();
        let class = machine.path("sys/class/net/pf0");
        fs::create_dir_all(&class).unwrap();
        symlink("../../../bus/pci/devices/0000:01:00.0", class.join("device")).unwrap();
        for (index, vf) in VFS.into_iter().enumerate() {
            let directory = machine.path("sys/bus/pci/devices").join(vf);
            fs::create_dir_all(directory.join(format!("net/vf{index}"))).unwrap();
            symlink("../0000:01:00.0", directory.join("physfn")).unwrap();
            symlink(format!("../{vf}"), pf.join(format!("virtfn{index}"))).unwrap();
        }
        let ipam = machine.path("bin/addresses");
        fs::create_dir_all(ipam.parent().unwrap()).unwrap();
        let text = "#!/bin/sh\n\
            d=$(dirname \"$0\")\n\
            cat >/dev/null\n\
            echo \"$CNI_COMMAND $CNI_CONTAINERID\" >> \"$d/log\"\n\
            if [ -e \"$d/fails\" ]; then echo '{\"code\": 77, \"msg\": \"no address left\"}'; exit 1; fi\n\
            [ \"$CNI_COMMAND\" != ADD ] || echo '{\"cniVersion\": \"1.0.0\", \"ips\": [{\"address\": \"10.1.0.5/24\", \"gateway\": \"10.1.0.1\"},\
             {\"address\": \"fd00::5/64\"}], \"routes\": [{\"dst\": \"0.0.0.0/0\"}], \"dns\": {\"nameservers\": [\"10.1.0.1\"]}}'\n";
        script::write(ipam, text);
        machine
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// What the host has of the VFs: all that must be as before in the end.
    pub fn vfs(&self) -> Vec<String> {
        let all = self.host.run("ip -o -d link show");
        let mut vfs: Vec<String> = all
            .lines()
            .filter(|line| line.contains(": vf") || line.contains(": dev") || line.contains(": net"))
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let after = |word| after(line, word);
                let up = words[2].contains(",UP") || words[2].contains("<UP");
                format!("{} up={up} mtu={:?} mac={:?}", words[1], after("mtu"), after("link/ether"))
            })
            .collect();
        vfs.sort();
        vfs
    }

    pub fn records(&self) -> Vec<String> {
        let names = fs::read_dir(self.path("run/penstock/cni")).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".json")).collect()
    }

    pub fn ipam_log(&self) -> String {
        fs::read_to_string(self.path("bin/log")).unwrap_or_default()
    }

    pub fn call(
        &self,
        verb: &str,
        container: &str,
        netns: Option<&str>,
        configuration: &Value,
        dies: Option<Step>,
    ) -> Ended {
        let machine = (&self.host, self.directory.path());
        process::call(machine, verb, container, netns, configuration, dies.map(name_of).as_deref())
    }

    pub fn add(&self, container: &str, into: &Namespace, configuration: &Value) -> Ended {
        self.call("ADD", container, Some(&netns(into)), configuration, None)
    }

    pub fn del(&self, container: &str, from: Option<&Namespace>, configuration: &Value) -> Ended {
        self.call("DEL", container, from.map(netns).as_deref(), configuration, None)
    }
}

pub fn configuration(more: Value) -> Value {
    let all = json!({"cniVersion": "1.1.0", "name": "data", "type": "sriov", "deviceID": VFS[0], "logLevel": "error"});
    with(all, more)
}

pub fn with_addresses() -> Value {
    configuration(json!({"mac": "02:00:00:00:00:99", "ipam": {"type": "addresses"}}))
}

pub fn interfaces(namespace: &Namespace) -> String {
    namespace.run("ip -o link show")
}
