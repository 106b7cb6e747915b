//! Every rule of composition, held against a QEMU that is started and never runs: what the rules let through, it starts with; what
//! they refuse, it refuses, or the rule says why it is stricter.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, time::Duration};

use penstock_board::{Cache, Design, Emulator, Image};
use penstock_model::{
    DataPath, Emulation, Mac, Model, Source, TenantNic, VfIndex, VfSettings,
    composition::{self, Addressing, CompositionError, Device, DeviceKind, tenant},
};
use penstock_testkit::{
    needs::Lack,
    trials::{Failed, Outcome, Trials},
};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.one_at_a_time();
    trials.add(&None, [("each_rule_refuses_what_breaks_it", by_the_rules as fn() -> Outcome)]);
    let missing = trials.lacking("QEMU", || emulator().err().map(Lack::Installable));
    trials.add(&missing, [("the_rules_and_qemu_agree_in_qemu", by_qemu as fn() -> Outcome)]);
    trials.run()
}

/// Devices, and what the rules are to say of them.
struct Case {
    name: String,
    devices: Vec<Device>,
    netdevs: Vec<String>,
    addressing: Addressing,
    /// The rule that refuses it, by the name of its error.
    refused: Option<&'static str>,
}

impl Case {
    fn errors(&self) -> Vec<CompositionError> {
        let netdevs: Vec<&str> = self.netdevs.iter().map(String::as_str).collect();
        composition::check(&self.devices, &netdevs, self.addressing)
    }

    /// QEMU's arguments. What a function's frames go to does not matter: it never runs.
    fn arguments(&self) -> Vec<String> {
        let netdevs =
            self.netdevs.iter().map(|id| ["-netdev".to_owned(), format!("hubport,id={id},hubid=0")]);
        let devices = self.devices.iter().map(|device| ["-device".to_owned(), device.to_string()]);
        netdevs.chain(devices).flatten().collect()
    }
}

fn rule(error: &CompositionError) -> String {
    format!("{error:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
}

/// The NICs of a board, without what it has beside.
fn board(text: &str) -> (Vec<Device>, Vec<String>) {
    let model: Model =
        penstock_model::parse(&Source::new("test.yaml", text)).expect("the test's model is good").model;
    let design = Design::from_model(&model, None).expect("the test's board can be composed");
    let kinds = [DeviceKind::RootPort, DeviceKind::VirtioNet, DeviceKind::Igb];
    let devices = design.devices.into_iter().filter(|device| kinds.contains(&device.kind)).collect();
    (devices, design.netdevs.into_iter().map(|netdev| netdev.id).collect())
}

/// The NICs of a VM, all alike.
fn vm(emulation: Emulation, nics: usize, vfs: u16, queues: u16) -> (Vec<Device>, Vec<String>) {
    let mac = |nic: usize| Mac::new([2, 0, 0, 0, 0, u8::try_from(nic).unwrap()]);
    let vf = |pf, vf| VfSettings {
        mac: Some(Mac::derived(pf, VfIndex::new(vf).unwrap())),
        ..VfSettings::default()
    };
    let all: Vec<TenantNic> = (0..nics)
        .map(|nic| TenantNic {
            emulation,
            mac: mac(nic),
            vfs: (0..vfs).map(|index| vf(mac(nic), index)).collect(),
            path: DataPath::Switch,
            uplink: None,
            uplink_settings: None,
            settings: VfSettings::default(),
            addresses: Vec::new(),
            routes: Vec::new(),
            dhcp: false,
            mtu: None,
            queues,
            workers: 1,
            allow: None,
            vf_allow: BTreeMap::new(),
        })
        .collect();
    let devices = tenant::devices(all.iter(), tenant::alias);
    let netdevs = devices.iter().filter_map(|device| device.netdev.clone()).collect();
    (devices, netdevs)
}

fn device<'a>(devices: &'a mut [Device], id: &str) -> &'a mut Device {
    devices.iter_mut().find(|device| device.id == id).expect("the board has it")
}

fn place<'a>(devices: &'a mut [Device], id: &str) -> &'a mut composition::BusAddress {
    device(devices, id).place.as_mut().expect("it is a PCI device")
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for text in [
        "nics: {A: {vfs: 9}, B: {vfs: 1}}",
        "nics: {A: {vfs: 65}}",
        "nics: {A: {vfs: 255}}",
        "{nics: {A: {vfs: 1}}, board: {iommu: off, emulation: {A: virtio}}}",
    ] {
        let (devices, netdevs) = board(text);
        cases.push(Case {
            name: text.to_owned(),
            devices,
            netdevs,
            addressing: Addressing::Ari,
            refused: None,
        });
    }
    let (igb, virtio) = (Emulation::Igb, Emulation::Virtio);
    for (emulation, nics, vfs, queues, refused) in [
        (virtio, 1, 1, 1, None),
        (virtio, 1, 7, 1, None),
        (virtio, 1, 7, 16, None),
        (virtio, 8, 7, 4, None),
        (virtio, 1, 8, 1, Some("OutsideSlot")),
        (virtio, 9, 1, 1, Some("Chipset")),
        (igb, 8, 0, 1, None),
        (igb, 9, 0, 1, Some("Chipset")),
    ] {
        let (devices, netdevs) = vm(emulation, nics, vfs, queues);
        let name =
            format!("a VM with {nics} {emulation:?} NICs, {vfs} VFs and {queues} pairs of queues each");
        cases.push(Case { name, devices, netdevs, addressing: Addressing::Slot, refused });
    }
    let mut broken = |name: &str, refused, change: &dyn Fn(&mut Vec<Device>, &mut Vec<String>)| {
        let (mut devices, mut netdevs) = board("nics: {A: {vfs: 9}, B: {vfs: 1}}");
        change(&mut devices, &mut netdevs);
        let (name, refused) = (name.to_owned(), Some(refused));
        cases.push(Case { name, devices, netdevs, addressing: Addressing::Ari, refused });
    };
    broken("two devices of one id", "Id", &|d, _| device(d, "A.3").id = "A.4".into());
    broken("a device without an id", "Id", &|d, _| device(d, "B").id.clear());
    broken("two of one address", "DuplicateMac", &|d, _| device(d, "A.3").mac = device(d, "A.4").mac);
    broken("two at one place", "SameFunction", &|d, _| *place(d, "A.3") = place(d, "A.4").clone());
    broken("two root ports of one slot", "SameSlot", &|d, _| {
        device(d, "port1").properties = device(d, "port0").properties.clone();
    });
    broken("one where the south bridge is", "Chipset", &|d, _| {
        *place(d, "management") = composition::BusAddress::new("pcie.0", 0x1f * 8 + 2);
    });
    broken("one on no bus", "NoSuchBus", &|d, _| place(d, "B").bus = "nowhere".into());
    broken("an igb on the root bus", "NotBehindRootPort", &|d, _| {
        *place(d, "B") = composition::BusAddress::new("pcie.0", 0x10 * 8);
    });
    broken("a composed PF on the root bus", "NotBehindRootPort", &|d, _| {
        for device in d.iter_mut().filter(|device| device.id.starts_with('A')) {
            if let Some(place) = &mut device.place {
                place.bus = "pcie.0".into();
                place.function = 0x10 * 8 + place.function.saturating_sub(0x7e);
            }
        }
    });
    broken("a VF of nobody", "MissingPf", &|d, _| device(d, "A.3").pf = Some("C".into()));
    broken("a VF with a VF", "PfIsVf", &|d, _| device(d, "A").pf = Some("B".into()));
    broken("a PF before its VF", "VfAfterPf", &|d, _| {
        let at = |d: &[Device], id: &str| d.iter().position(|device| device.id == id).unwrap();
        let (vf, pf) = (at(d, "A.8"), at(d, "A"));
        d.swap(vf, pf);
    });
    broken("a VF on another bus", "OtherBus", &|d, _| {
        // Ports first, so that the bus is there.
        d.sort_by_key(|device| device.kind != DeviceKind::RootPort);
        place(d, "A.3").bus = "port1".into();
    });
    broken("an igb as a VF", "OtherKind", &|d, _| device(d, "A.3").kind = DeviceKind::Igb);
    broken("a VF of an igb", "OtherKind", &|d, _| device(d, "A.3").pf = Some("B".into()));
    let vectors = |number: &'static str| {
        move |d: &mut Vec<Device>, _: &mut Vec<String>| {
            let properties = &mut device(d, "A.3").properties;
            properties.iter_mut().find(|(name, _)| *name == "vectors").unwrap().1 = number.to_owned();
        }
    };
    broken("a VF with a few more vectors", "UnequalBars", &vectors("9"));
    broken("a VF with a larger table of vectors", "UnequalBars", &vectors("300"));
    broken("VFs that differ in their id", "UnequalBars", &|d, _| {
        device(d, "A.3").properties.push(("disable-legacy", "off".to_owned()));
    });
    broken("a VF below its PF", "BelowPf", &|d, _| place(d, "A").function = 0xff);
    broken("a VF out of step", "Stride", &|d, _| place(d, "A.8").function += 1);
    broken("a VF past the bus", "PastTheBus", &|d, _| place(d, "A.8").function = 256);
    broken("a VF with a ROM", "Rom", &|d, _| device(d, "A.3").rom = true);
    broken("a function without a back end", "Backend", &|d, _| device(d, "A.3").netdev = None);
    broken("two functions of one back end", "Backend", &|d, _| {
        device(d, "A.3").netdev = Some("A.4-port".into())
    });
    broken("a back end of nobody", "Backend", &|_, n| n.push("unused".to_owned()));
    cases
}

fn by_the_rules() -> Outcome {
    for case in cases() {
        let errors = case.errors();
        let holds = match case.refused {
            None => errors.is_empty(),
            Some(name) => errors.iter().any(|error| rule(error) == name),
        };
        if !holds {
            return Err(
                format!("{}: expected {:?}, and the rules say {errors:?}", case.name, case.refused).into()
            );
        }
    }
    Ok(())
}

fn emulator() -> Result<Emulator, String> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let cache = Cache::at(cache.unwrap_or_else(std::env::temp_dir).join("penstock"));
    let image = Image::ensure(&cache, &mut |_| {}).map_err(|error| error.to_string())?;
    Emulator::find(&image).map_err(|error| error.to_string())
}

/// Why QEMU does not start with the devices of `case`; `None` when it does.
fn refusal(emulator: &Emulator, case: &Case) -> Result<Option<String>, Failed> {
    let common = ["-nodefaults", "-no-user-config", "-S", "-display", "none", "-machine", "q35", "-m", "64"];
    let command = emulator.command().args(common).args(["-monitor", "stdio"]).args(case.arguments());
    let output = command.input("quit\n").deadline(Duration::from_secs(120)).run()?;
    Ok((!output.status.success()).then(|| output.errors().trim().to_owned()))
}

fn by_qemu() -> Outcome {
    let emulator = emulator()?;
    let mut wrong = Vec::new();
    for case in cases() {
        let refusal = refusal(&emulator, &case)?;
        match (case.refused, refusal) {
            (None, Some(why)) => {
                wrong.push(format!("{}: QEMU refuses what the rules let through: {why}", case.name))
            }
            (Some(name), None) => {
                let errors = case.errors();
                let error = errors.iter().find(|error| rule(error) == name);
                if error.and_then(CompositionError::stricter).is_none() {
                    wrong.push(format!(
                        "{}: QEMU starts with what {name} refuses, and it does not say why",
                        case.name
                    ));
                }
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}
