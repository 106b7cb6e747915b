//! A node's machine as a directory, with a script as `penstock`; its devices, and claims of them.

use std::{collections::BTreeMap, env, fs, os::unix::fs::symlink, path::PathBuf, process::Command};

use k8s_openapi::api::resource::v1::ResourceClaim;
use penstock_host::Root;
use penstock_kubernetes::{
    claim::{ClaimSettings, Claims, prepare::ClaimStep},
    devices::{Devices, KnownNic, PublishedFunction},
    identity::DeviceName,
};
use penstock_testkit::script;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The directory of the machine that the agent is to be on.
pub const MACHINE: &str = "PENSTOCK_CLAIMS_TEST_MACHINE";
/// The step at which it is to die.
pub const DIES: &str = "PENSTOCK_CLAIMS_TEST_DIES";
pub const DRIVER: &str = "sriov.penstock.dev";

/// `penstock cni` that binds VFs to vfio-pci, moves none, and refuses what the file `refuses` says: all, or the verb of its name.
const PENSTOCK: &str = r#"#!/bin/sh
d=$(dirname "$0")
cat > "$d/input"
echo "$CNI_COMMAND $(sed -n 's/.*"name":"\([^"]*\)".*/\1/p' "$d/input")" >> "$d/log"
[ ! -e "$d/dies-$CNI_COMMAND" ] || exit 9
for refuses in "$d/refuses" "$d/refuses-$CNI_COMMAND"; do
    [ ! -e "$refuses" ] || { echo "{\"code\": $(cat "$d/code"), \"msg\": \"$(cat "$refuses")\", \"details\": \"try this\"}"; exit 1; }
done
devices=$d/../root/sys/bus/pci/devices
case $CNI_COMMAND in
ADD)
    grep -q '"driver":"vfio-pci"' "$d/input" || exit 9
    function=$(sed -n 's/.*"deviceID":"\([^"]*\)".*/\1/p' "$d/input")
    readlink "$devices/$function/driver" > "$d/bound-$function"
    ln -sfn ../../drivers/vfio-pci "$devices/$function/driver"
    ln -sfn ../../../../kernel/iommu_groups/$(cat "$d/group-$function") "$devices/$function/iommu_group" ;;
GC)
    for bound in "$d"/bound-*; do
        [ -e "$bound" ] || continue
        ln -sfn "$(cat "$bound")" "$devices/${bound##*/bound-}/driver"
        rm "$bound"
    done ;;
esac
"#;

/// A machine with a PF and two VFs, of which the second is bound to vfio-pci.
pub struct Machine {
    pub directory: PathBuf,
    pub _keep: Option<TempDir>,
}

impl Machine {
    pub fn new() -> Machine {
        let keep = tempfile::tempdir().unwrap();
        let machine = Machine { directory: keep.path().to_owned(), _keep: Some(keep) };
        let pci = machine.path("root/sys/bus/pci/devices");
        for (function, driver) in
            [("0000:01:00.0", "igb"), ("0000:01:10.0", "igbvf"), ("0000:01:10.2", "vfio-pci")]
        {
            fs::create_dir_all(pci.join(function)).unwrap();
            symlink(format!("../../drivers/{driver}"), pci.join(function).join("driver")).unwrap();
        }
        fs::create_dir_all(pci.join("0000:01:10.0/net/vf0")).unwrap();
        for vf in ["0000:01:10.0", "0000:01:10.2"] {
            symlink("../0000:01:00.0", pci.join(vf).join("physfn")).unwrap();
        }
        machine.restart("run-1");
        let penstock = machine.path("bin/penstock");
        fs::create_dir_all(penstock.parent().unwrap()).unwrap();
        script::write(penstock, PENSTOCK);
        machine.refuses_with(102);
        machine
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// Gives the first VF an IOMMU group of this number, and says which number it has once it is bound.
    pub fn iommu(&self, group: u32, bound: u32) {
        self.iommu_of("0000:01:10.0", group, bound);
    }

    pub fn iommu_of(&self, function: &str, group: u32, bound: u32) {
        for group in [group, bound] {
            let members = self.path(&format!("root/sys/kernel/iommu_groups/{group}/devices"));
            fs::create_dir_all(members.join(function)).unwrap();
        }
        let link = self.path("root/sys/bus/pci/devices").join(function).join("iommu_group");
        drop(fs::remove_file(&link));
        symlink(format!("../../../../kernel/iommu_groups/{group}"), link).unwrap();
        fs::write(self.path(&format!("bin/group-{function}")), bound.to_string()).unwrap();
    }

    /// The driver of the first VF.
    pub fn driver(&self) -> String {
        let link = fs::read_link(self.path("root/sys/bus/pci/devices/0000:01:10.0/driver")).unwrap();
        link.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// What the container runtime is told of claim `u-1`.
    pub fn cdi(&self) -> Value {
        let text = fs::read(self.path(&format!("cdi/{DRIVER}-u-1.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// The kernel runs anew.
    pub fn restart(&self, boot: &str) {
        let random = self.path("root/proc/sys/kernel/random");
        fs::create_dir_all(&random).unwrap();
        fs::write(random.join("boot_id"), format!("{boot}\n")).unwrap();
    }

    pub fn claims(&self) -> Claims {
        Claims::new(ClaimSettings {
            root: Root::at(self.path("root")),
            driver: DRIVER.to_owned(),
            pool: "node-1".to_owned(),
            penstock: self.path("bin/penstock"),
            program: "/usr/local/bin/penstock-kubernetes".into(),
            state: self.path("state"),
            run: self.path("run"),
            cdi: self.path("cdi"),
        })
    }

    /// All that there is of claims.
    pub fn files(&self) -> Vec<String> {
        let mut all = Vec::new();
        for directory in ["state/claims", "state/metadata", "cdi", "run"] {
            let names = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
            all.extend(names.map(|entry| format!("{directory}/{}", entry.file_name().to_string_lossy())));
        }
        all.retain(|name| !name.ends_with("prepare.lock") && !name.ends_with("agent.sock"));
        all.sort();
        all
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("bin/log")).unwrap_or_default()
    }

    pub fn refuses(&self, why: Option<&str>) {
        self.refuses_verb("", why);
    }

    pub fn refuses_verb(&self, verb: &str, why: Option<&str>) {
        let path = self.path(&format!("bin/refuses{verb}"));
        match why {
            Some(why) => fs::write(path, why).unwrap(),
            None => drop(fs::remove_file(path)),
        }
    }

    /// The number of the error with which it refuses.
    pub fn refuses_with(&self, code: u32) {
        fs::write(self.path("bin/code"), code.to_string()).unwrap();
    }

    /// This program as the agent of the machine.
    pub fn agent(&self, verb: &str, dies: Option<ClaimStep>) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.arg(verb).env(MACHINE, &self.directory);
        if let Some(step) = dies {
            command.env(DIES, format!("{step:?}"));
        }
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code().is_none(), dies.is_some(), "{verb}: {errors}");
        assert!(dies.is_some() || output.status.success(), "{verb}: {errors}");
    }
}

pub fn device_name(name: &str) -> DeviceName {
    serde_json::from_value(json!(name)).unwrap()
}

/// The permanent MAC address of the NIC.
pub const NIC_MAC: &str = "02:00:00:00:00:f0";

pub fn devices() -> Devices {
    let mut all = Devices::default();
    let nic = KnownNic { name: "net0".to_owned(), in_model: None, mac: NIC_MAC.parse().ok() };
    all.nics.insert("0000:01:00.0".parse().unwrap(), nic);
    for (name, function, vf) in
        [("net0-0", "0000:01:10.0", 0), ("net0-1", "0000:01:10.2", 1), ("net0-2", "0000:01:10.4", 2)]
    {
        let function = PublishedFunction {
            name: device_name(name),
            nic: "net0".to_owned(),
            label: "net0".to_owned(),
            attributes: BTreeMap::new(),
            in_use: None,
            pf: "0000:01:00.0".parse().unwrap(),
            vf: penstock_model::VfIndex::new(vf).unwrap(),
            bdf: function.parse().unwrap(),
            driver: None,
        };
        all.functions.insert(function.name.clone(), function);
    }
    all
}

pub fn claim(uid: &str, device: &str, parameters: Value) -> ResourceClaim {
    serde_json::from_value(json!({
        "metadata": {"name": format!("claim-{uid}"), "namespace": "default", "uid": uid},
        "spec": {},
        "status": {
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": "p-1"}],
            "allocation": {"devices": {
                "results": [{"driver": DRIVER, "pool": "node-1", "device": device, "request": "vf"}],
                "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": parameters}}],
            }},
        },
    }))
    .unwrap()
}
