//! The table of VF attributes. One row says all that is the same everywhere: what a model, an inventory, a plan and a verdict call
//! it, of which type it is, and how it is described. `attribute.rs`, `settings.rs` and `state.rs` beside this file, the documents and
//! the capabilities are made from it.

/// Hands the table to the macro `$then`, behind `$given`.
///
/// ```text
/// /// What carries it in netlink.
/// Spoofchk (bool) "spoofchk"                        variant of VfAttribute, what it holds, its name in text
/// can { "spoofchk" "`ndo_set_vf_spoofchk`." }       its Capability: name in text, description; then others of the same attribute
/// keys {
///     0 Spoofchk spoofchk: bool,                    field of the variant, variant of VfKey, key of a model, its type
///     state Option<bool>,                           how an inventory has it: `Option` where a driver may not report it
///     ip "spoofchk",                                `ip link`'s word
///     aliases ["spoof-check"],                      other spellings that are read
///     { VfSettings, Function, UplinkVf, TenantVf, VfState: the description in the schema of each }
/// }
/// ```
///
/// The order is that of the rows everywhere, but for the transmit rates, which are set last (`VfSettings::attributes`).
macro_rules! vf_attributes {
    ($then:ident $given:tt) => {
        $then! { $given
            /// `IFLA_VF_MAC`.
            Mac (Mac) "mac"
            can { "mac" "`ndo_set_vf_mac`: the VF's MAC address." }
            keys {
                0 Mac mac: Mac, state Mac, ip "mac", aliases ["mac-address"], {
                    "The VF's MAC address."
                    "MAC address. Default: for a VF derived from the PF's permanent address and the index, the same for ever.\nAlso read as `mac-address`."
                    "The VF's own MAC address. Default: derived from the PF's permanent address and the index. Also read as `mac-address`."
                    "The VF's MAC address. Default: derived from the PF's. Also read as `mac-address`."
                    "The address that the PF gave it; zero when it gave none."
                }
            }

            /// `IFLA_VF_VLAN_LIST`.
            Vlan {
                /// The port VLAN; 0 for none.
                id: VlanId,
                /// The tag's priority.
                qos: VlanQos,
                /// The tag's protocol.
                protocol: VlanProtocol,
            } "vlan"
            can {
                "vlan" "`ndo_set_vf_vlan`: the port VLAN and its priority, tagged as 802.1Q."
                VlanProto "vlan_proto 802.1ad" "`ndo_set_vf_vlan`: a port VLAN tagged as 802.1ad."
            }
            keys {
                id Vlan vlan: VlanId, state VlanId, ip "vlan", aliases ["vlan-id"], {
                    "Port VLAN: the embedded switch tags what the VF sends and untags what it receives."
                    "Port VLAN: the NIC tags what the VF sends and untags what it receives. 0 is none. Also read as `vlan-id`."
                    "Port VLAN: all frames of the VM's NIC are in it beyond the VF. 0 is none. Also read as `vlan-id`."
                    "Port VLAN: the switch tags what the VF sends and untags what it receives. 0 is none. Also read as `vlan-id`."
                    "Port VLAN; 0 when there is none."
                }
                qos Qos qos: VlanQos, state VlanQos, ip "qos", aliases ["vlanQoS"], {
                    "Priority of the port VLAN's tag."
                    "Priority of the port VLAN's tag. Also read as `vlanQoS`."
                    "Priority of the port VLAN's tag. Also read as `vlanQoS`."
                    "Priority of the port VLAN's tag. Also read as `vlanQoS`."
                    "Priority of the port VLAN's tag."
                }
                protocol VlanProto vlan_proto: VlanProtocol, state VlanProtocol, ip "proto", aliases ["vlanProto" "vlan-proto"], {
                    "Protocol of the port VLAN's tag; 802.1Q when not said."
                    "Protocol of the port VLAN's tag. Default: 802.1Q. Also read as `vlanProto` and `vlan-proto`."
                    "Protocol of the port VLAN's tag. Default: 802.1Q. Also read as `vlanProto` and `vlan-proto`."
                    "Protocol of the port VLAN's tag. Default: 802.1Q. Also read as `vlanProto` and `vlan-proto`."
                    "Protocol of the port VLAN's tag."
                }
            }

            /// `IFLA_VF_SPOOFCHK`.
            Spoofchk (bool) "spoofchk"
            can { "spoofchk" "`ndo_set_vf_spoofchk`: frames with a foreign source address are dropped." }
            keys {
                0 Spoofchk spoofchk: bool, state Option<bool>, ip "spoofchk", aliases ["spoof-check"], {
                    "Whether frames with a foreign source MAC are dropped."
                    "Whether frames with a foreign source MAC are dropped. Also read as `spoof-check`."
                    "Whether frames with a foreign source MAC are dropped; only `off`. Also read as `spoof-check`."
                    "Whether frames with a foreign source MAC are dropped. Also read as `spoof-check`."
                    "Whether frames with a foreign source MAC are dropped; `None`: not reported."
                }
            }

            /// `IFLA_VF_TRUST`.
            Trust (bool) "trust"
            can { "trust" "`ndo_set_vf_trust`: the VF may change its MAC and turn promiscuous." }
            keys {
                0 Trust trust: bool, state Option<bool>, ip "trust", aliases [], {
                    "Whether the VF may change its MAC and turn promiscuous."
                    "Whether the VF may change its MAC and turn promiscuous."
                    "Whether the VF may turn promiscuous; only `on`."
                    "Whether the VF may change its MAC and turn promiscuous, as far as `allow` goes."
                    "Whether it may change its MAC and turn promiscuous; `None`: not reported."
                }
            }

            /// `IFLA_VF_RATE`.
            Rate {
                /// The guaranteed rate; 0 for none.
                min: TxRate,
                /// The limit; 0 for none.
                max: TxRate,
            } "rate"
            can { "min_tx_rate, max_tx_rate" "`ndo_set_vf_rate`: the least and the most that the VF sends. Whether a rate is held to cannot be seen from its settings." }
            keys {
                min MinTxRate min_tx_rate: TxRate, state TxRate, ip "min_tx_rate", aliases ["min-tx-rate"], {
                    "Guaranteed transmit rate."
                    "Guaranteed transmit rate in Mbit/s; 0 is none. Also read as `min-tx-rate`."
                    "Guaranteed transmit rate in Mbit/s; 0 is none. Also read as `min-tx-rate`."
                    "Guaranteed transmit rate in Mbit/s; only 0, none. Also read as `min-tx-rate`."
                    "Guaranteed transmit rate; 0 when there is none."
                }
                max MaxTxRate max_tx_rate: TxRate, state TxRate, ip "max_tx_rate", aliases ["max-tx-rate"], {
                    "Transmit rate limit."
                    "Transmit rate limit in Mbit/s; 0 is none. Also read as `max-tx-rate`."
                    "Transmit rate limit in Mbit/s; 0 is none. Also read as `max-tx-rate`."
                    "Transmit rate limit in Mbit/s; 0 is none. Also read as `max-tx-rate`."
                    "Transmit rate limit; 0 when there is none."
                }
            }

            /// `IFLA_VF_LINK_STATE`.
            LinkState (LinkState) "link_state"
            can { "link_state" "`ndo_set_vf_link_state`: the link that the VF sees." }
            keys {
                0 LinkState link_state: LinkState, state Option<LinkState>, ip "state", aliases ["link-state"], {
                    "The link that the VF is shown."
                    "The link that the VF is shown: `auto`, `enable` or `disable`. Also read as `link-state`."
                    "The link that the VF is shown: `auto` or `enable`. Also read as `link-state`."
                    "The link that the VF is shown; only `auto`. Also read as `link-state`."
                    "The link that it is shown; `None`: not reported."
                }
            }
        }
    };
}

/// Declares a document that has each key of the table as an `Option` between its own fields, and gives it `settings`. The word in front
/// of the struct picks the description of each key.
macro_rules! document_with_vf_keys {
    // One rule a document, which picks its description; then the one that writes the struct.
    ({ function $($struct:tt)* } $($(#[$_i:meta])* $_k:ident $_h:tt $_n:literal can $_c:tt keys { $($_f:tt $_v:ident $key:ident:
        $type:ty, state $_r:ty, ip $_p:literal, aliases [$($alias:literal)*], { $_1:literal $words:literal $_3:literal $_4:literal $_5:literal })* })*) =>
        { document_with_vf_keys! { @write $($struct)* { $($($key: $type, $words, $($alias)*;)*)* } } };
    ({ uplink $($struct:tt)* } $($(#[$_i:meta])* $_k:ident $_h:tt $_n:literal can $_c:tt keys { $($_f:tt $_v:ident $key:ident:
        $type:ty, state $_r:ty, ip $_p:literal, aliases [$($alias:literal)*], { $_1:literal $_2:literal $words:literal $_4:literal $_5:literal })* })*) =>
        { document_with_vf_keys! { @write $($struct)* { $($($key: $type, $words, $($alias)*;)*)* } } };
    ({ tenant $($struct:tt)* } $($(#[$_i:meta])* $_k:ident $_h:tt $_n:literal can $_c:tt keys { $($_f:tt $_v:ident $key:ident:
        $type:ty, state $_r:ty, ip $_p:literal, aliases [$($alias:literal)*], { $_1:literal $_2:literal $_3:literal $words:literal $_5:literal })* })*) =>
        { document_with_vf_keys! { @write $($struct)* { $($($key: $type, $words, $($alias)*;)*)* } } };

    (@write $(#[$meta:meta])* $vis:vis struct $name:ident { $($before:tt)* } { $($after:tt)* } {
        $($key:ident: $type:ty, $words:literal, $($alias:literal)*;)*
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($before)*
            $(
                #[doc = $words]
                $(#[serde(alias = $alias)])*
                pub $key: Option<$type>,
            )*
            $($after)*
        }

        impl $name {
            /// What it asks of the VF's attributes.
            pub fn settings(&self) -> $crate::VfSettings {
                $crate::VfSettings { $($key: self.$key),* }
            }
        }
    };
}

pub(crate) use {document_with_vf_keys, vf_attributes};
