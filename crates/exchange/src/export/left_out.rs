//! What a format has no word for.

use penstock_model::{
    Boot, Firmware, Function, Guest, GuestKind, GuestName, Inside, Measure, Model, NicName, READY_WITHIN,
    Root, VfIndex, VfKey, Vm,
};
use penstock_plan::{NicOnMachine, VfOnMachine, vf_ranges};

use super::ExportFormat;

/// Collects what is left out, and says it in few sentences.
pub struct Omissions {
    format: ExportFormat,
    of_nics: Vec<(NicName, String)>,
    /// Of each NIC and key the VFs that have it.
    of_vfs: Vec<(NicName, VfKey, Vec<VfIndex>)>,
    /// Sentences about guests.
    of_guests: Vec<String>,
    /// Keys of the model.
    of_model: Vec<String>,
}

impl Omissions {
    pub fn new(format: ExportFormat) -> Omissions {
        Omissions {
            format,
            of_nics: Vec::new(),
            of_vfs: Vec::new(),
            of_guests: Vec::new(),
            of_model: Vec::new(),
        }
    }

    /// Something of a NIC, with why.
    pub fn nic(&mut self, name: &NicName, why: impl Into<String>) {
        self.of_nics.push((name.clone(), why.into()));
    }

    /// A key of a NIC that the program has no word for.
    pub fn nic_key(&mut self, name: &NicName, key: &str) {
        self.nic(name, format!("`{key}`: {} has no word for it", self.format.program()));
    }

    /// All that a model says of a PF itself: of a program that sets nothing of PFs.
    pub fn pf_keys(&mut self, nic: &NicOnMachine<'_>) {
        let of = nic.nic;
        let said = [
            ("interface", of.interface.is_some()),
            ("mtu", of.mtu.is_some()),
            ("addresses", !of.addresses.is_empty()),
        ];
        said.into_iter().filter(|(_, said)| *said).for_each(|(key, _)| self.nic_key(nic.name, key));
    }

    /// All that a NIC's VFs are to have and `carries` does not say of a key.
    pub fn vf_keys(&mut self, nic: &NicOnMachine<'_>, carries: impl Fn(VfKey) -> bool) {
        self.vf_keys_of(nic, &nic.vfs.iter().collect::<Vec<_>>(), carries);
    }

    /// The same of some of its VFs.
    pub fn vf_keys_of(
        &mut self,
        nic: &NicOnMachine<'_>,
        vfs: &[&VfOnMachine<'_>],
        carries: impl Fn(VfKey) -> bool,
    ) {
        for key in VfKey::ALL.iter().filter(|key| !carries(**key)) {
            let asked = vfs.iter().filter(|vf| vf.settings.get(*key).is_some());
            let vfs: Vec<VfIndex> = asked.map(|vf| vf.index).collect();
            if !vfs.is_empty() {
                self.of_vfs.push((nic.name.clone(), *key, vfs));
            }
        }
    }

    /// That VFs are to have no VLAN, for a program whose words are for VLANs alone.
    pub fn no_vlan(&mut self, nic: &NicOnMachine<'_>, vfs: &[&VfOnMachine<'_>]) {
        let none = vfs.iter().filter(|vf| vf.settings.vlan.is_some_and(|vlan| vlan.get() == 0));
        let none: Vec<VfIndex> = none.map(|vf| vf.index).collect();
        if !none.is_empty() {
            let (vfs, program) = (ranges(&none).join(", "), self.format.program());
            self.nic(
                nic.name,
                format!("`vlan: 0` of VF {vfs}: {program} has a word for VLANs alone, and none for no VLAN"),
            );
        }
    }

    /// What a guest's function has inside the guest, and `carries` does not say of a key; whose words have none for it.
    pub fn function_keys(
        &mut self,
        nic: &NicOnMachine<'_>,
        function: &Function,
        whose: &str,
        carries: impl Fn(&str) -> bool,
    ) {
        let Function { name, interface, .. } = function;
        // What it is called where the model does not say.
        let number = interface.as_str().strip_prefix("eth");
        let is_named = number.is_none_or(|number| number.parse::<u32>().is_err());
        for (key, said) in [
            ("interface", is_named),
            ("addresses", !function.addresses.is_empty() || function.dhcp),
            ("routes", !function.routes.is_empty()),
            ("mtu", function.mtu.is_some()),
            ("egress_rate", function.egress_rate.is_some()),
            ("ingress_rate", function.ingress_rate.is_some()),
        ] {
            if said && !carries(key) {
                self.nic(nic.name, format!("`{key}` of {name} inside its guest: {whose} has no word for it"));
            }
        }
        if function.best_effort != nic.nic.best_effort {
            self.nic(nic.name, format!("`best_effort` of {name}: {whose} has no word for it"));
        }
    }

    /// Something of a guest, with why.
    pub fn guest(&mut self, sentence: String) {
        self.of_guests.push(sentence);
    }

    /// What a guest has beside its functions, and `carries` does not say of a key; `why` its file does not.
    pub fn guest_keys(&mut self, name: &GuestName, guest: &Guest, why: &str, carries: impl Fn(&str) -> bool) {
        let Guest {
            kind,
            cpus,
            memory,
            pin,
            exclusive,
            realtime,
            functions: _,
            drives,
            nics,
            dns,
            after,
            root,
            init,
            privileged,
            devices,
            vm,
            generate,
        } = guest;
        let Vm { boot, command_line, firmware, emulator, locked_memory, huge_pages, inside, ready_within } =
            vm;
        let is_vm = *kind == GuestKind::Vm;
        let said = [
            ("kind", is_vm),
            ("cpus", cpus.is_some()),
            ("memory", memory.is_some()),
            ("pin", pin.is_some()),
            ("exclusive", *exclusive),
            ("realtime", realtime.is_some()),
            ("drives", !drives.is_empty()),
            ("nics", !nics.is_empty()),
            ("dns", dns.is_some()),
            ("after", !after.is_empty()),
            ("root", *root != Root::default()),
            ("init", !init.is_empty()),
            ("privileged", *privileged),
            ("devices", !devices.is_empty()),
            ("boot", is_vm && *boot != Boot::default()),
            ("command_line", is_vm && command_line.is_some()),
            ("firmware", is_vm && *firmware != Firmware::default()),
            ("emulator", is_vm && emulator.is_some()),
            ("locked_memory", is_vm && *locked_memory),
            ("huge_pages", is_vm && huge_pages.is_some()),
            ("inside", is_vm && *inside != Inside::default()),
            ("ready_within", is_vm && *ready_within != READY_WITHIN),
            ("generate", !generate.is_empty()),
        ];
        let left = said.into_iter().filter(|(key, said)| *said && !carries(key));
        let left: Vec<String> = left.map(|(key, _)| format!("`{key}`")).collect();
        if !left.is_empty() {
            self.guest(format!("{} of {name}: {why}", left.join(", ")));
        }
    }

    /// Guests that a program of VMs has no word for.
    fn containers(&mut self, model: &Model) {
        let containers = model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Container);
        let names: Vec<String> = containers.map(|(name, _)| name.to_string()).collect();
        match &names[..] {
            [] => {}
            [name] => self.guest(format!("`guests`: {name} gets no domain, since it is a container")),
            all => {
                self.guest(format!("`guests`: {} get no domain, since they are containers", all.join(", ")))
            }
        }
    }

    /// What of the model is no NIC's.
    pub fn rest_of(&mut self, model: &Model) {
        match self.format {
            _ if model.guests.is_empty() => {}
            // It has told of each guest.
            ExportFormat::Incus => {}
            ExportFormat::Libvirt => self.containers(model),
            _ => self.of_model.push("`guests`, and who owns which function".to_owned()),
        }
        // `board` is a rehearsal's alone, and nothing that a machine is to have.
        let Model {
            machine: _,
            nics,
            drives,
            guests: _,
            realtime,
            measure,
            expect,
            expect_latency,
            board: _,
        } = model;
        let has_loopback = nics.values().any(|nic| nic.loopback.is_some());
        // What gives VFs away leaves it as it is; the rest have no word for it, but for netplan.
        let has_mode = nics.values().any(|nic| nic.eswitch.is_some());
        let keeps_mode = self.format.gives_free_vfs() || self.format == ExportFormat::Netplan;
        for (key, said) in [
            ("loopback", has_loopback && !self.format.gives_free_vfs()),
            ("eswitch", has_mode && !keeps_mode),
            ("drives", !drives.is_empty()),
            ("realtime", realtime.is_some()),
            ("measure", *measure != Measure::default()),
            ("expect", !expect.is_empty() || !expect_latency.is_empty()),
        ] {
            if said {
                self.of_model.push(format!("`{key}`"));
            }
        }
    }

    /// One sentence each.
    pub fn sentences(self) -> Vec<String> {
        let program = self.format.program();
        let of_nics = self.of_nics.into_iter().map(|(name, why)| format!("{name}: {why}"));
        let of_vfs = self.of_vfs.into_iter().map(|(name, key, vfs)| {
            let vfs = ranges(&vfs).join(", ");
            format!("{name}: `{}` of VF {vfs}: {program} has no word for it", key.name())
        });
        let of_model = self.of_model.into_iter().map(|what| format!("{what}: {program} has no word for it"));
        of_nics.chain(of_vfs).chain(self.of_guests).chain(of_model).collect()
    }
}

/// Indices in ascending order as ranges: `0-2`, `5`.
pub fn ranges(indices: &[VfIndex]) -> Vec<String> {
    let range = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    vf_ranges(indices).into_iter().map(range).collect()
}
