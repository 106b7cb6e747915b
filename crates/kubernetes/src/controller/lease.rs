//! The Lease that one of several controllers holds (`coordination.k8s.io/v1`; client-go's `leaderelection` does the same). It keeps two from
//! working in vain; that they do no harm does not depend on it.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, Error, api::PostParams};
use penstock_host::running::RunsOn;
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    client::ApiError,
    log::{self, LastingTrouble},
    machine::manifests::CONTROLLER,
};

/// So long nobody else takes it after it was renewed.
const DURATION: Duration = Duration::from_secs(15);

/// It is renewed, or asked for, so often.
const RENEW: Duration = Duration::from_secs(5);

/// A request for it may take so long.
const WITHIN: Duration = Duration::from_secs(4);

/// Whether this controller is the one that works.
pub struct Leadership {
    api: Api<Lease>,
    identity: String,
    /// Until then it is ours.
    held_until: Option<Instant>,
    /// Whether it was when that was told last: it runs out between two looks.
    told: bool,
    /// Who has it, with which renewal, and since when we have seen that: clocks of others are not compared with ours.
    seen: Option<(String, Option<Timestamp>, Instant)>,
    next: Instant,
    trouble: LastingTrouble,
}

impl Leadership {
    /// Not held yet.
    pub fn new(client: Client, namespace: &str) -> Leadership {
        let identity = identity(&RunsOn::here().host, Timestamp::now());
        Leadership {
            api: Api::namespaced(client, namespace),
            identity,
            held_until: None,
            told: false,
            seen: None,
            next: Instant::now(),
            trouble: LastingTrouble::new("hold the Lease"),
        }
    }

    /// Whether it is held now.
    pub fn is_held(&self) -> bool {
        self.held_until.is_some_and(|until| Instant::now() < until)
    }

    /// Waits until it is time, and renews it or asks for it. Comes back when that made a difference. May be dropped at any time.
    pub async fn tend(&mut self) {
        loop {
            sleep_until(self.next).await;
            self.next = Instant::now() + RENEW;
            let asked = Instant::now();
            match timeout(WITHIN, self.ask()).await {
                Ok(Ok(true)) => {
                    self.trouble.end();
                    self.held_until = Some(asked + DURATION);
                }
                Ok(Ok(false)) => {
                    self.trouble.end();
                    self.held_until = None;
                }
                Ok(Err(error)) => self.trouble.meet(&ApiError::from(error)),
                Err(_) => self.trouble.meet_words(format!("no answer within {} s", WITHIN.as_secs())),
            }
            let held = self.is_held();
            match (std::mem::replace(&mut self.told, held), held) {
                (false, true) => log::say("this controller holds the Lease, and decides"),
                (true, false) => log::say("this controller lost the Lease, and decides nothing"),
                _ => continue,
            }
            return;
        }
    }

    async fn ask(&mut self) -> Result<bool, Error> {
        let Some(mut lease) = self.api.get_opt(CONTROLLER).await? else {
            let metadata = ObjectMeta { name: Some(CONTROLLER.to_owned()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.ours(0)) };
            return won(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let renewed = spec.renew_time.as_ref().map(|time| time.0);
        if self.seen.as_ref().is_none_or(|(who, when, _)| (who, when) != (&holder, &renewed)) {
            self.seen = Some((holder.clone(), renewed, Instant::now()));
        }
        let lasts = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).max(0) as u64);
        let left =
            self.seen.as_ref().map_or(Duration::ZERO, |(_, _, since)| lasts.saturating_sub(since.elapsed()));
        if holder != self.identity && !holder.is_empty() && !left.is_zero() {
            self.next = self.next.min(Instant::now() + left);
            return Ok(false);
        }
        let transitions = spec.lease_transitions.unwrap_or(0) + i32::from(holder != self.identity);
        let acquired = spec.acquire_time.filter(|_| holder == self.identity);
        let mut ours = self.ours(transitions);
        ours.acquire_time = acquired.or(ours.acquire_time);
        lease.spec = Some(ours);
        // With the resourceVersion that was read: of two that ask at once one gets it.
        won(self.api.replace(CONTROLLER, &PostParams::default(), &lease).await)
    }

    fn ours(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(DURATION.as_secs() as i32),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    /// Gives it back, so that another need not wait.
    pub async fn release(&mut self) {
        if !self.is_held() {
            return;
        }
        let given = async {
            let Some(mut lease) = self.api.get_opt(CONTROLLER).await? else { return Ok(()) };
            match &mut lease.spec {
                Some(spec) if spec.holder_identity.as_ref() == Some(&self.identity) => {
                    spec.holder_identity = Some(String::new());
                }
                _ => return Ok(()),
            }
            self.api.replace(CONTROLLER, &PostParams::default(), &lease).await.map(|_| ())
        };
        // Who does not hear of it waits until it has run out.
        let _: Result<Result<(), Error>, _> = timeout(WITHIN, given).await;
    }
}

/// By which name a controller holds it: that of its machine or its pod, so that somebody who looks finds it. Each process of a pod is the first one
/// there, so the time of its start makes it unique over restarts too: whoever was killed may still write for as long as a request lasts.
fn identity(host: &str, since: Timestamp) -> String {
    format!("{host}_{}-{:x}", std::process::id(), since.as_nanosecond())
}

/// Whether a write of the Lease made it ours.
fn won(written: Result<Lease, Error>) -> Result<bool, Error> {
    match written {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_says_which_pod_has_it() {
        let at = |nanosecond| Timestamp::from_nanosecond(nanosecond).unwrap();
        let (first, second) =
            (identity("penstock-controller-x", at(1)), identity("penstock-controller-x", at(2)));
        assert!(first.starts_with("penstock-controller-x_"), "{first}");
        assert_ne!(first, second, "a container that was started anew in its pod is another one");
    }
}
