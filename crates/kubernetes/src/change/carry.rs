//! Carries a change to its end: confirmed, or as it was before.

use std::{collections::BTreeSet, time::Duration};

use penstock_model::Bdf;
use tokio::time::{Instant, sleep};

use super::{
    Agent, ChangeError, probes,
    progress::{Applied, Progress},
    report,
    verbs::{self, Answer},
};
use crate::{
    claim, log,
    machine::{
        UtcTime,
        condition::shortened,
        node::{Change, ChangeResult, LONGEST_MESSAGE, Outcome, PlanSummary, VerdictCounts},
    },
    plugin::orphans::blocking,
    rollout::Record,
    runs::{self, Run},
};

/// Whatever is waited for is looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// So often a change is begun that was ended before it did anything.
const ATTEMPTS: u32 = 3;

/// So long before the guard decides no proof is begun any more.
const MARGIN: Duration = Duration::from_secs(2);

/// So long beyond the time to confirm within a guard may need to take a run back before that is called half-way. It goes on after that.
const TAKING_BACK: Duration = Duration::from_secs(300);

/// It is waited so long for the end of claims that have VFs which go.
const UNPREPARED: Duration = Duration::from_secs(30);

/// How it begins what is told while a change waits for the end of claims.
const WAITS: &str = "waits until kubelet asks for the end of claims: ";

/// So long a call that prepares a claim may take.
const PREPARING: Duration = Duration::from_secs(60);

/// The machine was reset (`status` has the run under `lapsed`), or it was decided otherwise: `confirm` says no.
const NO: i32 = 1;

impl Agent {
    /// Carries a change on from wherever it is, to its end.
    pub(super) async fn carry_out(&mut self, mut progress: Progress) -> Result<ChangeResult, ChangeError> {
        let model = self.store.model(&progress.hash);
        loop {
            let Some(run) = self.run_of(&progress).await? else {
                if progress.boot != self.boot {
                    return Ok(ended(
                        &progress,
                        Outcome::Lapsed,
                        None,
                        "this node was started anew before anything was changed",
                    ));
                }
                if progress.attempts >= ATTEMPTS {
                    let why =
                        format!("begun {ATTEMPTS} times, and ended each time before anything was changed");
                    return Ok(ended(&progress, Outcome::Failed, None, &why));
                }
                if let Some(why) = self.in_the_way(&progress).await? {
                    return Ok(ended(
                        &progress,
                        Outcome::Lapsed,
                        None,
                        &format!("{why}; nothing was changed"),
                    ));
                }
                progress.attempts += 1;
                self.store.keep_progress(&progress)?;
                let peers = self.peers().await;
                log::say(format!("change {}: applies {}", progress.number, model.display()));
                let answer =
                    self.verbs.apply(&model, progress.confirm_within.0, &progress.allow, &peers).await?;
                progress.applied = Some(UtcTime::now());
                self.store.keep_progress(&progress)?;
                if let Some(result) = self.after_apply(&progress, &answer).await? {
                    return Ok(result);
                }
                continue;
            };
            if progress.boot != self.boot {
                return self.after_reset(&progress, &run).await;
            }
            if run.running {
                // An `apply` that outlived the agent that began it.
                sleep(LOOK).await;
                continue;
            }
            if run.waits_for_confirmation {
                // An agent that was ended does not know when `apply` did: from now on counts.
                let applied = *progress.applied.get_or_insert_with(UtcTime::now);
                self.store.keep_progress(&progress)?;
                let why = match self.prove(&progress, &run, applied).await? {
                    Ok(counts) => match self.confirm(&progress, &run, counts).await? {
                        Ok(result) => return Ok(result),
                        Err(why) => why,
                    },
                    Err(why) => why,
                };
                log::say(format!(
                    "change {}: not confirmed, its guard takes it back: {why}",
                    progress.number
                ));
                return self.taken_back(&progress, &run, &why).await;
            }
            return self.decided(&progress, &run).await;
        }
    }

    /// Whether a granted change waits for the end of claims, which kubelet may ask for long after their pods are gone: they were deleted by force, or
    /// kubelet is down. The change stays open meanwhile, so that nobody is given what goes, and can be called off. It is told once.
    pub(super) async fn awaits_claims(
        &mut self,
        change: &Change,
        record: &Record,
        allow: &[String],
    ) -> Result<bool, ChangeError> {
        let held = claim::held_functions(&self.settings.state)?;
        let Some(waiting) = waiting(change, record, allow, &held) else { return Ok(false) };
        let is_told = record.status.plan.as_ref().is_some_and(|plan| plan.message.starts_with(WAITS));
        if !is_told {
            log::say(format!("change {}: {}", change.number, waiting.message));
            let result = record.status.result.clone();
            self.tell(&report::status(Some(waiting), result, &record.status, UtcTime::now())).await?;
        }
        Ok(true)
    }

    /// Waits until no claim is prepared with a VF that goes: one may have been since that was looked at last. From now on none is
    /// ([`super::going`]). Why not, where that takes too long.
    async fn in_the_way(&self, progress: &Progress) -> Result<Option<String>, ChangeError> {
        let until = Instant::now() + UNPREPARED;
        loop {
            let state = self.settings.state.clone();
            let held = blocking(move || claim::held_when_nothing_is_prepared(&state, PREPARING)).await?;
            match prepared(&progress.vanishing, &progress.allow, &held) {
                Some(why) if Instant::now() >= until => return Ok(Some(why)),
                Some(_) => sleep(LOOK).await,
                None => return Ok(None),
            }
        }
    }

    /// The run of a change.
    async fn run_of(&self, progress: &Progress) -> Result<Option<Run>, ChangeError> {
        let model = self.store.model(&progress.hash);
        let runs = runs::list(&self.settings.penstock).await?;
        Ok(runs.into_iter().rfind(|run| run.run > progress.runs_before && run.applies(&model)))
    }

    /// What `apply` ended with. `None`: there is a run to be looked at.
    async fn after_apply(
        &self,
        progress: &Progress,
        answer: &Answer,
    ) -> Result<Option<ChangeResult>, ChangeError> {
        let run = self.run_of(progress).await?;
        let number = run.as_ref().map(|run| run.run);
        let why = answer.why();
        Ok(match answer.exit {
            // Not all of what the model requires, or a guest failed: the rest is there, and waits for what nobody confirms.
            0 | NO if run.is_some() => None,
            0 => {
                // Nothing was left to be done meanwhile.
                let model = self.store.model(&progress.hash);
                let verified = self.verbs.verify(&model).await?;
                let (counts, first) = verbs::verdicts(&verified.document);
                let (outcome, message) = match verified.exit {
                    0 => (Outcome::Verified, "nothing had to be changed".to_owned()),
                    _ => (
                        Outcome::Failed,
                        format!(
                            "nothing had to be changed, and yet it does not hold: {}",
                            first.unwrap_or_else(|| verified.why())
                        ),
                    ),
                };
                if outcome == Outcome::Verified {
                    self.keep_applied(progress)?;
                }
                Some(ChangeResult { verdicts: Some(counts), ..ended(progress, outcome, None, &message) })
            }
            5 => Some(ended(progress, Outcome::RolledBack, number, &why)),
            7 => Some(ended(progress, Outcome::HalfWay, number, &why)),
            // A run that was begun has a guard, which takes back what is there.
            _ if run.as_ref().is_some_and(|run| !run.is_gone()) => None,
            _ => Some(ended(progress, Outcome::Failed, number, &format!("{why}; nothing was changed"))),
        })
    }

    /// Proves that the node still works and is what the model says; or why not, when there is no time left.
    async fn prove(
        &self,
        progress: &Progress,
        run: &Run,
        applied: UtcTime,
    ) -> Result<Result<VerdictCounts, String>, ChangeError> {
        let model = self.store.model(&progress.hash);
        let until = Instant::now()
            + progress.confirm_within.0.saturating_sub(MARGIN).saturating_sub(UtcTime::now().since(applied));
        loop {
            let why = match probes::probe(&self.settings.client, &self.settings.node, applied).await {
                Err(why) => why,
                Ok(()) => {
                    let answer = self.verbs.verify(&model).await?;
                    let (counts, first) = verbs::verdicts(&answer.document);
                    if answer.exit == 0 {
                        return Ok(Ok(counts));
                    }
                    match first {
                        Some(first) => format!(
                            "{} verdicts fail, the first: {first}",
                            counts.fail + counts.unknown + counts.unsupported
                        ),
                        None => answer.why(),
                    }
                }
            };
            let still = self
                .run_of(progress)
                .await?
                .is_some_and(|now| now.run == run.run && now.waits_for_confirmation);
            if Instant::now() >= until || !still {
                return Ok(Err(why));
            }
            sleep(LOOK).await;
        }
    }

    async fn confirm(
        &self,
        progress: &Progress,
        run: &Run,
        counts: VerdictCounts,
    ) -> Result<Result<ChangeResult, String>, ChangeError> {
        let answer = self.verbs.confirm(run.run).await?;
        if answer.exit != 0 {
            return Ok(Err(answer.why()));
        }
        self.keep_applied(progress)?;
        let result = ended(progress, Outcome::Verified, Some(run.run), "");
        Ok(Ok(ChangeResult { verdicts: Some(counts), ..result }))
    }

    fn keep_applied(&self, progress: &Progress) -> Result<(), ChangeError> {
        self.store.keep_applied(&Applied { hash: progress.hash.clone(), boot: self.boot.clone() })?;
        self.show(self.store.model(&progress.hash));
        Ok(())
    }

    /// Waits until the guard has taken a run back.
    async fn taken_back(
        &self,
        progress: &Progress,
        run: &Run,
        why: &str,
    ) -> Result<ChangeResult, ChangeError> {
        let until = Instant::now() + progress.confirm_within.0 + TAKING_BACK;
        loop {
            let now = self.run_of(progress).await?.filter(|now| now.run == run.run);
            match now {
                Some(now) if now.is_gone() && !now.waits_for_confirmation => {
                    let message = format!("not confirmed, and taken back by the node itself: {why}");
                    return Ok(ended(progress, Outcome::RolledBack, Some(run.run), &message));
                }
                None => {
                    let message =
                        format!("not confirmed, and its run {} is not listed any more: {why}", run.run);
                    return Ok(ended(progress, Outcome::HalfWay, Some(run.run), &message));
                }
                Some(_) if Instant::now() >= until => {
                    let message = format!(
                        "not confirmed, and not all taken back yet; the guard goes on, see `penstock status` on the node: {why}"
                    );
                    return Ok(ended(progress, Outcome::HalfWay, Some(run.run), &message));
                }
                Some(_) => sleep(LOOK).await,
            }
        }
    }

    /// A run that waits for nobody any more: it was confirmed, or is being taken back.
    async fn decided(&self, progress: &Progress, run: &Run) -> Result<ChangeResult, ChangeError> {
        let answer = self.verbs.confirm(run.run).await?;
        match answer.exit {
            0 => {
                // Confirmed by this agent, before it was ended.
                let verified = self.verbs.verify(&self.store.model(&progress.hash)).await?;
                let (counts, first) = verbs::verdicts(&verified.document);
                self.keep_applied(progress)?;
                let message = match verified.exit {
                    0 => String::new(),
                    _ => format!(
                        "confirmed, and has drifted since: {}",
                        first.unwrap_or_else(|| verified.why())
                    ),
                };
                let result = ended(progress, Outcome::Verified, Some(run.run), &message);
                Ok(ChangeResult { verdicts: Some(counts), ..result })
            }
            _ => self.taken_back(progress, run, &answer.why()).await,
        }
    }

    /// The machine was reset in the middle of the change.
    async fn after_reset(&self, progress: &Progress, run: &Run) -> Result<ChangeResult, ChangeError> {
        let answer = self.verbs.confirm(run.run).await?;
        if answer.exit == 0 {
            let why = "confirmed, and then this node was started anew";
            return Ok(ended(progress, Outcome::Lapsed, Some(run.run), why));
        }
        let why = "this node was started anew before the change was confirmed";
        if !run.is_gone() {
            let undone = self.verbs.undo(run.run).await?;
            if undone.exit != 0 {
                let message = format!("{why}, and what it left could not be taken back: {}", undone.why());
                return Ok(ended(progress, Outcome::HalfWay, Some(run.run), &message));
            }
        }
        Ok(ended(progress, Outcome::RolledBack, Some(run.run), why))
    }
}

/// The plan of a granted change that waits for the end of claims, with what is told meanwhile. `None`: it need not wait.
fn waiting(change: &Change, record: &Record, allow: &[String], held: &BTreeSet<Bdf>) -> Option<PlanSummary> {
    let why = prepared(&super::vanishing(record, Some(change)), allow, held)?;
    let message = shortened(&format!("{WAITS}{why}"), LONGEST_MESSAGE);
    record.status.plan.clone().map(|plan| PlanSummary { message, ..plan })
}

/// That claims are prepared with VFs which a change destroys, unless it was allowed to take them from whoever has them.
fn prepared(vanishing: &BTreeSet<String>, allow: &[String], held: &BTreeSet<Bdf>) -> Option<String> {
    let going: Vec<String> =
        held.iter().map(ToString::to_string).filter(|vf| vanishing.contains(vf)).collect();
    let allowed = allow.iter().any(|name| name.starts_with(report::VFS_IN_USE));
    (!going.is_empty() && !allowed)
        .then(|| format!("claims are prepared on this node with VFs that go: {}", going.join(", ")))
}

fn ended(progress: &Progress, outcome: Outcome, run: Option<u64>, message: &str) -> ChangeResult {
    ChangeResult {
        number: progress.number,
        hash: progress.hash.clone(),
        outcome,
        run,
        verdicts: None,
        message: shortened(message, LONGEST_MESSAGE),
        at: UtcTime::now(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::machine::{
        Span,
        node::{PlanOutcome, Stage},
    };

    #[test]
    fn a_claim_that_was_prepared_meanwhile_is_in_the_way_unless_its_vf_may_be_taken() {
        let vf: Bdf = "0000:01:10.0".parse().unwrap();
        let vanishing = BTreeSet::from([vf.to_string()]);
        let prepared = |allow: &[&str], held: &BTreeSet<Bdf>| {
            let allow: Vec<String> = allow.iter().map(|name| (*name).to_owned()).collect();
            super::prepared(&vanishing, &allow, held)
        };
        let other = BTreeSet::from(["0000:01:10.2".parse().unwrap()]);
        assert_eq!(prepared(&[], &other), None);
        let told = prepared(&["ssh:eno1"], &BTreeSet::from([vf])).unwrap();
        assert!(told.ends_with("with VFs that go: 0000:01:10.0"), "{told}");
        assert_eq!(prepared(&["vfs-in-use:NET0"], &BTreeSet::from([vf])), None);
    }

    #[test]
    fn a_granted_change_stays_open_while_claims_have_what_goes() {
        let vf: Bdf = "0000:01:10.0".parse().unwrap();
        let record = |plan: &str, message: &str| -> Record {
            let plan = json!({"machine": "m", "hash": "h", "digest": plan, "outcome": "Planned", "at": UtcTime(1),
                "vanishing": [{"name": "NET0#0", "address": vf.to_string()}], "message": message});
            let status = serde_json::from_value(json!({"plan": plan})).unwrap();
            Record { status, ..Record::default() }
        };
        let change = Change {
            number: 3,
            hash: "h".to_owned(),
            plan: "d".to_owned(),
            stage: Stage::Go,
            since: UtcTime(1),
            confirm_within: Span::seconds(60),
            cordon: false,
        };
        let (planned, held) = (record("d", ""), BTreeSet::from([vf]));
        let told = waiting(&change, &planned, &[], &held).unwrap();
        assert!(
            told.message.starts_with(WAITS) && told.message.ends_with("0000:01:10.0"),
            "{}",
            told.message
        );
        // The grant is for what it was: nobody drains the node again.
        assert_eq!((told.digest.as_str(), told.outcome), ("d", PlanOutcome::Planned));
        let again = waiting(&change, &record("d", &told.message), &[], &held);
        assert_eq!(again.map(|plan| plan.message), Some(told.message));
        assert_eq!(waiting(&change, &planned, &[], &BTreeSet::new()), None, "all have ended");
        assert_eq!(waiting(&change, &planned, &["vfs-in-use:NET0".to_owned()], &held), None);
        assert_eq!(waiting(&change, &record("another", ""), &[], &held), None, "it is not carried out");
    }
}
