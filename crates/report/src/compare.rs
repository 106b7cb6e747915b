//! Two runs compared, B with A: what they were made with, and what came out differently.

mod outcomes;
mod page;
mod verdicts;
mod view;
mod words;

use penstock_model::measurement::{
    Measurements,
    latency::{Latency, Series},
    run_comparison::{CellsComparison, Fact, RunComparison, RunName, Turn, pair},
};

use crate::Evidence;

pub use page::html;
pub use words::{markdown, summary};

/// The comparison of two runs. `cells` and `rulings` were made of their measurements.
pub fn compare(
    a: &Evidence,
    b: &Evidence,
    cells: Option<CellsComparison>,
    rulings: Vec<Turn>,
) -> RunComparison {
    let name =
        |evidence: &Evidence| RunName { id: evidence.run.id.clone(), started: evidence.run.started.clone() };
    let mut comparison = RunComparison {
        a: name(a),
        b: name(b),
        facts: facts(a, b),
        cells,
        rulings,
        verdicts: verdicts::turns(a, b),
        outcomes: outcomes::turns(a, b),
        unpaired: outcomes::unpaired(a, b),
        notes: Vec::new(),
    };
    comparison.notes = notes(a, b, &comparison);
    comparison
}

/// Whether the runs were of the same model file, or may have been. What the model asks of both and only one tells is then no
/// wish that was dropped.
pub fn same_model(a: &Evidence, b: &Evidence) -> bool {
    match (&a.hashes.model, &b.hashes.model) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

/// What the runs were made with, in one order; what neither tells is left out.
fn facts(a: &Evidence, b: &Evidence) -> Vec<Fact> {
    let of = |tell: &dyn Fn(&Evidence) -> Option<String>| {
        let told = |evidence: &Evidence| tell(evidence).filter(|text| !text.is_empty());
        (told(a), told(b))
    };
    let mut facts = Vec::new();
    let mut add = |what: &str, hardware: bool, tell: &dyn Fn(&Evidence) -> Option<String>| {
        let (a, b) = of(tell);
        if a.is_some() || b.is_some() {
            facts.push(Fact { what: what.to_owned(), a, b, hardware });
        }
    };
    let measured = |e: &Evidence, tell: &dyn Fn(&Measurements) -> String| e.measurements.as_ref().map(tell);
    add("machine", false, &|e| Some(e.machine.name.clone()));
    add("real or emulated", true, &|e| Some(if e.machine.emulated { "emulated" } else { "real" }.to_owned()));
    add("inventory", true, &|e| e.hashes.inventory.clone());
    add("NIC drivers", true, &|e| {
        let drivers = e.machine.nics.iter().map(|nic| {
            let driver = nic.emulated_by.as_deref().or(nic.driver.as_deref());
            format!("{} {}", nic.name, driver.unwrap_or("not known"))
        });
        Some(drivers.collect::<Vec<_>>().join(", "))
    });
    add("link speeds", true, &|e| {
        let links = e.measurements.iter().flat_map(|measurements| &measurements.links);
        // A driver that tells no speed, as those of VFs and of virtio, is no reason to leave its link out of what is compared.
        let told = links.map(|link| match link.speed {
            Some(speed) => format!("{} {speed} Mbit/s", link.end),
            None => format!("{} not reported", link.end),
        });
        Some(told.collect::<Vec<_>>().join(", "))
    });
    add("accelerator", true, &|e| e.versions.accelerator.as_ref().map(|chosen| chosen.name.clone()));
    add("model", false, &|e| e.hashes.model.clone());
    add("kernel", false, &|e| e.versions.kernel.clone());
    add("Penstock", false, &|e| Some(e.versions.penstock.clone()));
    add("Penstock's commit", false, &|e| e.versions.commit.clone());
    add("Penstock's binary", false, &|e| e.hashes.binary.clone());
    add("QEMU", false, &|e| e.versions.qemu.clone());
    add("image", false, &|e| e.hashes.image.clone());
    add("measured", false, &|e| {
        measured(e, &|m| if m.quick { "the quick subset" } else { "all of it" }.to_owned())
    });
    add("rules of stopping", false, &|e| {
        measured(e, &|m| {
            let rules = &m.rules;
            format!(
                "confidence {}, half width {}, {} to {} samples, {} of warm-up, {} ms each",
                rules.confidence,
                rules.half_width,
                rules.minimum,
                rules.maximum,
                rules.warm_up,
                rules.dwell_ms
            )
        })
    });
    add("seed", false, &|e| measured(e, &|m| m.seed.to_string()));
    add("exit status", false, &|e| e.run.exit.map(|exit| exit.to_string()));
    let wakes = |e: &Evidence, tell: &dyn Fn(&Latency) -> String| e.latency.as_ref().map(tell);
    add("a spike", false, &|e| wakes(e, &|latency| format!("{} us or longer", latency.spike)));
    add("blocks of latencies", false, &|e| {
        let block = e.latency.as_ref()?.series.iter().flat_map(Series::counted).next()?;
        Some(format!("{} s", block.seconds))
    });
    add("seed of the latencies", false, &|e| wakes(e, &|latency| latency.seed.to_string()));
    facts.extend(tools(a, b));
    facts
}

/// The tools by place.
fn tools(a: &Evidence, b: &Evidence) -> Vec<Fact> {
    let of = |evidence: &Evidence| -> Vec<(String, String)> {
        let unknown = || "missing, or tells no version".to_owned();
        let tools = evidence.measurements.iter().flat_map(|measurements| &measurements.tools);
        let told = tools.map(|tool| {
            (format!("{}, {}", tool.tool, tool.place), tool.version.clone().unwrap_or_else(unknown))
        });
        let of_latencies = evidence.latency.iter().flat_map(|latency| &latency.tools);
        let of_latencies = of_latencies.map(|tool| {
            (format!("{}, {}", tool.tool, tool.place), tool.version.clone().unwrap_or_else(unknown))
        });
        told.chain(of_latencies).collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    let pairs = pair(&of_a, &of_b, |(what, _)| what.as_str()).into_iter();
    let fact = pairs.filter_map(|(a, b)| {
        let (what, _) = a.or(b)?;
        let version = |tool: Option<&(String, String)>| tool.map(|(_, version)| version.clone());
        Some(Fact { what: what.clone(), a: version(a), b: version(b), hardware: false })
    });
    fact.collect()
}

fn notes(a: &Evidence, b: &Evidence, comparison: &RunComparison) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: &str| notes.push(text.to_owned());
    if comparison.same_hardware() == Some(false) {
        note(
            "The runs were on different hardware, or on a machine whose hardware has changed: what differs may be the machine.",
        );
    }
    if a.machine.emulated || b.machine.emulated {
        note(
            "A board is emulated: its absolute values follow the load of the machine that emulates it. Only ratios inside one run mean anything, and they can be compared by their `expect:` lines.",
        );
    }
    let any = |evidence: &Evidence| evidence.measurements.is_some() || evidence.latency.is_some();
    match (any(a), any(b)) {
        (false, false) => note("Neither run measured anything: verdicts alone are compared."),
        (false, true) => note("A measured nothing."),
        (true, false) => note("B measured nothing."),
        (true, true) => {}
    }
    let keyless: Vec<&str> =
        [("A", a), ("B", b)].into_iter().filter(|(_, run)| !run.has_keys()).map(|(name, _)| name).collect();
    if !keyless.is_empty() {
        let were = if keyless.len() == 1 { "was" } else { "were" };
        let text = format!(
            "{} {were} written by an older Penstock, whose verdicts have no keys of their own. They are paired by what they are about, \
             from where it was seen, and what was wanted; those that agree in all of that in their order. What finds no partner may \
             be there by other words.",
            keyless.join(" and ")
        );
        note(&text);
    }
    if !same_model(a, b) {
        note("The model is another one: what only one run has is shown and not compared.");
    }
    if a.latency.is_some() && b.latency.is_some() {
        note(
            "Of latencies a sample is a block: \"max\" is the median of the blocks' longest, not the longest of all, which is a single wake-up.",
        );
    }
    if a == b {
        note("Both are the same run.");
    }
    notes
}

#[cfg(test)]
mod tests;
