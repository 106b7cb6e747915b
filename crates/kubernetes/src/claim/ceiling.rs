//! How far a claim may go. Whoever may make pods writes claims; DeviceClasses are the cluster administrator's. Pure.

use penstock_model::{VfKey, VfValue};

use super::parameters::{ParametersError, VfParameters};

impl VfParameters {
    /// Whether what a claim asks for is within what its DeviceClass lets it ask for.
    ///
    /// A class with `allow` names the keys of VF attributes that claims may set, and no others. Without it claims may set what the class
    /// leaves out, but for `trust: on` and `spoofchk: off`: with those a pod reaches what its neighbours are sent. A mode that a class names is
    /// that of its claims: with `vfio` a pod drives the VF itself.
    ///
    /// # Errors
    ///
    /// The mode, the first key that is the class's to set, and `allow` of a claim.
    pub fn within(&self, class: &VfParameters) -> Result<(), ParametersError> {
        if self.allow.is_some() {
            return Err(ParametersError::AllowOfClaim);
        }
        if let (Some(mode), Some(of_class)) = (self.mode, class.mode)
            && mode != of_class
        {
            return Err(ParametersError::BeyondMode { mode });
        }
        for (key, value) in self.settings.values() {
            let of_class = class.settings.get(key);
            let may = of_class == Some(value)
                || match &class.allow {
                    Some(keys) => keys.contains(&key),
                    None => of_class.is_none() && !opens(key, value),
                };
            if !may {
                return Err(ParametersError::Beyond { key, value });
            }
        }
        Ok(())
    }
}

/// Whether a pod with this reaches what its neighbours are sent, or speaks in their names.
fn opens(key: VfKey, value: VfValue) -> bool {
    match (key, value) {
        (VfKey::Trust, VfValue::Switch(on)) => on,
        (VfKey::Spoofchk, VfValue::Switch(on)) => !on,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(document: Value) -> VfParameters {
        VfParameters::read(&document).unwrap()
    }

    #[test]
    fn a_claim_goes_as_far_as_its_class_lets_it() {
        for (class, claim, refused) in [
            (
                json!({}),
                json!({"vlan": 100, "spoofchk": "on", "trust": "off", "mac": "02:00:00:00:00:01"}),
                None,
            ),
            (json!({}), json!({"trust": "on"}), Some("trust may not be on")),
            (json!({}), json!({"spoofchk": "off"}), Some("spoofchk may not be off")),
            (json!({"trust": "on"}), json!({"trust": "on"}), None),
            (json!({"vlan": 7}), json!({"vlan": 100}), Some("vlan may not be 100")),
            (json!({"vlan": 7}), json!({"vlan": 7, "mtu": 1400, "address": "10.1.0.5/24"}), None),
            (json!({"vlan": 7, "allow": ["vlan"]}), json!({"vlan": 100}), None),
            (json!({"allow": ["trust", "spoofchk"]}), json!({"trust": "on", "spoofchk": "off"}), None),
            (json!({"allow": ["mac"]}), json!({"vlan": 100}), Some("vlan may not be 100")),
            (json!({"allow": []}), json!({"interface": "data", "mtu": 1400}), None),
            (json!({}), json!({"allow": ["trust"], "trust": "on"}), Some("allow is for a DeviceClass")),
            (json!({"mode": "netdev"}), json!({"mode": "vfio"}), Some("mode may not be vfio")),
            (json!({"mode": "netdev", "allow": []}), json!({"mode": "netdev"}), None),
            (json!({"vlan": 7}), json!({"mode": "vfio"}), None),
        ] {
            let said = read(claim.clone()).within(&read(class.clone())).err().map(|error| error.to_string());
            match (&said, refused) {
                (None, None) => {}
                (Some(said), Some(refused)) => assert!(said.contains(refused), "{class} {claim}: {said}"),
                _ => panic!("{class} {claim}: {said:?}"),
            }
        }
    }

    proptest! {
        /// Whatever a claim says: what comes of it differs from the class in keys alone that the class lets it set.
        #[test]
        fn nothing_gets_past_an_empty_allow(vlan in 0u16..4095, trust: bool, spoofchk: bool, of_class in proptest::option::of(0u16..4095)) {
            let mut class = json!({"allow": []});
            if let Some(vlan) = of_class {
                class["vlan"] = json!(vlan);
            }
            let class = read(class);
            let claim = read(json!({"vlan": vlan, "trust": trust, "spoofchk": spoofchk}));
            if claim.within(&class).is_ok() {
                prop_assert_eq!(claim.or(class.clone()).settings, class.settings);
            }
        }
    }
}
