//! What changes without an event and is too dear to look at often: it is said before anything else, so that silence is not taken for
//! peace. Pure.

use std::collections::BTreeSet;

use penstock_model::{GuestKind, GuestName, Model};
use serde::Serialize;

/// Something of which a change is told late, or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Unwatched {
    /// What nobody watches.
    pub what: String,
    /// When a change of it shows; `None`: not while watching.
    pub seen: Option<&'static str>,
}

/// How often everything is looked at: as seldom as that costs, within these bounds.
const WITH_EVERYTHING: &str =
    "when everything is looked at: once in 1 to 60 minutes, and after each apply, start, stop and undo";

/// What is not watched of this model, of whose guests Incus runs these.
pub fn unwatched(model: &Model, of_incus: &BTreeSet<GuestName>) -> Vec<Unwatched> {
    let late = |what: String| Unwatched { what, seen: Some(WITH_EVERYTHING) };
    let mut all = Vec::new();
    for (name, _) in model.guests.iter().filter(|(_, guest)| guest.kind == GuestKind::Vm) {
        all.push(late(format!(
            "the inside of VM {name} (MAC, MTU, links, IP addresses), and whether it is suspended"
        )));
    }
    let vms = model.guests.values().filter(|guest| guest.kind == GuestKind::Vm);
    let vfs: Vec<String> =
        vms.flat_map(|vm| &vm.functions).map(|function| function.name.to_string()).collect();
    if !vfs.is_empty() {
        all.push(late(format!("a reset of what VMs have through VFIO: {}", vfs.join(", "))));
    }
    if model.realtime.is_some() || model.guests.values().any(|guest| guest.realtime.is_some()) {
        all.push(late(
            "real time: partitions, interrupts, workqueues, throttling, idle states, frequencies, cache ways, how threads are scheduled"
                .to_owned(),
        ));
    }
    if !model.guests.is_empty() {
        all.push(late("limits, pins, rates, devices and generated files of guests".to_owned()));
    }
    for name in of_incus {
        let what = format!("{name}, which Incus runs: `penstock verify` without --watch looks into it");
        all.push(Unwatched { what, seen: None });
    }
    let frames = "whether frames pass, and forged ones: `penstock verify` without --watch sends some";
    all.push(Unwatched { what: frames.to_owned(), seen: None });
    all
}

#[cfg(test)]
mod tests {
    use penstock_model::Source;

    use super::*;

    fn whats(text: &str) -> Vec<String> {
        let model =
            penstock_model::parse(&Source::new("m.yaml", text)).expect("the test's model is good").model;
        unwatched(&model, &BTreeSet::new()).into_iter().map(|unwatched| unwatched.what).collect()
    }

    #[test]
    fn what_is_not_watched_of_a_model_is_said() {
        let without = whats("nics: {NET0: {vfs: 1}}");
        assert_eq!(without.len(), 1, "{without:?}");
        let containers = whats("{nics: {NET0: {vfs: 2}}, guests: {a: {functions: [NET0#0]}}}").join("; ");
        assert!(containers.contains("limits") && !containers.contains("VFIO"), "{containers}");
        let vms = whats(
            "{nics: {NET0: {vfs: 2}}, realtime: {isolated: 2-3}, guests: {a: {kind: vm, functions: [NET0#0, NET0#1]}, b: {}}}",
        );
        assert!(
            vms[0].starts_with("the inside of VM a (") && vms[1].ends_with("through VFIO: NET0#0, NET0#1"),
            "{vms:?}"
        );
        assert!(vms[2].starts_with("real time: ") && vms.len() == 5, "{vms:?}");
        let empty = penstock_model::parse(&Source::new("m.yaml", "nics: {NET0: {vfs: 1}}")).unwrap().model;
        let one = unwatched(&empty, &["web".parse().unwrap()].into());
        assert!(one[0].what.starts_with("web, which Incus runs") && one[0].seen.is_none(), "{one:?}");
    }
}
