//! All rules, applied to one machine.

use penstock_model::{
    Inventory, Model,
    audit::{self, Audit, AuditOutcome, LeftOut, Price, Row, Score},
};

use crate::{
    machine::{Machine, read},
    rule::{Finding, NoFinding, Rule, RuleResult, left_out, unknown},
    rules::rules,
    unobservable,
};

/// Judges a machine; with a model, only by what that needs, on the CPUs that its real-time guests use.
pub fn audit(inventory: &Inventory, model: Option<&Model>) -> Audit {
    let machine = Machine::new(inventory, model);
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for rule in rules() {
        match said(rule, &machine) {
            Ok(findings) => rows.extend(findings.into_iter().map(|finding| row(rule, finding))),
            Err(NoFinding::Unknown(why)) => rows.push(row(rule, Finding::unknown(why, rule.what))),
            Err(NoFinding::LeftOut(why)) => left_out.push(LeftOut { rule: rule.id.to_owned(), why }),
        }
    }
    let score = Score::of(&rows);
    let (kernel, cpu) = (inventory.kernel.release.clone(), inventory.cpus.model.clone());
    Audit {
        kernel,
        cpu,
        cpus: machine.judged().clone(),
        rows,
        left_out,
        blind: unobservable::unobservable(),
        score,
    }
}

fn said(rule: &Rule, machine: &Machine<'_>) -> RuleResult {
    if !machine.looked {
        return unknown("not observed: the inventory has nothing about the machine's tuning");
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
    if verdict == AuditOutcome::Pass {
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
