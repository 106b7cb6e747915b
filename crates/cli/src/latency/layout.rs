//! Which CPUs of a machine are measured, and where the load runs.

use penstock_measure::latency::settings::{GuestSeat, Layout};
use penstock_model::{CpuSet, Model, measurement::EndKind};

use crate::failure::{Failure, Status};

/// The machine's CPUs as the model shares them out, or with `cpus` measured instead. `name` is the model's.
///
/// # Errors
/// When there is nothing to measure, or CPUs that do not exist, or nobody else's CPU for the load.
pub fn layout(model: &Model, name: &str, online: &CpuSet, cpus: Option<&CpuSet>) -> Result<Layout, Failure> {
    let of_model = model.realtime.as_ref().map(|realtime| realtime.isolated.clone());
    let of_guests = || {
        let pins = model.guests.values().filter(|guest| guest.realtime.is_some());
        CpuSet(pins.filter_map(|guest| guest.pin.as_ref()).flat_map(|pin| pin.0.iter().copied()).collect())
    };
    let isolated = match (cpus, of_model) {
        (Some(cpus), _) => cpus.clone(),
        (None, Some(isolated)) => isolated,
        (None, None) => of_guests(),
    };
    if isolated.0.is_empty() {
        let text = format!("{name} keeps no CPU for real time, so there is none to measure");
        return Err(Failure::new(Status::BadInput, text)
            .hint("write `realtime: {isolated: 2-3}` into it, or `realtime: on` and a `pin` into a guest")
            .hint("or measure CPUs as they are: --cpus 2-3"));
    }
    let absent = CpuSet(isolated.0.difference(&online.0).copied().collect());
    if !absent.0.is_empty() {
        let text = format!("the CPUs {absent} are to be measured, and this machine has {online}");
        return Err(Failure::new(Status::DoesNotFit, text));
    }
    let rest = || CpuSet(online.0.difference(&isolated.0).copied().collect());
    let wanted = model.realtime.as_ref().and_then(|realtime| realtime.housekeeping.clone());
    let housekeeping = match wanted.filter(|_| cpus.is_none()) {
        Some(wanted) => CpuSet(wanted.0.intersection(&online.0).copied().collect()),
        None => rest(),
    };
    if housekeeping.0.is_empty() {
        let text = format!(
            "no CPU is left for the load: {isolated} of {online} are measured, and a load beside the thread that is \
             measured would be measured too"
        );
        return Err(Failure::new(Status::DoesNotFit, text));
    }
    let guests = model.guests.iter().filter_map(|(name, guest)| {
        let pin = guest.pin.clone()?;
        let meant = match cpus {
            Some(cpus) => pin.0.is_subset(&cpus.0),
            None => guest.realtime.is_some(),
        };
        meant.then(|| GuestSeat { name: name.clone(), kind: EndKind::from(guest.kind), pin })
    });
    Ok(Layout { guests: guests.collect(), isolated, housekeeping, online: online.clone() })
}

#[cfg(test)]
mod tests {
    use penstock_model::{Source, parse};

    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn of(text: &str, online: &str, cpus: Option<&str>) -> Result<Layout, String> {
        let source = Source {
            name: "m.yaml".to_owned(),
            text: format!("machine: m\nnics: {{NET0: {{vfs: 1}}}}\n{text}"),
        };
        let model = parse(&source).unwrap_or_else(|found| panic!("{found:?}")).model;
        layout(&model, "m.yaml", &set(online), cpus.map(set).as_ref())
            .map_err(|failure| failure.error.map_or_else(String::new, |error| error.to_string()))
    }

    #[test]
    fn what_the_model_keeps_for_real_time_is_measured() {
        let both = of(
            "realtime: {isolated: 2}\nguests: {rt: {pin: 3, realtime: on}, plain: {pin: 1}}\n",
            "0-3",
            None,
        )
        .unwrap();
        assert_eq!((both.isolated.clone(), both.housekeeping.clone()), (set("2-3"), set("0-1")));
        assert_eq!(both.guests.iter().map(|guest| guest.name.as_str()).collect::<Vec<_>>(), ["rt"]);
        assert_eq!((both.measured(), both.ordinary()), (Some(2), Some(1)));
    }

    #[test]
    fn cpus_that_are_named_are_measured_as_they_are() {
        let named = of("guests: {plain: {pin: 1}}\n", "0-3", Some("1-2")).unwrap();
        assert_eq!((named.housekeeping.clone(), named.guests.len()), (set("0,3"), 1));
        assert_eq!(named.measured(), Some(2), "one that no guest has");
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_the_reason() {
        assert!(of("", "0-3", None).unwrap_err().contains("keeps no CPU for real time"));
        assert!(of("", "0-1", Some("1-7")).unwrap_err().contains("the CPUs 2-7 are to be measured"));
        assert!(of("", "0-1", Some("0-1")).unwrap_err().contains("no CPU is left for the load"));
    }
}
