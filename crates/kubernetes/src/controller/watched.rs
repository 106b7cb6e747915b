//! Watches that go on whatever happens, and what is kept of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    pin::Pin,
    time::Duration,
};

use kube::{
    Api, Resource, ResourceExt,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tokio_stream::{Stream, StreamExt};

use crate::{client::ApiError, log::LastingTrouble, pace::Backoff};

/// A watch is begun anew after so long (seconds): a connection that died unseen is not listened to for longer.
const WATCH: u32 = 290;

/// So many objects are asked for at a time, so that a large cluster need not fit into memory at once.
const PAGE: u32 = 100;

/// A watch of all objects of a kind.
pub struct Watched<K> {
    stream: Pin<Box<dyn Stream<Item = watcher::Result<Event<K>>> + Send>>,
    trouble: LastingTrouble,
    backoff: Backoff,
    /// Not before then.
    from: Instant,
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> Watched<K> {
    /// A watch; `what` is said of it when it fails.
    pub fn new(api: Api<K>, what: &'static str) -> Watched<K> {
        Watched::with(api, what, watcher::Config::default())
    }

    /// The same of the object of this name alone.
    pub fn named(api: Api<K>, what: &'static str, name: &str) -> Watched<K> {
        Watched::with(api, what, watcher::Config::default().fields(&format!("metadata.name={name}")))
    }

    fn with(api: Api<K>, what: &'static str, config: watcher::Config) -> Watched<K> {
        Watched {
            stream: Box::pin(watcher(api, config.timeout(WATCH).page_size(PAGE))),
            trouble: LastingTrouble::new(what),
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(60)),
            from: Instant::now(),
        }
    }

    /// What happens next. May be dropped before it does.
    pub async fn next(&mut self) -> Event<K> {
        loop {
            sleep_until(self.from).await;
            match self.stream.next().await {
                Some(Ok(event)) => {
                    self.trouble.end();
                    self.backoff.succeeded();
                    return event;
                }
                Some(Err(error)) => {
                    let error = ApiError::from(error);
                    if error.is_expired() {
                        continue;
                    }
                    self.trouble.meet(&error);
                }
                // A watcher has no end; one that had would be asked no more often.
                None => {}
            }
            self.from = Instant::now() + self.backoff.failed();
        }
    }
}

/// What is kept of the objects of a kind, by name.
#[derive(Debug)]
pub struct Kept<V> {
    objects: BTreeMap<String, (String, V)>,
    /// While all are listed: those that were.
    listed: Option<BTreeSet<String>>,
    whole: bool,
}

impl<V> Default for Kept<V> {
    fn default() -> Kept<V> {
        Kept { objects: BTreeMap::new(), listed: None, whole: false }
    }
}

impl<V: PartialEq> Kept<V> {
    /// Takes note of an event. Whether anything that is kept has changed.
    pub fn see<K: Resource>(&mut self, event: Event<K>, keep: impl Fn(K) -> V) -> bool {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                false
            }
            Event::InitApply(object) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(object.name_any());
                }
                self.put(object, keep) && self.whole
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let before = self.objects.len();
                self.objects.retain(|name, _| listed.contains(name));
                let first = !std::mem::replace(&mut self.whole, true);
                first || before != self.objects.len()
            }
            Event::Apply(object) => self.put(object, keep),
            Event::Delete(object) => self.objects.remove(&object.name_any()).is_some(),
        }
    }

    /// Keeps an object, unless a newer one is kept. Whether anything that is kept has changed.
    pub fn put<K: Resource>(&mut self, object: K, keep: impl Fn(K) -> V) -> bool {
        let name = object.name_any();
        let version = object.resource_version().unwrap_or_default();
        let known = self.objects.get(&name);
        // What a write was answered with may be newer than what the watch has got to. Versions can be compared (KEP-5504).
        if known.is_some_and(|(known, _)| is_older(&version, known)) {
            return false;
        }
        let value = keep(object);
        let changed = known.is_none_or(|(_, known)| *known != value);
        self.objects.insert(name, (version, value));
        changed
    }

    /// Forgets an object that is known to be gone before the watch tells.
    pub fn forget(&mut self, name: &str) {
        self.objects.remove(name);
    }

    /// Whether all objects have been listed once.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.objects.get(name).map(|(_, value)| value)
    }

    /// Its resourceVersion.
    pub fn version(&self, name: &str) -> Option<&str> {
        self.objects.get(name).map(|(version, _)| version.as_str())
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &V)> {
        self.objects.iter().map(|(name, (_, value))| (name, value))
    }
}

/// Whether one resourceVersion is before another, as far as they are numbers.
fn is_older(one: &str, other: &str) -> bool {
    matches!((one.parse::<u64>(), other.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, version: u64, data: &str) -> ConfigMap {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "resourceVersion": version.to_string()}, "data": {"k": data}}))
        .unwrap()
    }

    fn keep(object: ConfigMap) -> String {
        object.data.unwrap_or_default().remove("k").unwrap_or_default()
    }

    #[test]
    fn what_a_watch_brings_late_does_not_replace_what_was_written() {
        let mut kept: Kept<String> = Kept::default();
        assert!(!kept.see(Event::Init, keep));
        assert!(!kept.see(Event::InitApply(object("a", 5, "old")), keep));
        assert!(!kept.is_whole());
        assert!(kept.see::<ConfigMap>(Event::InitDone, keep));
        assert!(kept.put(object("a", 9, "written"), keep));
        assert!(!kept.see(Event::Apply(object("a", 7, "late")), keep));
        assert_eq!((kept.get("a").unwrap().as_str(), kept.version("a")), ("written", Some("9")));
        // The same again, with a newer version: nothing to decide, but the version counts for the next write.
        assert!(!kept.see(Event::Apply(object("a", 10, "written")), keep));
        assert_eq!(kept.version("a"), Some("10"));
    }

    #[test]
    fn what_is_not_listed_again_is_gone() {
        let mut kept: Kept<String> = Kept::default();
        for name in ["a", "b"] {
            kept.see(Event::Apply(object(name, 1, "x")), keep);
        }
        kept.see::<ConfigMap>(Event::Init, keep);
        kept.see(Event::InitApply(object("b", 1, "x")), keep);
        assert!(kept.see::<ConfigMap>(Event::InitDone, keep));
        assert_eq!(kept.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b"]);
        assert!(kept.see(Event::Delete(object("b", 2, "x")), keep));
        assert!(kept.get("b").is_none());
    }
}
