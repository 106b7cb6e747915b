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
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_stream::{Stream, StreamExt};

use crate::{client::ApiError, log::LastingTrouble, pace::Backoff};

/// A watch is begun anew after so long (seconds): a connection that died unseen is not listened to for longer.
const WATCH: u32 = 290;

/// So many objects are asked for at a time, so that a large cluster need not fit into memory at once.
const PAGE: u32 = 100;

/// All objects are listed anew so often: a cluster whose etcd was restored from an older snapshot tells nothing of what it has forgotten.
const RELIST: Duration = Duration::from_secs(600);

/// A watch that works tells of a change long before.
const LATE: Duration = Duration::from_secs(10);

/// What is said when a cluster shows older versions than it had: etcd was restored from a snapshot.
pub const GONE_BACK: &str = "the cluster has gone back to what it was earlier: all is listed anew";

/// A watch of all objects of a kind.
pub struct Watched<K> {
    api: Api<K>,
    config: watcher::Config,
    stream: Pin<Box<dyn Stream<Item = watcher::Result<Event<K>>> + Send>>,
    trouble: LastingTrouble,
    backoff: Backoff,
    /// Not before then.
    from: Instant,
    /// When all are listed anew.
    relist: Instant,
    /// Is told whether the API server's last answer was that it does not serve these objects.
    refused: Option<watch::Sender<bool>>,
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> Watched<K> {
    /// A watch; `what` is said of it when it fails.
    pub fn new(api: Api<K>, what: &'static str) -> Watched<K> {
        Watched::with(api, what, watcher::Config::default().timeout(WATCH), backoff())
    }

    /// The same of the object of this name alone.
    pub fn named(api: Api<K>, what: &'static str, name: &str) -> Watched<K> {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH);
        Watched::with(api, what, config, backoff())
    }

    /// The same of those that `config` selects, which is asked again after a failure as `backoff` says.
    pub fn with(api: Api<K>, what: &'static str, config: watcher::Config, backoff: Backoff) -> Watched<K> {
        let config = config.page_size(PAGE);
        Watched {
            stream: Box::pin(watcher(api.clone(), config.clone())),
            api,
            config,
            relist: Instant::now() + RELIST,
            refused: None,
            trouble: LastingTrouble::new(what),
            backoff,
            from: Instant::now(),
        }
    }

    /// Has it said whether the API server's last answer was that it does not serve these objects: there is no such kind, or they may not be
    /// watched. Without an answer it is not known, and false.
    pub fn telling(mut self, refused: watch::Sender<bool>) -> Watched<K> {
        self.refused = Some(refused);
        self
    }

    fn tell(&self, refused: bool) {
        if let Some(sender) = &self.refused {
            sender.send_if_modified(|told| std::mem::replace(told, refused) != refused);
        }
    }

    /// Lists all objects anew.
    pub fn relist(&mut self) {
        self.stream = Box::pin(watcher(self.api.clone(), self.config.clone()));
        self.relist = Instant::now() + RELIST;
    }

    /// What happens next. May be dropped before it does.
    pub async fn next(&mut self) -> Event<K> {
        loop {
            sleep_until(self.from).await;
            let next = tokio::select! {
                next = self.stream.next() => next,
                () = sleep_until(self.relist) => {
                    self.relist();
                    continue;
                }
            };
            match next {
                Some(Ok(event)) => {
                    // A list is announced before anybody was asked for it.
                    if !matches!(event, Event::Init) {
                        self.tell(false);
                        self.trouble.end();
                        self.backoff.succeeded();
                    }
                    return event;
                }
                Some(Err(error)) => {
                    let error = ApiError::from(error);
                    if error.is_expired() {
                        continue;
                    }
                    self.tell(matches!(error, ApiError::Refused { code: 403 | 404, .. }));
                    self.trouble.meet(&error);
                }
                // A watcher has no end; one that had would be asked no more often.
                None => {}
            }
            self.from = Instant::now() + self.backoff.failed();
            // The cluster may have gone back meanwhile: a watch that went on from the version that it had come to would hear of nothing.
            self.relist();
        }
    }
}

fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(60))
}

/// What is kept of the objects of a kind, by name.
#[derive(Debug)]
pub struct Kept<V> {
    objects: BTreeMap<String, (String, V)>,
    /// While all are listed: those that were.
    listed: Option<BTreeSet<String>>,
    /// Those that were written since the list was begun, and may be newer than what is on it.
    written: BTreeSet<String>,
    /// Whether the list has an object in an older version than was known before it was begun.
    older: bool,
    /// The versions with which writes were refused last, and since when.
    conflicts: BTreeMap<String, (String, Instant)>,
    /// Whether the cluster was seen to have gone back to what it was earlier.
    gone_back: bool,
    whole: bool,
}

impl<V> Default for Kept<V> {
    fn default() -> Kept<V> {
        Kept {
            objects: BTreeMap::new(),
            listed: None,
            written: BTreeSet::new(),
            older: false,
            conflicts: BTreeMap::new(),
            gone_back: false,
            whole: false,
        }
    }
}

impl<V: PartialEq> Kept<V> {
    /// Takes note of an event. Whether anything that is kept has changed.
    pub fn see<K: Resource>(&mut self, event: Event<K>, keep: impl Fn(K) -> V) -> bool {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                self.written.clear();
                self.older = false;
                false
            }
            Event::InitApply(object) => {
                let name = object.name_any();
                // What is listed is what there is, also where its version is a lower one: etcd may have been restored.
                let is_older = self.has_newer(&object);
                let stale = is_older && self.written.contains(&name);
                self.older |= is_older && !stale;
                if let Some(listed) = &mut self.listed {
                    listed.insert(name);
                }
                !stale && self.keep(object, keep) && self.whole
            }
            Event::InitDone => {
                // Watches of other kinds may wait for versions that the cluster has not come to yet again, and tell of nothing.
                self.gone_back |= std::mem::take(&mut self.older);
                let listed = self.listed.take().unwrap_or_default();
                let before = self.objects.len();
                let written = std::mem::take(&mut self.written);
                self.objects.retain(|name, _| listed.contains(name) || written.contains(name));
                let first = !std::mem::replace(&mut self.whole, true);
                first || before != self.objects.len()
            }
            // What a write was answered with may be newer than what the watch has got to.
            Event::Apply(object) => !self.has_newer(&object) && self.keep(object, keep),
            Event::Delete(object) => {
                self.written.remove(&object.name_any());
                self.objects.remove(&object.name_any()).is_some()
            }
        }
    }

    /// Keeps what a write was answered with. Whether anything that is kept has changed. The watch is not listened to during a write, so an answer
    /// that is older than what is kept says that the cluster has gone back.
    pub fn put<K: Resource>(&mut self, object: K, keep: impl Fn(K) -> V) -> bool {
        if self.has_newer(&object) {
            self.gone_back = true;
            return false;
        }
        if self.listed.is_some() {
            self.written.insert(object.name_any());
        }
        self.keep(object, keep)
    }

    /// A write was refused, since the object is not there in the version that is kept. The watch tells of another one; where it does not, and
    /// a write is refused for the same version some time later, the cluster has gone back.
    pub fn refused(&mut self, name: &str, now: Instant) {
        let Some(version) = self.version(name).map(str::to_owned) else { return };
        match self.conflicts.get(name).filter(|(known, _)| *known == version) {
            Some((_, since)) => self.gone_back |= now.duration_since(*since) >= LATE,
            None => drop(self.conflicts.insert(name.to_owned(), (version, now))),
        }
    }

    /// Whether the cluster was seen to have gone back since this was asked last: all has to be listed anew.
    pub fn has_gone_back(&mut self) -> bool {
        let back = std::mem::take(&mut self.gone_back);
        if back {
            self.conflicts.clear();
        }
        back
    }

    /// Whether what is kept of an object is newer. Versions can be compared (KEP-5504).
    fn has_newer<K: Resource>(&self, object: &K) -> bool {
        let version = object.resource_version().unwrap_or_default();
        self.objects.get(&object.name_any()).is_some_and(|(known, _)| is_older(&version, known))
    }

    fn keep<K: Resource>(&mut self, object: K, keep: impl Fn(K) -> V) -> bool {
        let name = object.name_any();
        let version = object.resource_version().unwrap_or_default();
        let value = keep(object);
        let changed = self.objects.get(&name).is_none_or(|(_, known)| *known != value);
        self.objects.insert(name, (version, value));
        changed
    }

    /// Forgets an object that is known to be gone before the watch tells.
    pub fn forget(&mut self, name: &str) {
        self.written.remove(name);
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
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
    };

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    /// Nothing may be concluded from an API server that is away.
    #[test]
    fn it_is_told_that_the_api_server_refuses_and_not_that_it_is_away() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, ends) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let end = ends.clone();
        let server = thread::spawn(move || {
            let status = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": 404}"#;
            let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\nconnection: close";
            while let Ok((mut stream, _)) = listener.accept() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let _ = stream.read(&mut [0; 4096]);
                let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{status}", status.len());
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = kube::Config::new(format!("http://{address}").parse().unwrap());
            let client = kube::Client::try_from(config).unwrap();
            let (tell, mut refused) = watch::channel(false);
            let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(10));
            let api = Api::<ConfigMap>::all(client);
            let mut watched = Watched::with(api, "watch", watcher::Config::default(), backoff).telling(tell);
            let mut until = async |wanted: bool| {
                let seen = async {
                    loop {
                        tokio::select! {
                            _ = watched.next() => {}
                            Ok(_) = refused.wait_for(|refused| *refused == wanted) => return,
                        }
                    }
                };
                tokio::time::timeout(Duration::from_secs(60), seen).await.expect("it is told");
            };
            until(true).await;
            ends.store(true, Ordering::SeqCst);
            drop(TcpStream::connect(address).unwrap());
            until(false).await;
        });
        server.join().unwrap();
    }

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

    /// etcd was restored from a snapshot: all versions are lower ones.
    #[test]
    fn what_is_listed_counts_whatever_its_version() {
        let mut kept: Kept<String> = Kept::default();
        kept.see(Event::Apply(object("a", 900, "of later")), keep);
        // A write is answered with what there is.
        assert!(!kept.put(object("a", 41, "of earlier"), keep));
        assert!(kept.has_gone_back() && !kept.has_gone_back());
        kept.see::<ConfigMap>(Event::Init, keep);
        kept.see(Event::InitApply(object("a", 41, "of earlier")), keep);
        kept.see::<ConfigMap>(Event::InitDone, keep);
        assert_eq!((kept.get("a").unwrap().as_str(), kept.version("a")), ("of earlier", Some("41")));
        assert!(kept.see(Event::Apply(object("a", 42, "and on")), keep));
    }

    /// Whoever writes nothing finds out, too; of a list that is not whole yet nothing is said.
    #[test]
    fn a_list_of_older_versions_says_once_that_the_cluster_has_gone_back() {
        let mut kept: Kept<String> = Kept::default();
        for name in ["a", "b"] {
            kept.see(Event::Apply(object(name, 900, "of later")), keep);
        }
        for back in [true, false] {
            kept.see::<ConfigMap>(Event::Init, keep);
            kept.see(Event::InitApply(object("a", 41, "of earlier")), keep);
            assert!(!kept.has_gone_back());
            kept.see(Event::InitApply(object("b", 42, "of earlier")), keep);
            kept.see::<ConfigMap>(Event::InitDone, keep);
            assert_eq!(kept.has_gone_back(), back);
        }
    }

    #[test]
    fn a_write_during_a_list_is_newer_than_what_is_on_it() {
        let mut kept: Kept<String> = Kept::default();
        kept.see(Event::Apply(object("a", 5, "before")), keep);
        kept.see::<ConfigMap>(Event::Init, keep);
        assert!(kept.put(object("a", 9, "written"), keep) && kept.put(object("b", 10, "made"), keep));
        kept.see(Event::InitApply(object("a", 5, "before")), keep);
        kept.see::<ConfigMap>(Event::InitDone, keep);
        assert_eq!((kept.get("a").unwrap().as_str(), kept.get("b").unwrap().as_str()), ("written", "made"));
        assert!(!kept.has_gone_back());
        // It was removed before the next list.
        kept.see::<ConfigMap>(Event::Init, keep);
        kept.see::<ConfigMap>(Event::InitDone, keep);
        assert_eq!(kept.get("b"), None);
    }

    #[test]
    fn a_write_that_is_refused_twice_for_one_version_has_all_listed_anew() {
        let mut kept: Kept<String> = Kept::default();
        kept.see(Event::Apply(object("a", 5, "x")), keep);
        let first = Instant::now();
        kept.refused("a", first);
        kept.refused("a", first + LATE / 2);
        assert!(!kept.has_gone_back(), "somebody else wrote, and the watch is about to tell");
        kept.see(Event::Apply(object("a", 6, "x")), keep);
        kept.refused("a", first + LATE);
        assert!(!kept.has_gone_back());
        kept.refused("a", first + 2 * LATE);
        assert!(kept.has_gone_back());
        kept.refused("unknown", first);
        assert!(!kept.has_gone_back());
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
