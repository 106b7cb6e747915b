//! Penstock's file format and the vocabulary that every other crate speaks.
//!
//! A [`Model`] is what the user's file says, with every default filled in; an [`Inventory`] is what a machine has; a
//! [`Verdict`] is what was found when the two were compared. None of them does any IO: bytes come in as arguments.
//!
//! ```
//! let source = penstock_model::Source::new("m.yaml", "nics: {NET0: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n");
//! let parsed = penstock_model::parse(&source).unwrap();
//! assert_eq!(parsed.model.nics["NET0"].vfs, 1);
//! ```

pub mod address;
pub mod allow;
pub mod audit;
mod check;
pub mod composition;
mod decode;
pub mod dhcp;
pub mod diagnostic;
pub mod digest;
pub mod dns;
mod document;
pub mod domain;
pub mod drive;
pub mod function;
mod function_owners;
pub mod guest;
pub mod inventory;
mod located;
pub mod mac;
pub mod machine;
pub mod measure;
pub mod measurement;
pub mod model;
pub mod names;
mod parse;
pub mod pci;
pub mod quantity;
pub mod realtime;
mod render;
pub mod route;
mod selectors;
mod spellings;
pub mod tenant;
pub mod text;
mod tree;
pub mod verdict;
pub mod vf;
mod vlans;
pub mod yaml;

pub use address::InterfaceAddress;
pub use allow::{Allow, AllowedMacs};
pub use diagnostic::{Diagnostic, Diagnostics, Path, PathTarget, Related, Severity, Source};
pub use dns::{Dns, SearchDomain};
pub use document::{MODELINE, schema};
pub use drive::{Drive, DriveMatch, DriveVfName, GuestDrive};
pub use function::FunctionName;
pub use function_owners::FunctionOwners;
pub use guest::{
    Boot, Device, DiskFormat, Firmware, Function, Generate, Guest, GuestKind, Inside, MOST_VM_FUNCTIONS,
    NEEDS_PRIVILEGES, READY_WITHIN, Root, Template, VM_MEMORY, Vm,
};
pub use inventory::Inventory;
pub use located::{Against, Elsewhere, Located};
pub use mac::Mac;
pub use measure::{Measure, StorageTarget};
pub use model::{Board, BoardKernel, Emulation, FreeDriver, Model, Nic, NicMatch, WantedEswitch};
pub use names::{DriveName, GuestName, InterfaceName, MachineName, NicName, SlotName};
pub use parse::{Parsed, parse};
pub use pci::{Bdf, PcieRoot, RoutingId, SerialNumber};
pub use quantity::{ByteSize, CpuSet, Mtu};
pub use realtime::{Frequency, GuestRealtime, Percent, Realtime, Scheduling, SchedulingPolicy};
pub use route::InterfaceRoute;
pub use tenant::{BridgePort, DataPath, EndpointName, TenantFunctionName, TenantNic, Uplink, UplinkVf};
pub use verdict::{Outcome, Verdict, Verdicts};
pub use vf::{
    LinkState, SettingsConflict, TxRate, VfAttribute, VfAttributeKind, VfCount, VfIndex, VfKey, VfSettings,
    VfValue, VlanId, VlanProtocol, VlanQos,
};
pub use vlans::{PortVlans, VlanSet};
