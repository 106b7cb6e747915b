//! A model that goes to another program's words and comes back is what it was, less what the export says it leaves out.

use std::{collections::BTreeMap, fmt::Write};

use penstock_exchange::{ExportFormat, ExportedFile, ImportFormat, export, import};
use penstock_model::{
    Against, Bdf, Boot, ByteSize, CpuSet, FreeDriver, Guest, GuestKind, Inside, InterfaceAddress,
    InterfaceName, Inventory, LinkState, Mac, Model, Mtu, Source, TxRate, VfIndex, VfKey, VfSettings, VlanId,
    VlanProtocol, VlanQos, Vm, parse,
    yaml::{FlowMapping, flow_list, quoted},
};
use penstock_plan::{VmCpus, nics_on_machine, vm_cpus};
use proptest::{collection::vec, option, prelude::*};

/// PFs of `machine.json`: permanent address and how many VFs each can have.
const PFS: [(&str, u16); 2] = [("0c:c4:7a:9a:61:ea", 7), ("0c:c4:7a:9a:61:eb", 7)];

fn machine() -> Inventory {
    serde_json::from_str(include_str!("machine.json")).unwrap()
}

fn settings() -> impl Strategy<Value = VfSettings> {
    let tag = option::of((0u16..=4094, option::of(0u8..=7), option::of(any::<bool>())));
    let rate = option::of((0u32..200, option::of(0u32..200)));
    let link = option::of(prop::sample::select(vec![LinkState::Auto, LinkState::Enable, LinkState::Disable]));
    (tag, option::of(any::<bool>()), option::of(any::<bool>()), rate, link).prop_map(
        |(tag, spoofchk, trust, rate, link_state)| {
            let (vlan, qos, proto) =
                tag.map_or((None, None, None), |(vlan, qos, proto)| (Some(vlan), qos, proto));
            let tagged = vlan.is_some_and(|vlan| vlan != 0);
            let dot1ad = |on| if on { VlanProtocol::Dot1ad } else { VlanProtocol::Dot1q };
            let (max, min) = rate.map_or((None, None), |(max, min)| (Some(max), min));
            VfSettings {
                vlan: vlan.and_then(VlanId::new),
                qos: qos.filter(|_| tagged).and_then(VlanQos::new),
                vlan_proto: proto.filter(|_| tagged).map(dot1ad),
                spoofchk,
                trust,
                min_tx_rate: min.filter(|min| max.is_none_or(|max| max == 0 || *min <= max)).map(TxRate),
                max_tx_rate: max.map(TxRate),
                link_state,
                ..VfSettings::default()
            }
        },
    )
}

/// Who owns a VF, what it has of its own, and whether that is an address too.
type OwnedVf = (Option<bool>, VfSettings, bool);

#[derive(Clone, Debug)]
struct NicText {
    interface: Option<bool>,
    mtu: Option<u32>,
    addresses: u8,
    defaults: VfSettings,
    free: Option<FreeDriver>,
    vfs: Vec<OwnedVf>,
}

fn nic(most: u16) -> impl Strategy<Value = NicText> {
    let free =
        option::of(prop::sample::select(vec![FreeDriver::Host, FreeDriver::VfioPci, FreeDriver::None]));
    let vf = (option::of(any::<bool>()), settings(), any::<bool>());
    let interface = option::of(any::<bool>());
    (interface, option::of(1280u32..9000), 0u8..3, settings(), free, vec(vf, 0..=usize::from(most))).prop_map(
        |(interface, mtu, addresses, defaults, free, vfs)| NicText {
            interface,
            mtu,
            addresses,
            defaults,
            free,
            vfs,
        },
    )
}

/// What a guest has beside its functions.
#[derive(Clone, Debug)]
struct GuestText {
    cpus: Option<u32>,
    /// The first of the CPUs and how many.
    pin: Option<(u32, u32)>,
    /// In pieces of 2 MiB.
    memory: Option<u32>,
    /// Of a container that it is privileged, of a VM that its memory is of huge pages.
    switch: bool,
    /// What a VM alone has: a line each.
    vm: Vec<&'static str>,
}

/// What a VM boots and with which command line, by what else it is, and how it is looked into: a line or none of each.
const OF_VMS: [&[&str]; 5] = [
    &[
        "",
        "boot: {kernel: \"/boot/vmlinuz & <co>\"}",
        "boot: {kernel: /boot/a, initramfs: /boot/b}\n    command_line: \"quiet a='b' console=ttyS0\"",
        "command_line: quiet",
        "boot: {disk: /srv/a.raw}",
        "boot: {disk: /dev/vg/a, format: qcow2}",
        "boot: {disk: /dev/shm/a}",
    ],
    &["", "firmware: uefi"],
    &["", "emulator: 0-1"],
    &["", "locked_memory: on"],
    &["", "inside: console", "inside: none"],
];

fn guest() -> impl Strategy<Value = GuestText> {
    let pin = option::of((0u32..4, 1u32..4));
    let vm = OF_VMS.map(|lines| prop::sample::select(lines.to_vec())).to_vec();
    (option::of(1u32..4), pin, option::of(64u32..2048), any::<bool>(), vm)
        .prop_map(|(cpus, pin, memory, switch, vm)| GuestText { cpus, pin, memory, switch, vm })
}

impl GuestText {
    /// Its keys, a line each.
    fn lines(&self, kind: &str) -> String {
        let mut out = String::new();
        let mut put = |key: &str, value: Option<String>| {
            value.into_iter().for_each(|value| {
                let _ = writeln!(out, "    {key}: {value}");
            });
        };
        put("cpus", self.cpus.map(|cpus| cpus.to_string()));
        put("pin", self.pin.map(|(first, count)| format!("{first}-{}", first + count - 1)));
        put("memory", self.memory.map(|pieces| format!("{}MiB", 2 * pieces)));
        let (key, value) = if kind == "vm" { ("huge_pages", "2MiB") } else { ("privileged", "on") };
        put(key, self.switch.then(|| value.to_owned()));
        for line in self.vm.iter().filter(|line| kind == "vm" && !line.is_empty()) {
            let _ = writeln!(out, "    {line}");
        }
        out
    }
}

/// A model as a person would write it. Only some of them are good: what a VF has of its own may not go with its NIC's defaults, nor the
/// number of a VM's CPUs with those that it is pinned to.
fn text(nics: &[NicText], guests: &[GuestText; 2]) -> String {
    let mut out = "machine: node-1\nnics:\n".to_owned();
    let mut owned = [String::new(), String::new()];
    for (number, (nic, (mac, _))) in nics.iter().zip(PFS).enumerate() {
        let mut entry = FlowMapping::default();
        entry.put("match", format!("{{mac: \"{mac}\"}}"));
        entry.put("vfs", nic.vfs.len());
        entry.maybe(
            "interface",
            nic.interface.map(|now| match now {
                true => format!("enp1s0f{number}"),
                false => format!("other{number}"),
            }),
        );
        entry.maybe("mtu", nic.mtu);
        let addresses = (0..nic.addresses).map(|last| quoted(&format!("192.0.{number}.{}/24", last + 1)));
        entry.put("addresses", flow_list(addresses));
        entry.put("defaults", FlowMapping::from(&nic.defaults).line());
        entry.maybe("free", nic.free.map(|driver| format!("{{driver: {}}}", driver.name())));
        let _ = writeln!(out, "  NET{number}: {}", entry.line());
        for (index, (owner, own, has_mac)) in nic.vfs.iter().enumerate() {
            let Some(is_vm) = owner else { continue };
            let mut function = FlowMapping::default();
            function.put("vf", quoted(&format!("NET{number}#{index}")));
            let mac = Mac::new([2, 0, 0, 0, number as u8, index as u8]);
            let own = VfSettings { mac: has_mac.then_some(mac), ..own.clone() };
            function.append(FlowMapping::from(&own));
            let _ = writeln!(owned[usize::from(*is_vm)], "      - {}", function.line());
        }
    }
    out.push_str("guests:\n");
    let kinds = owned.iter().zip(["container", "vm"]).zip(guests);
    for ((functions, kind), guest) in kinds.filter(|((functions, _), _)| !functions.is_empty()) {
        let lines = guest.lines(kind);
        let _ = write!(out, "  a-{kind}:\n    kind: {kind}\n{lines}    functions:\n{functions}");
    }
    out
}

fn models() -> impl Strategy<Value = (String, Model)> {
    let guests = [guest(), guest()];
    (nic(PFS[0].1), nic(PFS[1].1), guests).prop_filter_map("a good model", |(first, second, guests)| {
        let text = text(&[first, second], &guests);
        let model = parse(&Source::new("model.yaml", text.as_str())).ok()?.model;
        Some((text, model))
    })
}

/// What a model says of a PF and its VFs.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    vfs: u16,
    mtu: Option<Mtu>,
    addresses: Vec<InterfaceAddress>,
    /// The one that it has, where the model says nothing.
    interface: InterfaceName,
    free: Option<FreeDriver>,
    settings: BTreeMap<VfIndex, VfSettings>,
}

/// By the addresses of the PFs.
fn said(model: &Model, machine: &Inventory) -> BTreeMap<Bdf, Said> {
    let nics = nics_on_machine(model, machine).unwrap();
    nics.into_iter()
        .map(|nic| {
            let has = nic.pf.interface.as_ref().unwrap().name.clone();
            let said = Said {
                vfs: nic.nic.vfs,
                mtu: nic.nic.mtu,
                addresses: nic.nic.addresses.clone(),
                interface: nic.nic.interface.clone().unwrap_or(has),
                free: nic.nic.free_driver,
                settings: nic.vfs.iter().map(|vf| (vf.index, vf.settings.clone())).collect(),
            };
            (nic.pf.bdf, said)
        })
        .collect()
}

/// Whether a PF gets another name than it has.
fn is_renamed(all: &BTreeMap<Bdf, Said>, machine: &Inventory) -> bool {
    all.iter().any(|(bdf, said)| said.interface != machine.pf(*bdf).unwrap().interface.as_ref().unwrap().name)
}

/// The same less what this sentence names: `NET0: `qos` of VF 0-2, 4: why`, or `NET0: `mtu`: why`.
fn leave_out(all: &mut BTreeMap<Bdf, Said>, sentence: &str, model: &Model, machine: &Inventory) {
    let Some((name, rest)) = sentence.split_once(": ").filter(|(name, _)| model.nics.contains_key(*name))
    else {
        return;
    };
    let mac = model.nics[name].matching.mac;
    let pf = machine.pfs.iter().find(|pf| pf.permanent_mac == mac).unwrap();
    let said = all.get_mut(&pf.bdf).unwrap();
    let (keys, vfs) = match rest.split_once(" of VF ") {
        Some((keys, vfs)) => (keys, Some(vfs.split_once(": ").unwrap().0)),
        None => (rest.split_once(": ").unwrap_or((rest, "")).0, None),
    };
    let keys: Vec<&str> =
        keys.split('`').skip(1).step_by(2).map(|key| key.split(':').next().unwrap()).collect();
    assert!(!keys.is_empty(), "{sentence}");
    let Some(vfs) = vfs else {
        for key in keys {
            match key {
                "interface" => said.interface = pf.interface.as_ref().unwrap().name.clone(),
                "free" => said.free = None,
                other => panic!("{other}: {sentence}"),
            }
        }
        return;
    };
    for range in vfs.split(", ") {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        for index in first.parse().unwrap()..=last.parse().unwrap() {
            let index = VfIndex::new(index).unwrap();
            let settings = said.settings.get_mut(&index).unwrap();
            for key in &keys {
                settings.clear(VfKey::named(key).unwrap());
            }
            // A VF whose address nobody says gets this one.
            settings.mac = settings.mac.or_else(|| Some(Mac::derived(pf.permanent_mac.unwrap(), index)));
        }
    }
}

/// An instance of Incus that has a profile, in the words in which Incus prints it. A profile leaves it to who makes the instance whether it is a VM.
fn instance(profile: &ExportedFile) -> String {
    let name =
        profile.name.strip_prefix("penstock-").and_then(|name| name.strip_suffix(".profile.yaml")).unwrap();
    let kind = if name == "a-vm" { "virtual-machine" } else { "container" };
    format!("name: {name}\ntype: {kind}\n{}", profile.text)
}

/// What of a file that `export` has written a model cannot say: of this alone does the import warn.
fn is_expected(to: ExportFormat, warning: &str) -> bool {
    let of_no_model =
        |keys: &[&str]| keys.iter().any(|key| warning.starts_with(&format!("`{key}` is left out: ")));
    match to {
        ExportFormat::Incus => warning.starts_with("which VF each guest has is not in these files"),
        // What a file for the program has to say beside the model's words.
        ExportFormat::Netplan => of_no_model(&["optional", "link-local"]),
        ExportFormat::Networkd => of_no_model(&["NamePolicy", "AlternativeNamesPolicy", "MACAddressPolicy"]),
        ExportFormat::SriovOperator => {
            // It finds a PF by the name that the model gives it.
            let renamed = "which PF this is was not found: no PF of the machine is called other";
            of_no_model(&["resourceName"])
                || warning.starts_with("that some VFs are in no policy is left out")
                || warning.starts_with(renamed)
        }
        // Of the builtin guest, which is told as left out.
        ExportFormat::Libvirt => warning.starts_with("what the VM boots is left out"),
        ExportFormat::Cni | ExportFormat::Nmstate => false,
    }
}

/// The model that comes back. `None` where the model has nothing for the program.
fn back(
    model: &Model,
    machine: &Inventory,
    to: ExportFormat,
    from: ImportFormat,
) -> Option<(Vec<String>, Model)> {
    let exported = export(model, machine, to).unwrap();
    let source = |file: &ExportedFile| match to {
        ExportFormat::Incus => Source::new(file.name.as_str(), instance(file)),
        _ => Source::new(file.name.as_str(), file.text.as_str()),
    };
    let sources: Vec<Source> = exported.files.iter().map(source).collect();
    if sources.is_empty() {
        return None;
    }
    let imported = import(&sources, from, Some(machine))
        .unwrap_or_else(|wrong| panic!("{wrong:?}\n{}", sources[0].text));
    let warnings = imported.warnings.iter().flat_map(|of_file| &of_file.0).map(|warning| &warning.message);
    let warnings: Vec<&String> = warnings.filter(|warning| !is_expected(to, warning)).collect();
    assert!(warnings.is_empty(), "{warnings:?}\n{}", sources[0].text);
    let model = parse(&Source::new("model.yaml", imported.model.as_str())).unwrap().model;
    Some((exported.left_out, model))
}

fn comes_back(model: &Model, to: ExportFormat, from: ImportFormat) {
    let machine = machine();
    let (left_out, imported) = back(model, &machine, to, from).unwrap();
    let mut wanted = said(model, &machine);
    for sentence in &left_out {
        leave_out(&mut wanted, sentence, model, &machine);
    }
    assert_eq!(said(&imported, &machine), wanted, "{left_out:?}");
}

/// What a guest may have of CPUs and memory, and whether its root is the host's.
type Limits = (GuestKind, Option<u32>, Option<CpuSet>, Option<ByteSize>, Option<ByteSize>, bool);

/// Of each guest by its name.
fn limits(model: &Model) -> BTreeMap<&str, Limits> {
    let of = |guest: &Guest| {
        // How many CPUs beside which ones is told as left out.
        let cpus = guest.cpus.filter(|_| guest.pin.is_none());
        let memory = match guest.kind {
            GuestKind::Vm => Some(ByteSize(guest.vm_memory())),
            GuestKind::Container => guest.memory,
        };
        (guest.kind, cpus, guest.pin.clone(), memory, guest.vm.huge_pages, guest.privileged)
    };
    model.guests.iter().map(|(name, guest)| (name.as_str(), of(guest))).collect()
}

/// What a domain says of a VM beside its functions.
#[derive(Debug, PartialEq)]
struct DomainSaid {
    memory: u64,
    vcpus: Option<u32>,
    pin: Option<CpuSet>,
    vm: Vm,
}

/// Of each VM by its name, as it comes to this on the machine.
fn domains_of(model: &Model, machine: &Inventory) -> BTreeMap<String, DomainSaid> {
    let vms = model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm);
    let said = vms.map(|(name, guest)| {
        let VmCpus { vcpus, pin, emulator, .. } = vm_cpus(model, machine, name, guest);
        let inside = match guest.vm.inside {
            Inside::Console => Inside::None,
            inside => inside,
        };
        // The builtin guest's is Penstock's. These two are told as left out.
        let command_line = guest.vm.command_line.clone().filter(|_| guest.vm.boot != Boot::Builtin);
        let vm = Vm { emulator, inside, command_line, ..guest.vm.clone() };
        (name.to_string(), DomainSaid { memory: guest.vm_memory(), vcpus: Some(vcpus), pin, vm })
    });
    said.collect()
}

/// Of each VM by its name, as the model says it.
fn vms_said(model: &Model) -> BTreeMap<String, DomainSaid> {
    let vms = model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm);
    let said = vms.map(|(name, guest)| {
        let Guest { cpus, pin, vm, .. } = guest.clone();
        (name.to_string(), DomainSaid { memory: guest.vm_memory(), vcpus: cpus, pin, vm })
    });
    said.collect()
}

/// Files of all programs, and pieces that stand where they do not belong.
const FOREIGN: [&str; 7] = [
    include_str!("foreign/cni.conflist"),
    include_str!("foreign/incus.yaml"),
    include_str!("foreign/libvirt.xml"),
    include_str!("foreign/networkd.link"),
    include_str!("foreign/netplan.yaml"),
    include_str!("foreign/nmstate.yaml"),
    include_str!("foreign/sriov-operator.yaml"),
];
const PIECES: [&str; 25] = [
    "<",
    "/>",
    "</",
    "&#0;",
    "<pf dev='enp1s0f1'/>",
    "",
    ": ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "'",
    "\"",
    "\n",
    "\n---\n",
    "~",
    "&a ",
    "*a",
    "#0-3",
    "99999",
    "-1",
    "v7",
    "\u{202e}",
    "\u{1b}[2J",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The model is good, and messages are inside the file.
    #[test]
    fn whatever_is_done_to_a_file_it_is_a_good_model_or_messages(
        file in prop::sample::select(FOREIGN.to_vec()),
        edits in vec((any::<prop::sample::Index>(), 0usize..12, prop::sample::select(PIECES.to_vec())), 1..5),
    ) {
        let mut text: Vec<char> = file.chars().collect();
        for (at, length, piece) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            text.splice(at..end, piece.chars());
        }
        let source = Source::new("foreign.yaml", text.into_iter().collect::<String>());
        for format in ImportFormat::ALL {
            let messages = match import(std::slice::from_ref(&source), format, Some(&machine())) {
                Ok(imported) => {
                    let model = parse(&Source::new("model.yaml", imported.model.as_str()));
                    prop_assert!(model.is_ok(), "{}", imported.model);
                    imported.warnings
                }
                Err(messages) => {
                    prop_assert!(messages[0].has_errors());
                    messages
                }
            };
            let lines = source.text.lines().count() + 1;
            for message in messages[0].located(&source, Against::Import) {
                prop_assert!(message.line <= lines, "{:?}", message);
            }
        }
    }

    #[test]
    fn what_goes_to_nmstate_comes_back((_text, model) in models()) {
        comes_back(&model, ExportFormat::Nmstate, ImportFormat::Nmstate);
    }

    #[test]
    fn what_goes_to_systemd_comes_back((_text, model) in models()) {
        comes_back(&model, ExportFormat::Networkd, ImportFormat::Networkd);
    }

    #[test]
    fn what_goes_to_netplan_comes_back((_text, model) in models()) {
        comes_back(&model, ExportFormat::Netplan, ImportFormat::Netplan);
    }

    /// Of VMs all but how their console is read; of their VFs address and VLAN. Of those that nobody owns: which they are, and their VLAN where it
    /// is one.
    #[test]
    fn what_goes_to_libvirt_comes_back((_text, model) in models()) {
        let machine = machine();
        let nics = nics_on_machine(&model, &machine).unwrap();
        let free = nics.iter().flat_map(|nic| {
            let free: Vec<_> = nic.vfs.iter().filter(|vf| vf.owner.is_none()).collect();
            let vlan = free.first().and_then(|vf| vf.settings.vlan);
            let vlan = vlan.filter(|_| free.iter().all(|vf| vf.settings.vlan == vlan));
            free.into_iter().map(move |vf| (nic.pf.bdf, vf.index, vlan)).collect::<Vec<_>>()
        });
        let free: Vec<(Bdf, VfIndex, Option<VlanId>)> = free.collect();
        let of_vms = nics.iter().flat_map(|nic| {
            let of_vm = nic.vfs.iter().filter(|vf| vf.owner.is_some_and(|owner| owner.as_str() == "a-vm"));
            of_vm.map(|vf| (nic.pf.bdf, vf.index, vf.settings.mac, vf.settings.vlan))
        });
        let of_vms: Vec<_> = of_vms.collect();
        let Some((_, imported)) = back(&model, &machine, ExportFormat::Libvirt, ImportFormat::Libvirt) else {
            prop_assert!(of_vms.is_empty() && free.is_empty());
            return Ok(());
        };
        prop_assert_eq!(vms_said(&imported), domains_of(&model, &machine));
        let imported = said(&imported, &machine);
        for (pf, index, vlan) in free {
            prop_assert_eq!(imported[&pf].settings[&index].vlan, vlan);
        }
        for (pf, index, mac, vlan) in of_vms {
            let settings = &imported[&pf].settings[&index];
            prop_assert_eq!((settings.mac, settings.vlan), (mac, vlan));
        }
    }

    /// Of guests CPUs, memory and privileges; of their VFs address, VLAN and spoof check. Which VFs they are is chosen anew.
    #[test]
    fn what_goes_to_incus_comes_back((_text, model) in models()) {
        let machine = machine();
        // Incus finds a PF by the name that the model gives it.
        if is_renamed(&said(&model, &machine), &machine) {
            return Ok(());
        }
        let of_guests = |model: &Model| {
            let nics = nics_on_machine(model, &machine).unwrap();
            // Where the model says nothing of the spoof check, Incus turns it off, which `export` tells.
            let mut all: Vec<_> = nics
                .iter()
                .flat_map(|nic| nic.vfs.iter().filter(|vf| vf.owner.is_some()).map(move |vf| (nic.pf.bdf, &vf.settings)))
                .map(|(pf, settings)| {
                    let spoofchk = settings.spoofchk.or(Some(false));
                    (pf, settings.mac, settings.vlan.filter(|vlan| vlan.get() != 0), spoofchk)
                })
                .collect();
            all.sort();
            all
        };
        let wanted = of_guests(&model);
        let Some((_, imported)) = back(&model, &machine, ExportFormat::Incus, ImportFormat::Incus) else {
            prop_assert!(wanted.is_empty());
            return Ok(());
        };
        prop_assert_eq!(of_guests(&imported), wanted);
        prop_assert_eq!(limits(&imported), limits(&model));
    }

    /// Of the VFs of NICs with free ones: how far they go, and their driver.
    #[test]
    fn what_goes_to_cni_comes_back((_text, model) in models()) {
        let machine = machine();
        let nics = nics_on_machine(&model, &machine).unwrap();
        let last = nics.iter().filter(|nic| nic.nic.free_driver != Some(FreeDriver::None)).filter_map(|nic| {
            let last = nic.vfs.iter().filter(|vf| vf.owner.is_none()).map(|vf| vf.index.get()).max()?;
            Some((nic.pf.bdf, (last + 1, nic.nic.free_driver.filter(|driver| *driver == FreeDriver::VfioPci))))
        });
        let wanted: BTreeMap<Bdf, (u16, Option<FreeDriver>)> = last.collect();
        let Some((_, imported)) = back(&model, &machine, ExportFormat::Cni, ImportFormat::Cni) else {
            prop_assert!(wanted.is_empty());
            return Ok(());
        };
        let back = said(&imported, &machine).into_iter().map(|(bdf, back)| (bdf, (back.vfs, back.free)));
        prop_assert_eq!(back.collect::<BTreeMap<_, _>>(), wanted);
    }

    /// Of the VFs of NICs with free ones: their number, MTU and driver.
    #[test]
    fn what_goes_to_the_sriov_network_operator_comes_back((_text, model) in models()) {
        let machine = machine();
        let wanted = said(&model, &machine);
        let free = |bdf: &Bdf| {
            let nics = nics_on_machine(&model, &machine).unwrap();
            let nic = nics.iter().find(|nic| nic.pf.bdf == *bdf).unwrap();
            nic.vfs.iter().any(|vf| vf.owner.is_none()) && nic.nic.free_driver != Some(FreeDriver::None)
        };
        let wanted: BTreeMap<Bdf, Said> = wanted.into_iter().filter(|(bdf, _)| free(bdf)).collect();
        let Some((_, imported)) = back(&model, &machine, ExportFormat::SriovOperator, ImportFormat::SriovOperator) else {
            prop_assert!(wanted.is_empty());
            return Ok(());
        };
        prop_assert_eq!(&imported.machine, &model.machine);
        // The operator finds a PF by the name that the model gives it.
        if is_renamed(&wanted, &machine) {
            return Ok(());
        }
        let imported = said(&imported, &machine);
        prop_assert_eq!(imported.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
        for (bdf, wanted) in &wanted {
            let back = &imported[bdf];
            let driver = wanted.free.or(Some(FreeDriver::Host));
            prop_assert_eq!((back.vfs, back.mtu, back.free), (wanted.vfs, wanted.mtu, driver));
        }
    }
}
