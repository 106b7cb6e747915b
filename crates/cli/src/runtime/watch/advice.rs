//! What puts right what has drifted. `penstock apply` leaves guests alone that run, and NICs that somebody else manages; where it
//! would do nothing, or refuse, something else is advised. Pure.

use std::{collections::BTreeSet, fmt::Display};

use penstock_model::{
    FunctionName, FunctionOwners, GuestName, Model, NicName, Verdict,
    verdict::{Subject, Vantage},
};

/// What puts one attribute right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `penstock apply`, and nothing else.
    Apply,
    /// `penstock apply --persist`, and a reboot.
    Persist,
    /// `penstock stop` of these guests, then `penstock apply`: what is wrong is inside them, or in use by them.
    Restart(BTreeSet<GuestName>),
    /// That, of a model without these guests, which Incus runs: `penstock apply` would make second ones.
    Without(BTreeSet<GuestName>, Box<Advice>),
    /// Nothing that Penstock does; what else, in words.
    Elsewhere(String),
}

/// Attributes of a guest that it has from its start and keeps. The others are changed while it runs.
const FROM_THE_START: [&str; 11] = [
    "cpus",
    "memory",
    "pin",
    "devices",
    "privileged",
    "confinement",
    "emulator",
    "locked_memory",
    "huge_pages",
    "threads",
    "dns",
];

/// What is known beside the attribute that has drifted.
pub struct Known<'a> {
    pub model: &'a Model,
    /// Who has which function of it.
    pub owners: &'a FunctionOwners<'a>,
    /// The guests that Incus runs: `penstock apply` would make second ones.
    pub of_incus: &'a BTreeSet<GuestName>,
    /// The guests that run now, and those of which nobody knows: a stop does those no harm that do not run.
    pub running: &'a BTreeSet<GuestName>,
    /// Whether the PF of a NIC has its interface up, as far as that was seen.
    pub is_up: &'a dyn Fn(&NicName) -> bool,
    /// Whether the PF of a NIC has its link.
    pub is_linked: &'a dyn Fn(&NicName) -> bool,
}

impl Known<'_> {
    /// What puts this attribute right.
    pub fn advice(&self, verdict: &Verdict) -> Advice {
        if let Some(guest) = self.owner_in_incus(&verdict.subject) {
            return Advice::Elsewhere(format!(
                "Incus runs {guest}, so that penstock changes nothing of it: `incus restart {guest}` has Incus set up its functions anew"
            ));
        }
        match self.by_penstock(verdict) {
            elsewhere @ Advice::Elsewhere(_) => elsewhere,
            found if self.of_incus.is_empty() => found,
            found => Advice::Without(self.of_incus.clone(), Box::new(found)),
        }
    }

    /// What puts this attribute right where Penstock runs all of the model's guests.
    fn by_penstock(&self, verdict: &Verdict) -> Advice {
        let attribute = verdict.attribute.as_str();
        match &verdict.subject {
            Subject::Guest(guest) => match attribute {
                "running" => Advice::Apply,
                // A partition of other CPUs is not changed under its guest.
                "partition" if !verdict.seen.starts_with("no partition") => self.restart([guest.clone()]),
                "dns" if !self.model.guests[guest].starts_with_dns() => Advice::Elsewhere(format!(
                    "{guest} boots a system of its own, which sets up its name servers by itself: correct them inside (the files of `generate` say \
                     what the model wants)"
                )),
                _ if FROM_THE_START.contains(&attribute) => self.restart([guest.clone()]),
                _ => Advice::Apply,
            },
            // A switch is told when it is started, and its VM with it.
            Subject::Tenant(function) => self.restart([function.guest.clone()]),
            Subject::Drive(_) if attribute == "match" => {
                Advice::Elsewhere("see `penstock scan` for the drives that are there".to_owned())
            }
            Subject::Drive(_) | Subject::DriveVf(_) => Advice::Apply,
            Subject::Nic(nic) => self.of_nic(nic, attribute),
            Subject::Function(function) => self.of_function(function, verdict),
            Subject::Machine if attribute == "kernel argument" => Advice::Persist,
            Subject::Machine => Advice::Apply,
            Subject::Path { .. } => {
                Advice::Elsewhere("see what else `penstock verify` says of both ends".to_owned())
            }
        }
    }

    fn of_nic(&self, nic: &NicName, attribute: &str) -> Advice {
        if attribute == "match" {
            return Advice::Elsewhere(format!(
                "no command brings the PF of {nic} back: see whether the card is there (lspci), whether its driver is bound, and what the model's `match` says"
            ));
        }
        if let Some(managed) = self.managed_elsewhere(nic) {
            return managed;
        }
        match attribute {
            // The number of VFs is not changed under guests that run with some, and VFs made anew do not come into them.
            "vfs" => self.restart(self.users(nic)),
            "autoprobe" => Advice::Apply,
            // Inside a guest nobody sets anything of a PF.
            _ => self.restart(self.holder(nic)),
        }
    }

    fn of_function(&self, function: &FunctionName, verdict: &Verdict) -> Advice {
        let nic = &function.nic;
        let attribute = verdict.attribute.as_str();
        let owner = self.owners.of(function).map(|(owner, _)| owner.clone());
        let is_uplink = self.owners.is_uplink(function);
        let inside = matches!(&verdict.vantage, Vantage::Guest(guest) if Some(guest) == owner.as_ref());
        if attribute == "carrier" && !(self.is_linked)(nic) && (self.is_up)(nic) {
            return Advice::Elsewhere(format!(
                "the PF of {nic} is up and has no link: see its cable, and what is at its other end"
            ));
        }
        // With its PF down no guest's restart brings a link.
        if attribute == "carrier" && !(self.is_up)(nic) && self.holder(nic).is_empty() {
            return self.managed_elsewhere(nic).unwrap_or(Advice::Apply);
        }
        match function.vf {
            _ if inside || attribute.ends_with("gress_rate") => self.restart(owner),
            None => self.managed_elsewhere(nic).unwrap_or(Advice::Apply),
            // A switch is at the interface that was there when it started, and keeps it promiscuous.
            Some(_) if matches!(attribute, "mac" | "driver" | "promiscuous") && is_uplink => {
                self.restart(self.model.uplink_vf(function).map(|uplink| uplink.guest.clone()))
            }
            // A driver sees another address only when it is bound anew.
            Some(_) if matches!(attribute, "mac" | "driver") => match self.managed_elsewhere(nic) {
                Some(managed) if attribute == "mac" => managed,
                _ => {
                    let holder = self.holder(nic).into_iter().filter(|_| attribute == "mac");
                    self.restart(owner.into_iter().chain(holder))
                }
            },
            Some(_) => match self.managed_elsewhere(nic) {
                Some(managed) => managed,
                // What is kept for a VF is set through the PF's interface, which a guest has.
                None => self.restart(self.holder(nic)),
            },
        }
    }

    /// A stop of those of these guests that run, and an apply; the apply alone where none does. With a guest that has a PF those
    /// stop that have its VFs, which lose their links when the PF goes.
    fn restart(&self, guests: impl IntoIterator<Item = GuestName>) -> Advice {
        let is_stopped = |guest: &GuestName| self.running.contains(guest) && !self.of_incus.contains(guest);
        let mut guests: BTreeSet<GuestName> = guests.into_iter().filter(is_stopped).collect();
        let functions = guests.iter().flat_map(|guest| &self.model.guests[guest].functions);
        let pfs = functions.filter(|function| function.name.vf.is_none()).map(|pf| &pf.name.nic);
        let beside: Vec<GuestName> = pfs.flat_map(|nic| self.users(nic)).collect();
        guests.extend(beside.into_iter().filter(is_stopped));
        if guests.is_empty() { Advice::Apply } else { Advice::Restart(guests) }
    }

    /// The guest of Incus that owns a function.
    fn owner_in_incus(&self, subject: &Subject) -> Option<&GuestName> {
        let Subject::Function(function) = subject else { return None };
        let (owner, _) = self.owners.of(function)?;
        self.of_incus.get(owner)
    }

    fn managed_elsewhere(&self, nic: &NicName) -> Option<Advice> {
        let managed = self.model.nics.get(nic).is_some_and(|nic| nic.externally_managed);
        managed.then(|| {
            Advice::Elsewhere(format!(
                "{nic} is externally managed, so that penstock changes nothing of it: have whoever manages it put it right"
            ))
        })
    }

    /// The guests that have a function of the NIC.
    fn users(&self, nic: &NicName) -> BTreeSet<GuestName> {
        let uses = |guest: &penstock_model::Guest| guest.functions.iter().any(|f| f.name.nic == *nic);
        self.model.guests.iter().filter(|(_, guest)| uses(guest)).map(|(name, _)| name.clone()).collect()
    }

    /// The guest that has the NIC's PF, with those that have VFs of it: they stop before it.
    fn holder(&self, nic: &NicName) -> BTreeSet<GuestName> {
        let pf = FunctionName { nic: nic.clone(), vf: None };
        let held = self.owners.of(&pf).is_some_and(|(owner, _)| self.running.contains(owner));
        if held { self.users(nic) } else { BTreeSet::new() }
    }
}

impl Advice {
    /// As it is typed, or said: the model is at `model`, and `nics` are the words that say where its NICs are.
    pub fn words(&self, model: &dyn Display, nics: &str) -> String {
        let apply = format!("penstock apply {model}{nics}");
        match self {
            Advice::Apply => apply,
            Advice::Persist => format!("{apply} --persist, and reboot"),
            Advice::Restart(guests) => {
                let guests: Vec<&str> = guests.iter().map(GuestName::as_str).collect();
                format!("penstock stop {model} {}{nics} && {apply}", guests.join(" "))
            }
            Advice::Without(guests, found) => {
                let guests: Vec<&str> = guests.iter().map(GuestName::as_str).collect();
                let found = found.words(model, nics);
                format!("with a model without {}, which Incus runs: {found}", guests.join(", "))
            }
            Advice::Elsewhere(words) => words.clone(),
        }
    }

    /// Whether it is a command.
    pub fn is_command(&self) -> bool {
        matches!(self, Advice::Apply | Advice::Restart(_))
    }
}

#[cfg(test)]
mod tests;
