//! What silence proves. That nothing arrived says something only of ends that could send and receive all the time, so that these are looked at
//! once more when the frames were sent.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use penstock_host::InterfaceReport;
use penstock_model::{FunctionName, GuestName};

use super::{Expectation, Observer, observation::Observation, reach};

/// An end of a path along which nothing arrived, as it was before frames were sent.
pub struct EndBefore<'a> {
    /// What it is called.
    pub name: String,
    /// The guest that it is in; `None` is the host.
    pub guest: Option<&'a GuestName>,
    /// Its interface.
    pub report: &'a InterfaceReport,
    /// Whether an interface without a carrier is what keeps frames from it, so that it proves what is wanted.
    pub is_proof: bool,
}

impl<'a> EndBefore<'a> {
    /// A function's end; `None` where its interface was not seen.
    pub fn of(
        observation: &'a Observation<'_>,
        function: &FunctionName,
        expectation: Expectation,
    ) -> Option<EndBefore<'a>> {
        let owners = &observation.owners;
        Some(EndBefore {
            name: function.to_string(),
            guest: owners.of(function).map(|(guest, _)| guest),
            report: observation.interface(function).ok()?,
            is_proof: match expectation {
                Expectation::Isolated(barrier) => reach::is_proof(owners, function, barrier),
                Expectation::Arrives | Expectation::NotJudged => false,
            },
        })
    }

    /// That it had no carrier before, in words. Such an interface drops in silence what is sent.
    fn had_no_carrier(&self) -> Option<String> {
        let (end, name) = (&self.name, &self.report.interface.name);
        let why = || {
            format!("{end}: its interface {name} has no carrier, so that nothing could have been delivered")
        };
        (!self.is_proof && self.report.interface.carrier == Some(false)).then(why)
    }

    /// What was lost of it meanwhile, in words, where these are the interfaces of its place `after` frames were sent.
    fn lost(&self, after: &After) -> Option<String> {
        let (end, before) = (&self.name, &self.report.interface);
        let report = match after {
            Ok(reports) => reports.get(&self.report.index),
            Err(why) => {
                let lost = "nothing arrived, and whether its link stayed is not known";
                return Some(format!("{end}: {lost}: {why}"));
            }
        };
        let what = match report.map(|report| &report.interface) {
            None => "went away",
            Some(after) if !after.up && before.up => "went down",
            // One that had none before has lost nothing.
            Some(after)
                if after.carrier == Some(false) && before.carrier != Some(false) && !self.is_proof =>
            {
                "lost its carrier"
            }
            Some(_) => return None,
        };
        Some(format!(
            "{end}: its interface {} {what} while frames were sent, and nothing arrived",
            before.name
        ))
    }
}

/// The interfaces of a place after frames were sent, by their indices; why they could not be looked at, else.
type After = Result<HashMap<u32, InterfaceReport>, String>;

fn by_index(reports: Vec<InterfaceReport>) -> HashMap<u32, InterfaceReport> {
    reports.into_iter().map(|report| (report.index, report)).collect()
}

/// For each path along which nothing arrived: why that says nothing, if so. Such a path is given by what is expected of it and its ends, as
/// far as they were seen. Where frames are to arrive, an end that had no carrier before is why they do not.
pub fn doubts<'a>(
    observation: &'a Observation<'_>,
    silent: &[(Expectation, [Option<EndBefore<'a>>; 2])],
    observer: &mut dyn Observer,
) -> Vec<Option<String>> {
    let places: BTreeSet<Option<&GuestName>> =
        silent.iter().flat_map(|(_, ends)| ends.iter().flatten()).map(|end| end.guest).collect();
    let guests = observation.look_into_guests(places.iter().copied().flatten().collect());
    let inside = guests.into_iter().map(|(guest, home)| {
        let interfaces = home.map_err(|dark| dark.why()).and_then(|home| home.interfaces);
        (Some(guest), interfaces.map(by_index))
    });
    let mut after: BTreeMap<Option<&GuestName>, After> = inside.collect();
    if places.contains(&None) {
        after.insert(None, observer.interfaces().map(by_index));
    }
    let doubt = |(expectation, ends): &(Expectation, [Option<EndBefore<'a>>; 2])| {
        let ends = || ends.iter().flatten();
        let before = match expectation {
            Expectation::Isolated(_) => ends().find_map(EndBefore::had_no_carrier),
            Expectation::Arrives | Expectation::NotJudged => None,
        };
        before.or_else(|| ends().find_map(|end| end.lost(after.get(&end.guest)?)))
    };
    silent.iter().map(doubt).collect()
}
