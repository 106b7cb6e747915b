//! What a PF's driver was seen to do for its VFs: tried, not looked up in a list.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{VfAttribute, VfAttributeKind, VfKey, VfValue, VlanProtocol, vf::table::vf_attributes};

macro_rules! capability {
    ({} $($(#[$_i:meta])* $kind:ident $_h:tt $_n:literal can {
        $name:literal $doc:literal $($more:ident $more_name:literal $more_doc:literal)*
    } keys $_k:tt)*) => {
        /// Something that the driver of a PF may be able to do, in the model's word where it has one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Capability {
            $(
                #[doc = $doc]
                $kind,
                $(
                    #[doc = $more_doc]
                    $more,
                )*
            )*
            /// `ndo_bridge_setlink`: VEB and VEPA.
            Loopback,
            /// The `reset` file of a VF.
            Reset,
        }

        impl Capability {
            /// All of them, in the order in which they are told.
            pub const ALL: &[Capability] =
                &[$(Capability::$kind, $(Capability::$more,)*)* Capability::Loopback, Capability::Reset];

            /// What Linux calls for it (`struct net_device_ops`, include/linux/netdevice.h), and what it is.
            pub const fn description(self) -> &'static str {
                match self {
                    $(
                        Capability::$kind => $doc,
                        $(Capability::$more => $more_doc,)*
                    )*
                    Capability::Loopback => "`ndo_bridge_setlink`: VEB or VEPA, for the whole PF.",
                    Capability::Reset => "The `reset` file of the VF in sysfs: a function-level reset.",
                }
            }

            /// The attribute whose value a VF has already shows it by being set again.
            pub const fn attribute(self) -> Option<VfAttributeKind> {
                match self {
                    $(
                        Capability::$kind => Some(VfAttributeKind::$kind),
                        // Nothing that is there already says anything of another form of it.
                        $(Capability::$more => None,)*
                    )*
                    Capability::Loopback | Capability::Reset => None,
                }
            }
        }

        impl fmt::Display for Capability {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(
                        Capability::$kind => $name,
                        $(Capability::$more => $more_name,)*
                    )*
                    Capability::Loopback => "loopback",
                    Capability::Reset => "reset",
                })
            }
        }
    };
}

vf_attributes!(capability {});

impl Capability {
    /// What setting `attribute` takes.
    pub const fn of(attribute: &VfAttribute) -> Capability {
        match attribute {
            VfAttribute::Vlan { id, protocol: VlanProtocol::Dot1ad, .. } if id.get() != 0 => {
                Capability::VlanProto
            }
            other => other.kind().capability(),
        }
    }

    /// What a driver needs for this key of a model to hold. The MAC address has none: a VF's own driver sets it too.
    pub const fn needed_for(key: VfKey) -> &'static [Capability] {
        match key {
            VfKey::Mac => &[],
            VfKey::VlanProto => &[Capability::Vlan, Capability::VlanProto],
            other => other.kind().capabilities(),
        }
    }
}

/// How a trial came out, from the least that it proves to the most.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// It could not be tried harmlessly, or the answer says nothing.
    Untold,
    /// The driver took the value that was there already. Whether it would take and keep another is not known.
    Accepted,
    /// The driver took another value, and it was read back. That the hardware holds to it is not said.
    Kept,
    /// The driver took another value without an error, and then reported what was before.
    Ignored,
    /// The driver or device says that it cannot.
    Unsupported,
}

impl Ability {
    /// Whether the driver was seen to have a call for it that does not say no.
    pub const fn is_had(self) -> bool {
        matches!(self, Ability::Accepted | Ability::Kept)
    }

    /// Whether it is known that what a model asks for cannot be had.
    pub const fn is_lacking(self) -> bool {
        matches!(self, Ability::Ignored | Ability::Unsupported)
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ability::Untold => "not known",
            Ability::Accepted => "accepted",
            Ability::Kept => "set and read back",
            Ability::Ignored => "accepted and ignored",
            Ability::Unsupported => "unsupported",
        })
    }
}

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Trial {
    /// How it came out.
    pub ability: Ability,
    /// What the driver said, or why it was not tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Trial {
    /// A trial that came out so.
    pub fn new(ability: Ability) -> Trial {
        Trial { ability, detail: None }
    }

    /// The same, with what the driver said.
    #[must_use]
    pub fn saying(self, detail: impl Into<String>) -> Trial {
        Trial { detail: Some(detail.into()), ..self }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{}: {detail}", self.ability),
            None => self.ability.fmt(f),
        }
    }
}

/// What decides how a driver behaves: another of any of these may do otherwise.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct DriverIdentity {
    /// The PF's driver.
    pub driver: String,
    /// The driver's version; of a driver that comes with the kernel, that is the kernel's release.
    pub version: String,
    /// The device's firmware, as ethtool has it; empty when it has none.
    pub firmware: String,
    /// Vendor and device id: `8086:10c9`.
    pub device: String,
}

impl fmt::Display for DriverIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on {}", self.driver, self.version, self.device)?;
        if self.firmware.is_empty() { Ok(()) } else { write!(f, ", firmware {}", self.firmware) }
    }
}

/// What is known of one driver as it is on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Capabilities {
    /// The driver that was tried.
    #[serde(flatten)]
    pub of: DriverIdentity,
    /// What was tried.
    #[serde(default)]
    pub trials: BTreeMap<Capability, Trial>,
}

impl Capabilities {
    /// Takes in what came of a trial. The last word counts, but for one that says less than what is known already.
    pub fn learn(&mut self, capability: Capability, trial: Trial) {
        let known = self.trials.get(&capability).map(|trial| trial.ability);
        let says_less = trial.ability == Ability::Untold
            || (trial.ability == Ability::Accepted
                && matches!(known, Some(Ability::Kept | Ability::Ignored)));
        if known.is_none() || !says_less {
            self.trials.insert(capability, trial);
        }
    }

    /// The trial that shows that `capability` cannot be had.
    pub fn lack(&self, capability: Capability) -> Option<&Trial> {
        self.trials.get(&capability).filter(|trial| trial.ability.is_lacking())
    }

    /// The trial that shows that `attribute` cannot be set. What takes no port VLAN takes none of 802.1ad either.
    pub fn lack_of(&self, attribute: &VfAttribute) -> Option<&Trial> {
        let capability = Capability::of(attribute);
        let vlan = (capability == Capability::VlanProto).then(|| self.lack(Capability::Vlan)).flatten();
        vlan.or_else(|| self.lack(capability))
    }
}

/// Whether `attribute` is what a new VF has, and what Linux reports for a driver that knows nothing of it. Of what drivers
/// choose themselves nothing is known.
pub fn is_preset(attribute: &VfAttribute) -> bool {
    match attribute {
        // What else its tag would have says nothing without one.
        VfAttribute::Vlan { id, .. } => id.get() == 0,
        other => other.values().into_iter().all(|(key, value)| match value {
            // Drivers choose: some have it on for a new VF.
            VfValue::Switch(_) => true,
            other => other == key.unset(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_less_does_not_replace_what_is_known() {
        let mut known = Capabilities::default();
        let mut learn = |ability| {
            known.learn(Capability::Trust, Trial::new(ability));
            known.trials[&Capability::Trust].ability
        };
        assert_eq!(learn(Ability::Untold), Ability::Untold);
        assert_eq!(learn(Ability::Accepted), Ability::Accepted);
        assert_eq!(learn(Ability::Untold), Ability::Accepted);
        assert_eq!(learn(Ability::Kept), Ability::Kept);
        assert_eq!(learn(Ability::Accepted), Ability::Kept);
        assert_eq!(learn(Ability::Unsupported), Ability::Unsupported);
        assert_eq!(learn(Ability::Accepted), Ability::Accepted, "a driver that takes it now can");
        assert_eq!(learn(Ability::Ignored), Ability::Ignored);
        assert_eq!(learn(Ability::Accepted), Ability::Ignored, "taking it was never the question");
    }

    #[test]
    fn what_takes_no_port_vlan_takes_none_of_either_protocol() {
        let (id, qos) = (crate::VlanId::new(5).unwrap(), Default::default());
        let tagged = |protocol| VfAttribute::Vlan { id, qos, protocol };
        let mut known = Capabilities::default();
        known.learn(Capability::VlanProto, Trial::new(Ability::Unsupported));
        assert!(known.lack_of(&tagged(VlanProtocol::Dot1q)).is_none());
        assert!(known.lack_of(&tagged(VlanProtocol::Dot1ad)).is_some());
        known.learn(Capability::VlanProto, Trial::new(Ability::Kept));
        known.learn(Capability::Vlan, Trial::new(Ability::Unsupported));
        assert!(known.lack_of(&tagged(VlanProtocol::Dot1ad)).is_some());
    }
}
