//! What a PF's driver reports of a VF.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    LinkState, TxRate, VfAttribute, VfAttributeKind, VfKey, VfSettings, VfValue, VlanId, VlanProtocol,
    VlanQos, table::vf_attributes,
};
use crate::Mac;

/// How a state has a value of type `T`: by itself, or as an `Option` where a driver may not report it.
trait Reported<T> {
    fn reported(&self) -> Option<T>;
    fn report(value: T) -> Self;
}

impl<T: Copy> Reported<T> for T {
    fn reported(&self) -> Option<T> {
        Some(*self)
    }

    fn report(value: T) -> T {
        value
    }
}

impl<T: Copy> Reported<T> for Option<T> {
    fn reported(&self) -> Option<T> {
        *self
    }

    fn report(value: T) -> Option<T> {
        Some(value)
    }
}

macro_rules! state {
    ({} $($(#[$_i:meta])* $kind:ident $_h:tt $_n:literal can $_c:tt keys {
        $($field:tt $word:ident $key:ident: $type:ty, state $has:ty, ip $_p:literal, aliases $_a:tt, {
            $_1:literal $_2:literal $_3:literal $_4:literal $doc:literal
        })*
    })*) => {
        /// A VF's attributes as its PF's driver reports them (`IFLA_VFINFO_LIST`).
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub struct VfState {
            $($(
                #[doc = $doc]
                pub $key: $has,
            )*)*
        }

        impl VfState {
            /// What is reported of this key; `None` when nothing is.
            pub fn get(&self, key: VfKey) -> Option<VfValue> {
                match key {
                    $($(VfKey::$word => <$has as Reported<$type>>::reported(&self.$key).map(VfValue::from),)*)*
                }
            }

            /// What is reported of this attribute; `None` when nothing is.
            pub fn attribute(&self, kind: VfAttributeKind) -> Option<VfAttribute> {
                Some(match kind {
                    $(VfAttributeKind::$kind => VfAttribute::$kind {
                        $($field: <$has as Reported<$type>>::reported(&self.$key)?),*
                    },)*
                })
            }

            /// The same with this attribute.
            pub fn set(&mut self, attribute: &VfAttribute) {
                match *attribute {
                    $(VfAttribute::$kind { $($field: $key),* } => {
                        $(self.$key = <$has as Reported<$type>>::report($key);)*
                    })*
                }
            }

            /// What a model would ask for to have a VF like this.
            pub fn settings(&self) -> VfSettings {
                VfSettings { $($($key: <$has as Reported<$type>>::reported(&self.$key),)*)* }
            }
        }
    };
}

vf_attributes!(state {});

impl VfState {
    /// All that is reported: what every driver reports comes first.
    pub fn attributes(&self) -> Vec<VfAttribute> {
        let mut kinds = VfAttributeKind::ALL.to_vec();
        let unreported = VfState::default();
        kinds.sort_by_key(|kind| unreported.attribute(*kind).is_none());
        kinds.into_iter().filter_map(|kind| self.attribute(kind)).collect()
    }
}
