//! What a run is given to work with: where programs can be run, and where each function's interface is.

use std::{collections::BTreeMap, sync::Arc};

use penstock_host::Place;
use penstock_model::{EndpointName, InterfaceName, Mac, Mtu, verdict::Vantage};

/// What a run is given to work with.
#[derive(Clone, Default)]
pub struct Testbed {
    /// The host and the guests in which programs can be run; or why they cannot.
    pub places: BTreeMap<Vantage, Result<Arc<dyn Place>, String>>,
    /// The interface of each function that the model names, in the place of its owner, and of each of the NICs that VMs own; or why it cannot be told.
    pub function_interfaces: BTreeMap<EndpointName, Result<FunctionInterface, String>>,
    /// The Linux bridge of the host that the switch of each NIC that a container owns leads to, by that NIC, and that the taps of each
    /// NIC that a VM owns are ports of, by each of its functions; or why it cannot be told.
    pub bridges: BTreeMap<EndpointName, Result<FunctionInterface, String>>,
    /// `cpu.stat` of the control groups of the host that carry the frames of each VM with a NIC of its own: QEMU's and its switches'; or why
    /// they are not known.
    pub vm_groups: BTreeMap<Vantage, Result<Vec<String>, String>>,
    /// How long an instruction takes, in nanoseconds, on a board whose clock counts instructions.
    pub instruction: Option<u32>,
    /// Where this same program is on the host, to be run again.
    pub program: String,
}

/// A function's interface, where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionInterface {
    /// Its name there.
    pub interface: InterfaceName,
    /// Its MAC address.
    pub mac: Mac,
    /// Its MTU in bytes, as the interface has it now.
    pub mtu: Mtu,
    /// Whether it has carrier; `None` where that cannot be told.
    pub carrier: Option<bool>,
    /// Megabits per second (`/sys/class/net/*/speed`); `None` where the driver tells none.
    pub speed: Option<u32>,
    /// Whether it has addresses, routes or a bridge of somebody else's, who would lose them if it were moved to another
    /// namespace or put into a bridge.
    pub in_use: bool,
}

impl Testbed {
    /// A place in which programs can be run.
    ///
    /// # Errors
    ///
    /// In words, why no program can be run there, or that there is no such place.
    pub fn place(&self, vantage: &Vantage) -> Result<&Arc<dyn Place>, String> {
        match self.places.get(vantage) {
            Some(Ok(place)) => Ok(place),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("{vantage} is not there")),
        }
    }

    /// A function's interface.
    ///
    /// # Errors
    ///
    /// In words, why its interface is not known, or that there is no such function.
    pub fn function_interface(&self, function: &EndpointName) -> Result<&FunctionInterface, String> {
        match self.function_interfaces.get(function) {
            Some(Ok(function_interface)) => Ok(function_interface),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("{function} is not there")),
        }
    }

    /// The host's end of the bridge that the switch of a container's NIC leads to.
    ///
    /// # Errors
    ///
    /// In words, why that is not known, or that there is no such NIC.
    pub fn bridge(&self, nic: &EndpointName) -> Result<&FunctionInterface, String> {
        match self.bridges.get(nic) {
            Some(Ok(bridge)) => Ok(bridge),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("no bridge is known that {nic} leads to")),
        }
    }
}
