//! Domains and networks of libvirt.

use super::*;

#[test]
fn a_domain_of_libvirt() {
    holds(ImportFormat::Libvirt, "libvirt");
}

/// A VM with these interfaces, as little of it as libvirt takes.
fn domain(name: &str, interfaces: &str) -> Source {
    let text =
        format!("<domain><name>{name}</name><memory>524288</memory><devices>{interfaces}</devices></domain>");
    Source::new(format!("{name}.xml"), text)
}

const OF_A_POOL: &str =
    "<interface type='network'><mac address='52:54:00:00:00:0%'/><source network='vfs'/></interface>";
const OF_A_VF: &str = "<interface type='hostdev'><source><address type='pci' bus='1' slot='020' function='%'/></source></interface>";

/// A machine whose first NIC has these VFs.
fn machine_with(vfs: u16) -> Inventory {
    let mut machine = machine();
    machine.pfs[0].sriov.as_mut().unwrap().num_vfs = vfs;
    machine
}

#[test]
fn libvirt_chooses_vfs_of_a_pool_that_no_vm_names() {
    let network = Source::new(
        "vfs.xml",
        "<network connections='1'><name>vfs</name><forward mode='hostdev' managed='yes'><pf dev='enp1s0f0'/></forward><vlan><tag id='9'/></vlan></network>",
    );
    let first = domain("a", &format!("{}{}", OF_A_POOL.replace('%', "1"), OF_A_VF.replace('%', "2")));
    let second = domain("b", &(OF_A_VF.replace('%', "0") + &OF_A_POOL.replace('%', "2")));
    let all = import(&[first, second, network], ImportFormat::Libvirt, Some(&machine_with(4))).unwrap();
    let model = parse(&Source::new("m.yaml", all.model.as_str())).unwrap().model;
    let (name, nic) = model.nics.first().unwrap();
    assert_eq!((name.as_str(), nic.vfs), ("enp1s0f0", 4));
    assert!(all.model.contains("    defaults: {vlan: 9}\n"), "{}", all.model);
    let vfs = |guest: &str| {
        all.model.split(&format!("  {guest}:")).nth(1).unwrap().split("  b:").next().unwrap().to_owned()
    };
    // VFs 1 and 0 are named, in the order of the interfaces.
    assert!(
        vfs("a").contains("#2\", mac: \"52:54:00:00:00:01\"}\n      - {vf: \"enp1s0f0#1\"}"),
        "{}",
        all.model
    );
    assert!(
        vfs("b").contains("#0\"}\n      - {vf: \"enp1s0f0#3\", mac: \"52:54:00:00:00:02\"}"),
        "{}",
        all.model
    );
    assert!(
        all.warnings[0]
            .to_string()
            .contains("any VF of `vfs` is left out: a function of a model is one VF, here enp1s0f0#2")
    );
}

#[test]
fn a_loader_of_libvirt_needs_no_attributes() {
    let os = "</devices><os><loader>/usr/share/seabios/bios.bin</loader><kernel>/boot/vmlinuz</kernel></os><devices>";
    let file = domain("a", &(OF_A_VF.replace('%', "0") + os));
    let all = import(&[file], ImportFormat::Libvirt, Some(&machine())).unwrap();
    assert!(all.model.contains("    boot: {kernel: \"/boot/vmlinuz\"}\n"), "{}", all.model);
    assert!(!all.model.contains("firmware"), "{}", all.model);
}

/// What a VM of libvirt with this in the place of its disks, and this of itself beside them, comes to: the line of what it boots, and what is told.
fn vm(disks: &str, beside: &str) -> (Option<String>, String) {
    let vf = OF_A_VF.replace('%', "0");
    let text = format!(
        "<domain type='kvm'><name>a</name><memory>524288</memory><devices>{vf}{disks}</devices>{beside}</domain>"
    );
    let all = import(&[Source::new("a.xml", text)], ImportFormat::Libvirt, Some(&machine())).unwrap();
    let boot = all.model.lines().find_map(|line| line.strip_prefix("    boot: ")).map(str::to_owned);
    (boot, all.warnings[0].to_string())
}

#[test]
fn a_vm_of_libvirt_boots_the_disk_that_comes_first_and_is_written_to() {
    let disk = |path: &str, more: &str| format!("<disk type='file'><source file='{path}'/>{more}</disk>");
    let order = |order: u8| format!("<boot order='{order}'/>");
    let first = "{disk: \"/1\", format: raw}";
    let other = "a VM of a model has a kernel, or the one disk that it boots from";
    for (disks, boot, told) in [
        (disk("/1", ""), Some(first), &[][..]),
        (disk("/1", "<driver type='raw' cache='none'/><target dev='vda' bus='virtio'/>"), Some(first), &[]),
        (disk("/1", "") + &disk("/2", ""), Some(first), &[other]),
        (disk("/2", &order(2)) + &disk("/1", &order(1)), Some(first), &[other]),
        (disk("/2", "") + &disk("/1", &order(7)), Some(first), &[other]),
        (disk("/2", &(order(1) + "<readonly/>")) + &disk("/1", &order(2)), Some(first), &["`readonly`"]),
        // What the second is for is not known.
        (disk("/1", "<readonly/>") + &disk("/2", ""), None, &["`readonly`", "what the VM boots", other]),
        (disk("/1", "<transient/>"), None, &["`transient`", "what the VM boots"]),
        (disk("/1", "<encryption format='luks'/>"), None, &["it is encrypted"]),
        (
            "<disk type='file'><source file='/1'><encryption format='luks'/></source></disk>".to_owned(),
            None,
            &["it is encrypted"],
        ),
        (disk("/1", "<driver type='vmdk'/>"), None, &["its format is `vmdk`"]),
        (
            "<disk type='network'><source protocol='rbd'/></disk>".to_owned(),
            None,
            &["a file or a block device"],
        ),
        ("<disk type='file'/>".to_owned(), None, &["a file or a block device"]),
        ("<disk type='block'><source dev='/1'/></disk>".to_owned(), Some(first), &[]),
        (
            disk(
                "/1",
                "<driver type='raw' cache='writeback' discard='unmap'/><shareable/><iotune><a>1</a></iotune>",
            ),
            Some(first),
            &["`cache` is left out", "`discard`", "`shareable`", "`iotune`"],
        ),
        (disk("/1", "<target dev='sda' bus='sata' tray='open'/>"), Some(first), &["`bus`", "`tray`"]),
        (
            "<disk type='file'><source file='/1' index='1' startupPolicy='optional'/><backingStore/></disk>"
                .to_owned(),
            Some(first),
            &["`startupPolicy`"],
        ),
        (
            disk("/1", "<backingStore type='file'><source file='/0'/></backingStore>"),
            Some(first),
            &["`backingStore`"],
        ),
    ] {
        let (booted, warned) = vm(&disks, "");
        assert_eq!(booted.as_deref(), boot, "{disks}");
        told.iter().for_each(|words| assert!(warned.contains(words), "{disks}, {words}: {warned}"));
        assert_eq!(warned.is_empty(), told.is_empty(), "{disks}: {warned}");
    }
}

#[test]
fn what_libvirt_says_of_a_machine_and_a_model_cannot_is_told() {
    let disk = "<disk type='file'><source file='/1'/></disk>";
    let os = |more: &str| format!("<os>{more}</os>");
    for (beside, told) in [
        (os("<type arch='x86_64' machine='pc-q35-10.0'>hvm</type><boot dev='hd'/>"), &[][..]),
        (os("<type arch='aarch64' machine='virt'>hvm</type>"), &["`arch` `aarch64`", "`machine` `virt`"]),
        (os("<type arch='x86_64' machine='pc-i440fx-9.2'>linux</type>"), &["`pc-i440fx-9.2`", "`linux`"]),
        (os("<boot dev='network'/><boot dev='hd'/>"), &["`boot` is left out"]),
        (
            os("<bootmenu enable='yes'/><smbios mode='host'/><bios rebootTimeout='0'/>"),
            &["`bootmenu`", "`smbios`", "`bios`"],
        ),
        (os("<bootmenu enable='no'/><smbios mode='emulate'/>"), &[]),
        (
            os("<loader readonly='yes' secure='yes' type='pflash'>/f</loader>"),
            &["the path of `loader`", "`secure`"],
        ),
        (os("<loader type='pflash' stateless='yes'/>"), &["`stateless`"]),
        (os("<nvram template='/t'>/n</nvram>"), &["`nvram` is left out"]),
        (
            os(
                "<firmware><feature enabled='yes' name='secure-boot'/><feature enabled='no' name='enrolled-keys'/></firmware>",
            ),
            &["`secure-boot` of the firmware"],
        ),
        ("<os firmware='efi'><loader readonly='yes' type='pflash'>/f</loader></os>".to_owned(), &[]),
        ("<currentMemory unit='MiB'>512</currentMemory>".to_owned(), &[]),
        ("<currentMemory unit='MiB'>256</currentMemory>".to_owned(), &["`currentMemory` is left out"]),
        ("<vcpu placement='auto'>1</vcpu>".to_owned(), &["`placement`"]),
        ("<resource><partition>/machine</partition></resource>".to_owned(), &[]),
        ("<resource><partition>/slow</partition></resource>".to_owned(), &["`resource`"]),
        ("<seclabel type='none'/>".to_owned(), &["`seclabel`"]),
        (
            "<memoryBacking><hugepages><page size='2' unit='M' nodeset='0'/></hugepages></memoryBacking>"
                .to_owned(),
            &["`nodeset`"],
        ),
    ] {
        let (_, warned) = vm(disk, &beside);
        told.iter().for_each(|words| assert!(warned.contains(words), "{beside}, {words}: {warned}"));
        assert_eq!(warned.is_empty(), told.is_empty(), "{beside}: {warned}");
    }
    for (device, told) in [
        ("<emulator>/usr/bin/qemu-system-x86_64</emulator>", None),
        ("<emulator>/opt/qemu</emulator>", Some("`emulator`")),
        (
            "<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>",
            Some("`channel`"),
        ),
    ] {
        let (_, warned) = vm(&format!("{disk}{device}"), "");
        assert!(told.map_or(warned.is_empty(), |words| warned.contains(words)), "{device}: {warned}");
    }
}

#[test]
fn what_libvirt_says_of_virtual_cpus_is_taken_or_told() {
    let none = "`vcpu` is left out: it is no number of CPUs";
    let placed = "`cpuset` of `vcpu` is left out";
    let later = "`current` of `vcpu` is left out";
    for (vcpu, cpus, told) in [
        ("<vcpu>4</vcpu>", Some(4), &[][..]),
        ("<vcpu placement='static' current='4'> 4\n</vcpu>", Some(4), &[]),
        ("<vcpu>four</vcpu>", None, &[none]),
        ("<vcpu>0</vcpu>", None, &[none]),
        ("<vcpu cpuset='0-3' current='2'>4</vcpu>", Some(4), &[placed, later]),
    ] {
        let file = domain("a", &format!("{}</devices>{vcpu}<devices>", OF_A_VF.replace('%', "0")));
        let all = import(&[file], ImportFormat::Libvirt, Some(&machine())).unwrap();
        let line = cpus.map(|cpus: u32| format!("    cpus: {cpus}\n"));
        assert_eq!(all.model.contains("    cpus: "), line.is_some(), "{vcpu}: {}", all.model);
        assert!(all.model.contains(&line.unwrap_or_default()), "{vcpu}: {}", all.model);
        let warnings: Vec<String> = all.warnings.iter().map(ToString::to_string).collect();
        for words in [none, placed, later] {
            let is = warnings.iter().any(|warning| warning.contains(words));
            assert_eq!(is, told.contains(&words), "{vcpu}, {words}: {warnings:?}");
        }
    }
}

#[test]
fn a_vf_that_two_vms_of_libvirt_share_is_the_first_ones() {
    let files = [domain("a", &OF_A_VF.replace('%', "0")), domain("b", &OF_A_VF.replace('%', "0"))];
    let all = import(&files, ImportFormat::Libvirt, Some(&machine())).unwrap();
    assert!(
        all.model.contains("  a:\n    kind: vm\n    memory: \"512MiB\"\n    inside: none\n"),
        "{}",
        all.model
    );
    assert!(!all.model.contains("  b:"), "{}", all.model);
    assert!(
        all.warnings[1]
            .to_string()
            .contains("VF 0 of `enp1s0f0` is left out of the VM `b`: it is the VM `a`'s already"),
        "{:?}",
        all.warnings
    );
}

#[test]
fn whose_a_vf_of_libvirt_is_cannot_be_told_without_the_machine() {
    let files = [domain("a", &OF_A_VF.replace('%', "0"))];
    let found = import(&files, ImportFormat::Libvirt, None).unwrap_err();
    let text = found[0].to_string();
    assert!(
        text.contains("the VF 0000:01:10.0 is left out: whose VF it is cannot be told without the machine"),
        "{text}"
    );
    assert!(text.contains("nothing here is a NIC with VFs in the words of libvirt"), "{text}");
}

#[test]
fn what_is_none_of_libvirts_files_is_refused() {
    for (text, message) in [
        ("<domainsnapshot/>", "none of libvirt's files that are read"),
        ("<domain><name>a</name></domain>", "nothing here is a NIC with VFs"),
        ("<!DOCTYPE a><domain/>", "a document type is not read"),
        ("<interface type='hostdev'/>", "has the PCI address of its VF in `source`"),
        (&OF_A_VF.replace('%', "9"), "this is no PCI address"),
    ] {
        let found = wrong(text, ImportFormat::Libvirt);
        assert!(found.contains(message), "{text}: {found}");
    }
}
