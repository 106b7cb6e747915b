//! What a run is given to work with: where programs can be run, and where each function's interface is.

use std::{collections::BTreeMap, sync::Arc};

use penstock_host::Place;
use penstock_model::{EndpointName, InterfaceName, Mac, Mtu, verdict::Vantage};

/// What a run is given to work with.
#[derive(Clone, Default)]
pub struct Scene {
    /// The host and the guests in which programs can be run; or why they cannot.
    pub places: BTreeMap<Vantage, Result<Arc<dyn Place>, String>>,
    /// The interface of each function that the model names, in the place of its owner, and of each of the NICs that VMs own; or why it cannot be told.
    pub stations: BTreeMap<EndpointName, Result<Station, String>>,
    /// Where this same program is on the host, to be run again.
    pub program: String,
}

/// A function's interface, where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its name there.
    pub interface: InterfaceName,
    /// Its MAC address.
    pub mac: Mac,
    /// Its MTU.
    pub mtu: Mtu,
    /// Whether it has carrier; `None` where that cannot be told.
    pub carrier: Option<bool>,
    /// Megabits per second (`/sys/class/net/*/speed`); `None` where the driver tells none.
    pub speed: Option<u32>,
    /// Whether it has addresses, routes or a bridge of somebody else's, who would lose them if it were moved to another
    /// namespace or put into a bridge.
    pub in_use: bool,
}

impl Scene {
    /// A place in which programs can be run.
    pub fn place(&self, vantage: &Vantage) -> Result<&Arc<dyn Place>, String> {
        match self.places.get(vantage) {
            Some(Ok(place)) => Ok(place),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("{vantage} is not there")),
        }
    }

    /// A function's interface.
    pub fn station(&self, function: &EndpointName) -> Result<&Station, String> {
        match self.stations.get(function) {
            Some(Ok(station)) => Ok(station),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("{function} is not there")),
        }
    }
}
