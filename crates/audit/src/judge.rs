//! All rules, applied to one machine.

use penstock_model::{
    Inventory, Model,
    audit::{self, Audit, Judgement, LeftOut, Price, Row, Score},
};

use crate::{
    blind,
    machine::{Machine, read},
    rule::{Finding, Rule, Said, Silent, left_out, unknown},
    rules::rules,
};

/// Judges a machine; with a model, only by what that needs, on the CPUs that its real-time guests use.
pub fn audit(inventory: &Inventory, model: Option<&Model>) -> Audit {
    let machine = Machine::new(inventory, model);
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for rule in rules() {
        match said(rule, &machine) {
            Ok(findings) => rows.extend(findings.into_iter().map(|finding| row(rule, finding))),
            Err(Silent::Unknown(why)) => rows.push(row(rule, Finding::unknown(why, rule.what))),
            Err(Silent::LeftOut(why)) => left_out.push(LeftOut { rule: rule.id.to_owned(), why }),
        }
    }
    let score = Score::of(&rows);
    let (kernel, cpu) = (inventory.kernel.release.clone(), inventory.cpus.model.clone());
    Audit { kernel, cpu, cpus: machine.judged().clone(), rows, left_out, blind: blind::blind(), score }
}

fn said(rule: &Rule, machine: &Machine<'_>) -> Said {
    if !machine.looked {
        return unknown("nobody looked: the inventory says nothing of the machine's tuning");
    }
    if !machine.needs(rule.need) {
        return left_out("the model asks for nothing of it");
    }
    machine.line.forget();
    let said = (rule.judge)(machine);
    if machine.line.was_asked() {
        // A line that may not be read has no words, and lacks none.
        read(&machine.tuning.command_line, "/proc/cmdline")?;
    }
    said
}

fn row(rule: &Rule, finding: Finding) -> Row {
    let Finding { subject, verdict, read, wanted, mut ways, price } = finding;
    // What is as it should be has nothing to change, and its price is paid.
    if verdict == Judgement::Pass {
        ways.clear();
    }
    let of_rule = || {
        let (currency, what) = rule.price?;
        Some(Price { currency, what: what.to_owned() })
    };
    Row {
        rule: rule.id.to_owned(),
        layer: rule.layer,
        subject,
        verdict,
        read,
        wanted,
        why: rule.why.to_owned(),
        price: price.or_else(of_rule),
        change: audit::text(&ways),
        ways,
        source: rule.source.to_owned(),
        needs_root: rule.needs_root,
    }
}
