//! VFs that are bound to vfio-pci for a program, and back, on machines made of namespaces: VFs are veth interfaces that a tree in the place of
//! `/sys` calls VFs, and this program does what the kernel does when a driver is bound. It is the plugin, too.
#![allow(clippy::disallowed_methods)]

#[path = "plugin/inhabitant.rs"]
mod inhabitant;
#[path = "plugin/process.rs"]
mod process;

use std::{
    env, fs,
    io::Write,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, ExitCode},
};

use inhabitant::Inhabitant;
use penstock_cni::{Plugin, journal::Step};
use penstock_host::{Netlink, PciError, PciFunction, Root, VfBackend, scan::attachments::attachment};
use penstock_model::{VfAttribute, VfIndex, VlanId};
use penstock_testkit::{namespace::Namespace, needs, switch_line, trials::Trials};
use process::{Ended, ROOT, after, be_the_plugin, die_of, name_of, with};
use serde_json::{Value, json};
use tempfile::TempDir;

/// It dies when the function has no driver, on the way from one to another.
const UNBOUND: &str = "unbound";
const VF: &str = "0000:01:10.0";
/// Who has only a mapping of a function.
const UNSEEN: &str = "a process that /proc does not name";

fn main() -> ExitCode {
    if let Some(root) = env::var_os(ROOT) {
        return be_the_plugin(
            PathBuf::from(root),
            Plugin { set_driver: as_the_kernel, held_by: as_told, opened_by: as_seen, ..Plugin::system() },
        );
    }
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let missing = missing.or_else(|| trials.lacking("root", needs::root));
    let tests: [(&str, fn()); 10] = [
        ("a_vf_is_bound_for_a_program_and_comes_back_in_netns", a_vf_is_bound),
        ("a_plugin_killed_at_any_step_of_binding_loses_nothing_in_netns", killed_at_any_step),
        ("what_may_not_be_bound_is_refused_in_netns", what_may_not_be_bound),
        ("a_vf_that_a_program_has_is_let_alone_in_netns", a_vf_that_a_program_has),
        ("a_vf_is_taken_back_in_an_order_that_a_pf_takes_in_netns", taken_back_in_order),
        ("a_driver_that_refuses_takes_all_back_in_netns", a_driver_that_refuses),
        ("an_attribute_that_a_driver_lacks_keeps_no_vf_in_netns", an_attribute_that_a_driver_lacks),
        ("a_driver_override_of_others_comes_back_in_netns", an_override_of_others),
        ("a_vf_that_is_bound_as_wanted_already_is_free_in_netns", bound_as_wanted_already),
        ("what_was_set_goes_also_where_somebody_binds_another_driver_in_netns", another_driver),
    ];
    trials.add(&missing, tests);
    let macvlans =
        || needs::refused(penstock_host::Command::new("unshare").args(["--net", "sh", "-c", MACVLAN]));
    let missing = missing.or_else(|| trials.lacking("macvlans", macvlans));
    trials.add(
        &missing,
        [("what_a_container_puts_upon_an_interface_ends_with_it_in_netns", put_upon_it as fn())],
    );
    trials.run()
}

/// Binds and unbinds as [`PciFunction::set_driver`] does on a kernel: the network driver's interface goes with it, and another one comes, with an
/// address and an MTU of its own.
fn as_the_kernel(function: &PciFunction, driver: Option<&str>) -> Result<(), PciError> {
    let at = function.directory();
    let refuses = at.join("refuses");
    let passes = driver == Some("vfio-pci");
    let mut asked = fs::OpenOptions::new().create(true).append(true).open(at.join("asked")).unwrap();
    writeln!(asked, "{}", driver.unwrap_or("none")).unwrap();
    if function.driver()?.as_deref() != driver {
        // As the kernel has it: the override is written first.
        fs::write(at.join("driver_override"), driver.unwrap_or_default()).unwrap();
        if at.join("net").exists() {
            ip("link delete vf0");
            fs::remove_dir_all(at.join("net")).unwrap();
        }
        drop(fs::remove_file(at.join("driver")));
        die_of(UNBOUND);
        if passes && refuses.exists() {
            let why = "its probe failed".to_owned();
            let driver = "vfio-pci".to_owned();
            return Err(PciError::NotBound { function: function.bdf(), driver, why, hint: None });
        }
        if let Some(driver) = driver {
            symlink(format!("../../drivers/{driver}"), at.join("driver")).unwrap();
        }
        if driver == Some("igbvf") {
            ip("link add vf0 type veth peer name wire0");
            fs::create_dir_all(at.join("net/vf0")).unwrap();
        }
    }
    if !passes {
        fs::write(at.join("driver_override"), "(null)").unwrap();
    }
    Ok(())
}

/// What the kernel says of who has the function, when its group is opened, which is written down: the test's word.
fn as_told(function: &PciFunction) -> Vec<String> {
    fs::write(function.directory().join("opened"), "").unwrap();
    holder(function)
}

/// What `/proc` shows of that.
fn as_seen(function: &PciFunction) -> Vec<String> {
    holder(function).into_iter().filter(|holder| holder != UNSEEN).collect()
}

/// Who has the function, only while it is bound to vfio-pci.
fn holder(function: &PciFunction) -> Vec<String> {
    let bound = function.driver().unwrap().is_some_and(|driver| driver == "vfio-pci");
    let told = fs::read_to_string(function.directory().join("holder")).ok();
    told.filter(|_| bound).into_iter().collect()
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split_whitespace()).status().unwrap().success(), "{words}");
}

/// Makes one.
const MACVLAN: &str = "ip link add v1 type veth peer name v2 && ip link add m1 link v1 type macvlan";

/// A machine with a PF and a VF, which has its driver, its interface and an IOMMU group of its own.
struct Machine {
    host: Namespace,
    directory: TempDir,
}

impl Ended {
    fn refused(&self, code: u64, words: &str) {
        let said = self.document["msg"].as_str().unwrap_or_default();
        assert!(!self.holds && self.document["code"] == code && said.contains(words), "{words}: {self:?}");
    }
}

impl Machine {
    fn new() -> Machine {
        let host = Namespace::new();
        host.batch(
            "ip",
            "link add pf0 type veth peer name wire\n\
             link add vf0 address 02:00:00:00:00:20 type veth peer name wire0\nlink set vf0 up mtu 1400\n",
        );
        let machine = Machine { host, directory: tempfile::tempdir().unwrap() };
        let pf = machine.path("sys/bus/pci/devices/0000:01:00.0");
        fs::create_dir_all(pf.join("net/pf0")).unwrap();
        symlink(format!("../{VF}"), pf.join("virtfn0")).unwrap();
        let vf = machine.vf();
        fs::create_dir_all(vf.join("net/vf0")).unwrap();
        symlink("../0000:01:00.0", vf.join("physfn")).unwrap();
        symlink("../../drivers/igbvf", vf.join("driver")).unwrap();
        fs::write(vf.join("driver_override"), "(null)").unwrap();
        fs::create_dir_all(machine.path("sys/kernel/iommu_groups/7/devices").join(VF)).unwrap();
        symlink("../../../../kernel/iommu_groups/7", vf.join("iommu_group")).unwrap();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn vf(&self) -> PathBuf {
        self.path("sys/bus/pci/devices").join(VF)
    }

    /// All that must be as before in the end.
    fn state(&self) -> String {
        let links = self.host.run("ip -o link show");
        let vf = links.lines().find(|line| line.contains(" vf0@")).unwrap_or("no interface");
        let after = |word| after(vf, word).unwrap_or_default();
        let up = vf.contains(",UP") || vf.contains("<UP");
        let driver = fs::read_link(self.vf().join("driver")).unwrap_or_default();
        let chosen = fs::read_to_string(self.vf().join("driver_override")).unwrap();
        let records = fs::read_dir(self.path("run/penstock/cni")).into_iter().flatten().flatten();
        let records = records.filter(|of| of.file_name().to_string_lossy().ends_with(".json")).count();
        format!(
            "{} {chosen} up={up} mtu {} mac {} records {records}",
            driver.display(),
            after("mtu"),
            after("link/ether")
        )
    }

    fn is_bound(&self) -> bool {
        fs::read_link(self.vf().join("driver")).is_ok_and(|of| of.ends_with("vfio-pci"))
    }

    fn call(&self, verb: &str, container: &str, configuration: &Value, dies: Option<&str>) -> Ended {
        self.call_in(verb, container, None, configuration, dies)
    }

    fn call_in(
        &self,
        verb: &str,
        container: &str,
        netns: Option<&Namespace>,
        configuration: &Value,
        dies: Option<&str>,
    ) -> Ended {
        let machine = (&self.host, self.directory.path());
        process::call(machine, verb, container, netns.map(process::netns).as_deref(), configuration, dies)
    }

    fn holds(&self, verb: &str, container: &str, configuration: &Value) -> Value {
        let ended = self.call(verb, container, configuration, None);
        assert!(ended.holds, "{verb}: {ended:?}");
        ended.document
    }

    /// Takes back all of a network, as who has asked for it does.
    fn collect(&self, dies: Option<&str>) -> Ended {
        self.call("GC", "", &configuration(json!({"cni.dev/valid-attachments": []})), dies)
    }
}

fn configuration(more: Value) -> Value {
    let all = json!({
        "cniVersion": "1.1.0", "name": "claim-1", "type": "penstock-cni", "deviceID": VF, "logLevel": "error",
        "driver": "vfio-pci",
    });
    with(all, more)
}

fn a_vf_is_bound() {
    let machine = Machine::new();
    let before = machine.state();
    assert!(before.contains("igbvf (null) up=true mtu 1400 mac 02:00:00:00:00:20"), "{before}");
    let bind = configuration(json!({}));
    machine.holds("STATUS", "", &bind);
    let given = machine.holds("ADD", "claim-1", &bind);
    assert_eq!(given["interfaces"], json!([{"name": "net1", "pciID": VF}]));
    assert!(
        machine.is_bound() && machine.state().contains("vfio-pci vfio-pci up=false"),
        "{}",
        machine.state()
    );
    let taker = attachment(&Root::at(machine.directory.path()), VF.parse().unwrap());
    assert_eq!(taker.unwrap(), "container claim-1 (network claim-1, penstock cni)");
    // It is looked at with a namespace and without.
    machine.holds("CHECK", "claim-1", &bind);
    let pod = Namespace::new();
    assert!(machine.call_in("CHECK", "claim-1", Some(&pod), &bind, None).holds);
    // Nobody else gets it, as whatever.
    machine.call("ADD", "claim-2", &bind, None).refused(101, "is bound for claim-1");
    let mut moved = bind.clone();
    moved.as_object_mut().unwrap().remove("driver");
    machine.call_in("ADD", "pod-2", Some(&pod), &moved, None).refused(101, "is bound for claim-1");
    assert!(machine.is_bound());
    // Somebody takes its driver away.
    fs::remove_file(machine.vf().join("driver")).unwrap();
    machine.call("CHECK", "claim-1", &bind, None).refused(103, "has no driver, not the driver vfio-pci");
    symlink("../../drivers/vfio-pci", machine.vf().join("driver")).unwrap();
    machine.holds("CHECK", "claim-1", &bind);
    assert!(machine.collect(None).holds);
    assert_eq!(machine.state(), before);
    assert!(machine.collect(None).holds, "once more is fine");
    machine.call("CHECK", "claim-1", &bind, None).refused(103, "no VF is bound for it");
    // DEL does the same; and a VF without a driver ends without one.
    machine.holds("ADD", "claim-1", &bind);
    machine.holds("DEL", "claim-1", &bind);
    assert_eq!(machine.state(), before);
    machine.host.run("ip link delete vf0");
    fs::remove_dir_all(machine.vf().join("net")).unwrap();
    fs::remove_file(machine.vf().join("driver")).unwrap();
    let before = machine.state();
    machine.holds("ADD", "claim-1", &bind);
    assert!(machine.is_bound());
    machine.holds("DEL", "claim-1", &bind);
    assert_eq!(machine.state(), before);
}

fn killed_at_any_step() {
    let steps = Step::OF_BINDING.map(name_of).into_iter().chain([UNBOUND.to_owned()]);
    for step_of_add in steps {
        for end in [None, Some(name_of(Step::Releasing)), Some(UNBOUND.to_owned())] {
            let machine = Machine::new();
            let before = machine.state();
            let bind = configuration(json!({}));
            machine.call("ADD", "claim-1", &bind, Some(&step_of_add));
            let was_bound = machine.is_bound();
            match end.as_deref() {
                // On the way back a driver is taken away only where one was bound.
                Some(UNBOUND) if !was_bound => {}
                Some(end) => drop(machine.collect(Some(end))),
                None => {}
            }
            let collected = machine.collect(None);
            assert!(collected.holds, "{step_of_add} {end:?}: {collected:?}");
            assert_eq!(machine.state(), before, "{step_of_add} {end:?}");
        }
        // The same is asked for again, without an end in between: what was begun is taken back, and done anew.
        let machine = Machine::new();
        let before = machine.state();
        let bind = configuration(json!({}));
        machine.call("ADD", "claim-1", &bind, Some(&step_of_add));
        let again = machine.call("ADD", "claim-1", &bind, None);
        assert!(again.holds || step_of_add == name_of(Step::Attached), "{step_of_add}: {again:?}");
        assert!(machine.is_bound(), "{step_of_add}");
        assert!(machine.collect(None).holds);
        assert_eq!(machine.state(), before, "{step_of_add}");
    }
    // A restart of the machine in between: VFs are as new, and nothing is written down.
    let machine = Machine::new();
    let before = machine.state();
    machine.holds("ADD", "claim-1", &configuration(json!({})));
    fs::remove_dir_all(machine.path("run")).unwrap();
    fs::remove_dir_all(machine.vf()).unwrap();
    let fresh = Machine::new();
    fs::rename(fresh.vf(), machine.vf()).unwrap();
    machine.host.batch(
        "ip",
        "link add vf0 address 02:00:00:00:00:20 type veth peer name wire0\nlink set vf0 up mtu 1400\n",
    );
    assert!(machine.collect(None).holds);
    assert_eq!(machine.state(), before);
}

fn what_may_not_be_bound() {
    let bind = configuration(json!({}));
    let refused = |machine: &Machine, code: u64, words: &str| {
        let before = machine.state();
        machine.call("ADD", "claim-1", &bind, None).refused(code, words);
        assert_eq!(machine.state(), before, "{words}");
    };
    let machine = Machine::new();
    machine.host.run("ip address add 10.0.0.1/24 dev vf0");
    refused(&machine, 101, "the host uses the interface vf0");
    machine.host.run("ip address flush dev vf0");
    fs::create_dir_all(machine.path("sys/kernel/iommu_groups/7/devices/0000:01:10.2")).unwrap();
    refused(&machine, 102, "in one IOMMU group with 0000:01:10.2");
    machine.call("STATUS", "", &bind, None).refused(50, "in one IOMMU group with");
    fs::remove_file(machine.vf().join("iommu_group")).unwrap();
    refused(&machine, 102, "has no IOMMU group");
    machine.call("STATUS", "", &bind, None).refused(50, "has no IOMMU group");

    let machine = Machine::new();
    let before = machine.state();
    let wanted = |more: Value| machine.call("ADD", "claim-1", &configuration(more), None);
    wanted(json!({"mac": "02:00:00:00:00:99"})).refused(102, "tells nothing of its VFs");
    wanted(json!({"vlan": 7})).refused(102, "tells nothing of its VFs");
    wanted(json!({"addresses": ["10.0.0.1/24"]})).refused(7, "addresses is a matter of interfaces");
    wanted(json!({"mtu": 1400})).refused(7, "mtu is a matter of interfaces");
    wanted(json!({"driver": "igbvf"})).refused(7, "igbvf");
    wanted(json!({"driver": null})).refused(4, "CNI_NETNS is not set");
    assert_eq!(machine.state(), before);

    // A program's own driver, and an interface that a container has.
    machine.host.run("ip link delete vf0");
    fs::remove_dir_all(machine.vf().join("net")).unwrap();
    refused(&machine, 101, "has the driver igbvf and no interface here");
    fs::remove_file(machine.vf().join("driver")).unwrap();
    symlink("../../drivers/uio_pci_generic", machine.vf().join("driver")).unwrap();
    refused(&machine, 101, "has the driver uio_pci_generic");
}

fn a_vf_that_a_program_has() {
    let machine = Machine::new();
    let before = machine.state();
    let bind = configuration(json!({}));
    machine.holds("ADD", "claim-1", &bind);
    let bound = machine.state();
    let asked = machine.vf().join("asked");
    fs::remove_file(&asked).unwrap();
    // Nobody is named, as of a program that has only a mapping: the kernel's word is enough.
    fs::write(machine.vf().join("holder"), UNSEEN).unwrap();
    machine.holds("DEL", "claim-1", &bind);
    machine.collect(None);
    assert_eq!(machine.state(), bound, "nothing is touched, and the record stays");
    assert!(!asked.exists(), "no driver was bound");
    fs::remove_file(machine.vf().join("holder")).unwrap();
    assert!(machine.collect(None).holds);
    assert_eq!(machine.state(), before);
    assert_eq!(fs::read_to_string(&asked).unwrap(), "none\nigbvf\n", "the program's driver goes first");

    // One that was bound to vfio-pci before anybody asked, where binding does nothing.
    machine.host.run("ip link delete vf0");
    fs::remove_dir_all(machine.vf().join("net")).unwrap();
    fs::remove_file(machine.vf().join("driver")).unwrap();
    symlink("../../drivers/vfio-pci", machine.vf().join("driver")).unwrap();
    fs::write(machine.vf().join("holder"), "qemu (process 7)").unwrap();
    let before = machine.state();
    machine.call("ADD", "claim-2", &bind, None).refused(101, "is open in qemu (process 7)");
    let pod = Namespace::new();
    let mut given = bind.clone();
    given.as_object_mut().unwrap().remove("driver");
    machine.call_in("ADD", "pod-2", Some(&pod), &given, None).refused(101, "is open in qemu (process 7)");
    assert_eq!(machine.state(), before);
    fs::remove_file(machine.vf().join("holder")).unwrap();
    assert!(machine.call_in("ADD", "pod-2", Some(&pod), &given, None).holds);
    fs::write(machine.vf().join("holder"), "qemu (process 7)").unwrap();
    assert!(machine.call_in("DEL", "pod-2", Some(&pod), &given, None).holds);
    assert!(machine.state().contains("records 1"), "{}", machine.state());
    fs::remove_file(machine.vf().join("holder")).unwrap();
    assert!(machine.call_in("DEL", "pod-2", Some(&pod), &given, None).holds);
    assert_eq!(machine.state(), before);
}

/// Serves a line to the embedded switch of a PF. Whoever sets trust takes another address, as the VF's program may then. What is set is
/// written to the file `asked`, between the drivers. The attributes `lacks` are refused as by one that has no word for them.
fn serve_line(machine: &Machine, pf: &str, lacks: &'static [&'static str]) {
    let asked = machine.vf().join("asked");
    let mut settings = switch_line::settings("02:00:00:00:00:21");
    if lacks.contains(&"trust") {
        settings.as_object_mut().unwrap().remove("trust");
    }
    switch_line::serve(&machine.path(""), pf, move |request| {
        let mut set = request["attributes"].as_object().cloned().unwrap_or_default();
        set.remove("promiscuous");
        if let Some(key) = lacks.iter().find(|key| set.contains_key(**key)) {
            return json!({"error": {"text": "no", "causes": [format!("unknown field `{key}`")]}});
        }
        for (key, value) in &set {
            let mut asked = fs::OpenOptions::new().create(true).append(true).open(&asked).unwrap();
            writeln!(asked, "{key} {value}").unwrap();
            settings[key] = value.clone();
        }
        if set.get("trust") == Some(&json!(true)) {
            settings["mac"] = json!("02:00:00:00:00:66");
        }
        switch_line::state(&settings)
    });
}

fn taken_back_in_order() {
    let machine = Machine::new();
    machine.host.run("ip link set pf0 address 02:00:00:00:00:10");
    serve_line(&machine, "02:00:00:00:00:10", &[]);
    let asked = || {
        let asked = machine.vf().join("asked");
        let said = fs::read_to_string(&asked).unwrap();
        fs::remove_file(asked).unwrap();
        said
    };
    let before = machine.state();
    let bind = configuration(json!({"trust": "on"}));
    machine.holds("ADD", "claim-1", &bind);
    assert_eq!(asked(), "trust true\nvfio-pci\n");
    machine.holds("DEL", "claim-1", &bind);
    assert_eq!(machine.state(), before);
    // No program has it any more when the PF's word changes, the host's driver finds that, and an address needs trust.
    let taken_back = asked();
    let first = "none\nmac \"02:00:00:00:00:21\"\ntrust false\nigbvf\n";
    assert!(taken_back.starts_with(first), "{taken_back}");

    // An interface that is moved.
    let pod = Namespace::new();
    let mut moved = bind.clone();
    moved.as_object_mut().unwrap().remove("driver");
    let given = machine.call_in("ADD", "pod-1", Some(&pod), &moved, None);
    assert!(given.holds, "{given:?}");
    assert_eq!(asked(), "trust true\n");
    pod.run("ip link set net1 address 02:00:00:00:00:66");
    assert!(machine.call_in("DEL", "pod-1", Some(&pod), &moved, None).holds);
    assert_eq!(machine.state(), before);
    assert_eq!(asked(), "mac \"02:00:00:00:00:21\"\ntrust false\n");
}

fn a_driver_that_refuses() {
    let machine = Machine::new();
    let before = machine.state();
    fs::write(machine.vf().join("refuses"), "").unwrap();
    machine.call("ADD", "claim-1", &configuration(json!({})), None).refused(102, "its probe failed");
    assert_eq!(machine.state(), before);
}

/// `trust` is not told either; `vlan` is told as it is without one.
fn an_attribute_that_a_driver_lacks() {
    for (lacks, value) in [(&["trust"], json!("on")), (&["vlan"], json!(7))] {
        for binds in [true, false] {
            let machine = Machine::new();
            machine.host.run("ip link set pf0 address 02:00:00:00:00:10");
            serve_line(&machine, "02:00:00:00:00:10", lacks);
            let before = machine.state();
            let pod = Namespace::new();
            let mut plain = configuration(json!({"spoofchk": "off"}));
            if !binds {
                plain.as_object_mut().unwrap().remove("driver");
            }
            let wanted = with(plain.clone(), json!({ lacks[0]: value }));
            let refused = machine.call_in("ADD", "pod-1", Some(&pod), &wanted, None);
            refused.refused(102, "the driver does not support it");
            assert_eq!(machine.state(), before, "{lacks:?} {binds}");
            // It is the next one's.
            assert!(machine.call_in("ADD", "pod-2", Some(&pod), &plain, None).holds, "{lacks:?} {binds}");
            assert!(machine.call_in("DEL", "pod-2", Some(&pod), &plain, None).holds);
            assert_eq!(machine.state(), before, "{lacks:?} {binds}");
        }
    }
}

fn an_override_of_others() {
    let machine = Machine::new();
    fs::write(machine.vf().join("driver_override"), "igbvf").unwrap();
    let before = machine.state();
    machine.holds("ADD", "claim-1", &configuration(json!({})));
    assert!(machine.state().contains("vfio-pci vfio-pci"));
    assert!(machine.collect(None).holds);
    assert_eq!(machine.state(), before);
}

/// As `free` of a model leaves it, and who exports the model then names its PF.
fn bound_as_wanted_already() {
    let machine = Machine::new();
    machine.host.run("ip link delete vf0");
    fs::remove_dir_all(machine.vf().join("net")).unwrap();
    fs::remove_file(machine.vf().join("driver")).unwrap();
    symlink("../../drivers/vfio-pci", machine.vf().join("driver")).unwrap();
    let before = machine.state();
    let bind = configuration(json!({"deviceID": "", "pf": "0000:01:00.0", "vfs": [0]}));
    let opened = machine.vf().join("opened");
    machine.holds("STATUS", "", &bind);
    // It may be a stopped VM's where nobody has named it.
    let mut any = bind.clone();
    any.as_object_mut().unwrap().remove("vfs");
    machine.call("STATUS", "", &any, None).refused(50, "no VF of 0000:01:00.0 is free");
    machine.call("ADD", "claim-1", &any, None).refused(101, "no VF of 0000:01:00.0 is free");
    assert!(!opened.exists(), "who opens a group for a look keeps its program from it");
    let given = machine.holds("ADD", "claim-1", &bind);
    assert_eq!(given["interfaces"], json!([{"name": "net1", "pciID": VF}]));
    machine.call("ADD", "claim-2", &bind, None).refused(101, "no VF of 0000:01:00.0 is free");
    machine.call("STATUS", "", &bind, None).refused(50, "no VF of 0000:01:00.0 is free");
    machine.holds("DEL", "claim-1", &bind);
    assert_eq!(machine.state(), before);
    fs::remove_file(&opened).unwrap();
    // A program of the host has it; and without `driver` a container would get no interface.
    fs::write(machine.vf().join("holder"), "qemu (process 7)").unwrap();
    machine.call("ADD", "claim-1", &bind, None).refused(101, "no VF of 0000:01:00.0 is free");
    machine.call("STATUS", "", &bind, None).refused(50, "no VF of 0000:01:00.0 is free");
    assert!(!opened.exists(), "somebody is seen to have it");
    fs::write(machine.vf().join("holder"), UNSEEN).unwrap();
    machine.call("ADD", "claim-1", &bind, None).refused(101, "no VF of 0000:01:00.0 is free");
    assert!(opened.exists(), "before it is taken the kernel is asked");
    fs::remove_file(machine.vf().join("holder")).unwrap();
    let mut moved = bind.clone();
    moved.as_object_mut().unwrap().remove("driver");
    machine.call("STATUS", "", &moved, None).refused(50, "no VF of 0000:01:00.0 is free");
    assert_eq!(machine.state(), before);
}

fn another_driver() {
    for besides in ["nothing", "it is set anew", "a program has it", "the PF has no interface"] {
        let machine = Machine::new();
        machine.host.run("ip link set pf0 address 02:00:00:00:00:10");
        serve_line(&machine, "02:00:00:00:00:10", &[]);
        let asked = machine.vf().join("asked");
        let pod = Namespace::new();
        let mut moved = configuration(json!({"trust": "on", "vlan": 7}));
        moved.as_object_mut().unwrap().remove("driver");
        let given = machine.call_in("ADD", "pod-1", Some(&pod), &moved, None);
        assert!(given.holds, "{given:?}");
        // Somebody binds it for a program of theirs.
        pod.run("ip link delete net1");
        fs::remove_dir_all(machine.vf().join("net")).unwrap();
        fs::remove_file(machine.vf().join("driver")).unwrap();
        symlink("../../drivers/vfio-pci", machine.vf().join("driver")).unwrap();
        if besides == "it is set anew" {
            let mut netlink = Netlink::in_namespace_of(machine.host.id).unwrap();
            let pf = netlink.link_named(&"pf0".parse().unwrap()).unwrap().unwrap();
            let root = Root::at(machine.directory.path());
            let mut backend = VfBackend::of(&root, &mut netlink, pf.index).unwrap();
            let vlan = VfAttribute::Vlan {
                id: VlanId::new(9).unwrap(),
                qos: Default::default(),
                protocol: Default::default(),
            };
            backend.set(&[(VfIndex::new(0).unwrap(), vlan)]).unwrap();
        }
        fs::remove_file(&asked).unwrap();
        match besides {
            "a program has it" => fs::write(machine.vf().join("holder"), UNSEEN).unwrap(),
            "the PF has no interface" => drop(machine.host.run("ip link delete pf0")),
            _ => {}
        }
        assert!(machine.call_in("DEL", "pod-1", Some(&pod), &moved, None).holds);
        let state = machine.state();
        assert!(machine.is_bound() && state.contains("records 0"), "{besides}: {state}");
        let said = fs::read_to_string(&asked).unwrap_or_default();
        match besides {
            "nothing" | "it is set anew" => {
                assert!(said.contains("trust false\n") && !said.contains("vfio"), "{said}");
                let is_put_back = besides == "nothing";
                assert_eq!(said.contains("vlan 0\n"), is_put_back, "what was set since is theirs: {said}");
            }
            _ => assert_eq!(said, "", "{besides}"),
        }
    }
}

/// In its own namespace, and in another, where only the interface below shows it.
fn put_upon_it() {
    let machine = Machine::new();
    let before = machine.state();
    let asked = machine.vf().join("asked");
    let mut moved = configuration(json!({}));
    moved.as_object_mut().unwrap().remove("driver");
    let (pod, other) = (Namespace::new(), Namespace::new());
    let given = || {
        let given = machine.call_in("ADD", "pod-1", Some(&pod), &moved, None);
        assert!(given.holds, "{given:?}");
    };
    let taken_back = || {
        assert!(machine.call_in("DEL", "pod-1", Some(&pod), &moved, None).holds);
        assert_eq!(machine.state(), before);
    };
    given();
    pod.run("ip link set net1 promisc on");
    taken_back();
    assert!(!asked.exists(), "it was set by hand, and nothing is upon it");
    // Of a namespace that no process lives in only what is up is seen, by the frames that it wants.
    for (elsewhere, inhabited, up) in [(false, false, false), (true, true, false), (true, false, true)] {
        given();
        let _inhabitant = inhabited.then(|| Inhabitant::of(&other));
        pod.run("ip link add above link net1 type macvlan");
        if elsewhere {
            pod.run(&format!("ip link set above netns {}", other.id));
        }
        if up {
            other.run("ip link set above up");
        }
        taken_back();
        assert_eq!(fs::read_to_string(&asked).unwrap(), "none\nigbvf\n", "{elsewhere} {inhabited}");
        fs::remove_file(&asked).unwrap();
        let left = if elsewhere { &other } else { &pod };
        assert!(!left.run("ip -o link show").contains("above"), "{elsewhere} {inhabited}");
    }
}
