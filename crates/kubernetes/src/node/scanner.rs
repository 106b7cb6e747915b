//! Looks at the machine whenever something may have changed. What a run makes that is under way, or that nobody has confirmed yet, may be gone in
//! a moment: it is given to nobody. What such a run takes away is withdrawn at once.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_host::files;
use thiserror::Error;
use tokio::{
    sync::watch,
    time::{self, sleep_until},
};

use crate::{
    claim,
    client::Connection,
    devices::{Devices, Input, KnownNics},
    inventory::{self, DeviceWatch, Memory, ModelInForce},
    log::{self, LastingTrouble},
    penstock::{Penstock, PenstockError},
    runs,
};

/// Two scans are so far apart at least: a machine where devices come and go all the time is not scanned all the time.
const SCANS: Duration = Duration::from_secs(1);

/// After so many looks in a row that say nothing it is not known any more how the machine is, unless the last good one was a moment ago
/// ([`Scanner::blind_after`]): a run that goes on for a while is looked at each second.
const FAILED: u32 = 3;
/// What [`Scanner::blind_after`] is on a node.
pub(super) const BLIND_AFTER: Duration = Duration::from_secs(30);

/// Why a look at the machine says nothing.
#[derive(Debug, Error)]
enum LookError {
    /// It could not be scanned, or its runs not be listed.
    #[error(transparent)]
    Penstock(#[from] PenstockError),
    /// It was not seen before, and somebody's run may take back what is there.
    #[error("{0}, and what was there before is not known")]
    Unsettled(String),
    /// A run began, or came to its end, while the machine was scanned.
    #[error("the machine was being changed meanwhile")]
    Meanwhile,
}

/// Looks at the machine whenever something may have changed.
pub(super) struct Scanner {
    pub penstock: Penstock,
    pub connection: Connection,
    /// The model's file, where there is one.
    pub path: watch::Receiver<Option<PathBuf>>,
    /// Whether a change of a roll-out is under way.
    pub changing: watch::Receiver<bool>,
    pub state: PathBuf,
    pub rescan: Duration,
    /// `None` until the machine was seen.
    pub devices: watch::Sender<Option<Arc<Devices>>>,
    /// The same for kubelet's plugin.
    pub published: watch::Sender<Arc<Devices>>,
    /// Whether they are all that is there.
    pub current: watch::Sender<bool>,
    /// Whether it is not known any more how the machine is.
    pub blind: watch::Sender<bool>,
    /// So long after the last look that said something it may be so.
    pub blind_after: Duration,
    /// Counts the changes of the model.
    pub changed: watch::Sender<u64>,
    /// The model's file as it was read last, whether it was good or not.
    pub judged: watch::Sender<Option<files::Stamp>>,
    /// Counts the looks whose outcome is told.
    pub looks: watch::Sender<u64>,
}

/// What a scanner has seen so far.
struct LastScan {
    path: Option<PathBuf>,
    model: Option<ModelInForce>,
    stamp: Option<files::Stamp>,
    held: BTreeSet<String>,
    addresses: Vec<IpAddr>,
    known: KnownNics,
    /// How many looks in a row have said nothing.
    failed: u32,
    /// When the last one said something, or the first one began.
    good: time::Instant,
}

impl LastScan {
    /// Nothing but how NICs were known before.
    fn none(known: KnownNics) -> LastScan {
        LastScan {
            path: None,
            model: None,
            stamp: None,
            held: BTreeSet::new(),
            addresses: Vec::new(),
            known,
            failed: 0,
            good: time::Instant::now(),
        }
    }

    /// Reads which devices claims have now; where that cannot be read they are those of before.
    fn read_held(&mut self, state: &Path, trouble: &mut LastingTrouble) {
        match claim::held(state) {
            Ok(held) => {
                trouble.end();
                self.held = held;
            }
            Err(error) => trouble.meet(&error),
        }
    }
}

/// The runs on this machine.
#[derive(PartialEq, Eq)]
struct RunsSeen {
    /// The number of the newest.
    newest: Option<u64>,
    /// Why what one of them makes may be gone in a moment.
    unsettled: Option<String>,
}

impl Scanner {
    /// Looks, for ever.
    pub(super) async fn run(mut self) {
        let events = DeviceWatch::open();
        let (mut memory, known) = Memory::open(&self.state);
        let mut seen = LastScan::none(known);
        let mut troubles = [
            LastingTrouble::new("read the model"),
            LastingTrouble::new("read which devices claims have"),
            LastingTrouble::new("look at this machine"),
        ];
        loop {
            if *self.changing.borrow() {
                self.current.send_replace(false);
            }
            let _ = self.changing.wait_for(|changing| !changing).await;
            let looked = time::Instant::now();
            let [of_model, of_claims, of_look] = &mut troubles;
            self.read_model(&mut seen, of_model);
            seen.read_held(&self.state, of_claims);
            // Without the model it is not known what guests own.
            if seen.path.is_none() || seen.model.is_some() {
                match self.look(&mut seen, of_claims).await {
                    // One that was under way when a change began saw some of it.
                    Ok(_) if self.changing.has_changed().unwrap_or(false) => continue,
                    Ok((devices, whole)) => {
                        of_look.end();
                        self.looked(&mut seen, true);
                        self.show(devices, &mut seen, &mut memory);
                        self.current.send_replace(whole);
                        self.looks.send_modify(|looks| *looks += 1);
                    }
                    Err(error) => {
                        of_look.meet(&error);
                        self.looked(&mut seen, false);
                        self.current.send_replace(false);
                    }
                }
            } else {
                self.looked(&mut seen, false);
            }
            tokio::select! {
                () = events.wait(self.rescan) => {}
                Ok(()) = self.path.changed() => {}
                Ok(()) = self.changing.changed() => {}
            }
            sleep_until(looked + SCANS).await;
        }
    }

    /// Reads the model if its file has changed. One that has become wrong leaves the last good one in force.
    fn read_model(&self, seen: &mut LastScan, trouble: &mut LastingTrouble) {
        let path = self.path.borrow().clone();
        if seen.path != path {
            (seen.path, seen.model, seen.stamp) = (path, None, None);
            self.changed.send_modify(|changes| *changes += 1);
        }
        let Some(path) = &seen.path else { return };
        let stamp = inventory::stamp(Some(path));
        if stamp.is_some() && stamp == seen.stamp {
            return;
        }
        match inventory::model(path) {
            Ok(model) => {
                trouble.end();
                seen.stamp = stamp;
                if seen.model.as_ref() != Some(&model) {
                    seen.model = Some(model);
                    self.changed.send_modify(|changes| *changes += 1);
                }
            }
            Err(error) => trouble.meet(&error),
        }
        // Last: whoever waits for this has heard by now whether the model is another one.
        self.judged.send_replace(stamp);
    }

    /// After a look that said something, or nothing: then it may be that all is as it was, for a while.
    fn looked(&self, seen: &mut LastScan, good: bool) {
        if good {
            (seen.failed, seen.good) = (0, time::Instant::now());
        } else {
            seen.failed = seen.failed.saturating_add(1);
        }
        let blind = seen.failed >= FAILED && seen.good.elapsed() >= self.blind_after;
        self.blind.send_if_modified(|told| {
            let differs = *told != blind;
            *told = blind;
            differs
        });
    }

    /// Scans the machine. What it gives is all that there is, or, while a run is not settled, what of the last look is still there.
    async fn look(
        &self,
        seen: &mut LastScan,
        of_claims: &mut LastingTrouble,
    ) -> Result<(Devices, bool), LookError> {
        let before = self.runs().await?;
        let unsettled = before.unsettled.as_deref();
        let known = self.devices.borrow().is_some();
        if let Some(why) = unsettled.filter(|_| !known) {
            return Err(LookError::Unsettled(why.to_owned()));
        }
        let devices = self.scan(seen, of_claims, unsettled).await?;
        // Of a run that began meanwhile the scan may have seen half.
        if self.devices.borrow().as_deref() != Some(&devices) && self.runs().await? != before {
            return Err(LookError::Meanwhile);
        }
        Ok((devices, unsettled.is_none()))
    }

    async fn runs(&self) -> Result<RunsSeen, LookError> {
        let runs = runs::list(&self.penstock).await?;
        let unsettled = runs.iter().find_map(|run| {
            run.why_unsettled().map(|why| format!("run {} {why} (`penstock undo --list`)", run.run))
        });
        Ok(RunsSeen { newest: runs.iter().map(|run| run.run).max(), unsettled })
    }

    async fn scan(
        &self,
        seen: &mut LastScan,
        of_claims: &mut LastingTrouble,
        unsettled: Option<&str>,
    ) -> Result<Devices, PenstockError> {
        let connection = self.connection.clone();
        // A name server that is away takes no address from us that is known.
        if let Ok(addresses) = tokio::task::spawn_blocking(move || connection.addresses()).await
            && !addresses.is_empty()
        {
            seen.addresses = addresses;
        }
        let inventory = self.penstock.scan(seen.model.as_ref(), &seen.addresses).await?;
        // A claim that was prepared, or has ended, while the machine was scanned may be seen with its VF in a pod.
        let mut held = seen.held.clone();
        seen.read_held(&self.state, of_claims);
        held.extend(seen.held.iter().cloned());
        let previous = self.devices.borrow().clone();
        Ok(Devices::of(Input {
            inventory: &inventory,
            model: seen.model.as_ref().map(|model| &model.model),
            held: &held,
            known: &seen.known,
            previous: previous.as_deref(),
            unsettled,
        }))
    }

    fn show(&self, devices: Devices, seen: &mut LastScan, memory: &mut Memory) {
        if seen.known != devices.nics {
            memory.keep(&devices.nics);
            seen.known = devices.nics.clone();
        }
        let before = self.devices.borrow().clone();
        let same = before.as_deref() == Some(&devices);
        if same {
            return;
        }
        for withheld in &devices.withheld {
            if !before.as_ref().is_some_and(|before| before.withheld.contains(withheld)) {
                log::say(format!("{} ({}) is not published: {}", withheld.name, withheld.bdf, withheld.why));
            }
        }
        log::say(format!("functions for pods: {}", devices.functions.len()));
        let devices = Arc::new(devices);
        self.published.send_replace(devices.clone());
        self.devices.send_replace(Some(devices));
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::fs;

    use penstock_testkit::script;

    use super::*;
    use crate::slices::tests::{machine, pf};

    /// `penstock` whose scan fails where the model that it is given is not `good`.
    const PENSTOCK: &str = r#"#!/bin/sh
d=$(dirname "$0")
case $1 in
undo) echo '{"runs": []}' ;;
scan)
    [ ! -e "$d/begins.json" ] || mv "$d/begins.json" "$d/claims/u-1.json"
    [ ! -e "$d/ends" ] || rm "$d/ends" "$d/claims/u-1.json"
    [ ! -e "$d/away" ] && [ "$5" = - ] && grep -q good && cat "$d/scan.json" ;;
esac
"#;

    fn scanner(directory: &Path, model: &Path) -> Scanner {
        let penstock = directory.join("penstock");
        script::write(&penstock, PENSTOCK);
        let inventory = serde_json::to_vec(&machine(vec![pf(0, 1, 2)])).unwrap();
        fs::write(directory.join("scan.json"), inventory).unwrap();
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        Scanner {
            penstock: Penstock::new(&penstock).unwrap(),
            connection: Connection {
                client: kube::Client::try_from(config).unwrap(),
                host: "127.0.0.1".to_owned(),
                port: 1,
            },
            path: watch::channel(Some(model.to_owned())).1,
            changing: watch::channel(false).1,
            state: directory.to_owned(),
            rescan: Duration::from_secs(10),
            devices: watch::channel(None).0,
            published: watch::channel(Arc::default()).0,
            current: watch::channel(false).0,
            blind: watch::channel(false).0,
            blind_after: Duration::ZERO,
            changed: watch::channel(0).0,
            judged: watch::channel(None).0,
            looks: watch::channel(0).0,
        }
    }

    #[test]
    fn a_claim_that_begins_or_ends_while_the_machine_is_scanned_has_its_vf() {
        let directory = tempfile::tempdir().unwrap();
        let model = directory.path().join("m.yaml");
        fs::write(&model, "machine: good\nnics: {NET0: {}}\n").unwrap();
        let at = |name: &str| directory.path().join(name);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let scanner = scanner(directory.path(), &model);
            let mut of_machine = machine(vec![pf(0, 1, 2)]);
            let vf = of_machine.pfs[0].sriov.as_ref().unwrap().vfs[0].bdf;
            of_machine.lifelines.as_mut().unwrap().holders.insert(vf, vec!["a pod".to_owned()]);
            fs::write(at("scan.json"), serde_json::to_vec(&of_machine).unwrap()).unwrap();
            let store = claim::state::ClaimStore::open(directory.path()).unwrap();
            let prepared = claim::state::tests::claim("u-1", "net0-0");
            let mut seen = LastScan::none(KnownNics::new());
            let mut trouble = LastingTrouble::new("read");
            scanner.read_model(&mut seen, &mut trouble);
            let mut in_use = async || {
                // As before each look.
                seen.read_held(directory.path(), &mut trouble);
                let (devices, _) = scanner.look(&mut seen, &mut trouble).await.unwrap();
                devices.functions["net0-0"].in_use.is_some()
            };
            assert!(in_use().await, "somebody has it, and no claim");
            fs::write(at("begins.json"), serde_json::to_vec(&prepared).unwrap()).unwrap();
            assert!(!in_use().await, "it was prepared meanwhile");
            fs::write(at("ends"), "").unwrap();
            assert!(!in_use().await, "it has ended meanwhile");
            assert!(store.all().unwrap().is_empty());
            assert!(in_use().await);
        });
    }

    #[test]
    fn a_model_that_becomes_wrong_leaves_the_last_good_one_to_look_by() {
        let directory = tempfile::tempdir().unwrap();
        let model = directory.path().join("m.yaml");
        fs::write(&model, "machine: good\nnics: {NET0: {}}\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut scanner = scanner(directory.path(), &model);
            let mut seen = LastScan::none(KnownNics::new());
            let mut trouble = LastingTrouble::new("read the model");
            scanner.read_model(&mut seen, &mut trouble);
            let mut claims = LastingTrouble::new("read which devices claims have");
            let first = scanner.look(&mut seen, &mut claims).await.unwrap();
            assert_eq!(first.0.functions.len(), 2);
            let judged = scanner.judged.subscribe();
            assert_eq!(*judged.borrow(), files::stamp(&model));
            fs::write(&model, "machine: other\nnics: [").unwrap();
            assert_ne!(*judged.borrow(), files::stamp(&model));
            scanner.read_model(&mut seen, &mut trouble);
            assert_eq!(*judged.borrow(), files::stamp(&model), "it was read, and is wrong");
            assert_eq!(*scanner.changed.borrow(), 2, "it is no other model");
            assert_eq!(scanner.look(&mut seen, &mut claims).await.unwrap(), first);

            // A machine that cannot be looked at is not known after a while, and known again at once.
            fs::write(directory.path().join("away"), "").unwrap();
            for (blind_after, ends) in [(Duration::from_secs(3600), false), (Duration::ZERO, true)] {
                scanner.blind_after = blind_after;
                scanner.looked(&mut seen, true);
                for failures in 1..=FAILED + 1 {
                    scanner.look(&mut seen, &mut claims).await.unwrap_err();
                    scanner.looked(&mut seen, false);
                    assert_eq!(*scanner.blind.borrow(), ends && failures >= FAILED, "{failures}");
                }
            }
            fs::remove_file(directory.path().join("away")).unwrap();
            scanner.look(&mut seen, &mut claims).await.unwrap();
            scanner.looked(&mut seen, true);
            assert!(!*scanner.blind.borrow());
        });
    }
}
