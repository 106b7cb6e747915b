//! Slices on their way to the API server: only when they differ from what is there, with a new generation in all of them, and what is
//! left over removed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::resource::v1::ResourceSlice, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::watcher::Event,
};
use thiserror::Error;

use crate::client::{ApiError, answer};

/// The name under which the fields of our objects are ours.
pub const MANAGER: &str = "penstock-kubernetes";

/// Why slices could not be published.
#[derive(Debug, Error)]
#[error("cannot {what} the ResourceSlice {slice}")]
pub struct PublishError {
    /// `write` or `remove`.
    what: &'static str,
    /// Which.
    slice: String,
    /// Why.
    source: ApiError,
}

/// What a publication did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// Slices that were written.
    pub written: usize,
    /// Slices that were removed.
    pub removed: usize,
    /// The generation of the pool.
    pub generation: i64,
}

/// The node's slices as the API server has them, kept up to date by a watch.
#[derive(Debug, Default)]
pub struct Published {
    slices: BTreeMap<String, ResourceSlice>,
    listed: Option<BTreeMap<String, ResourceSlice>>,
    /// Whether all of them were seen once.
    known: bool,
    /// The highest generation that was seen or written.
    generation: i64,
    /// Those that were written since the list was begun, and may be newer than what is on it.
    written: BTreeSet<String>,
    /// Whether the cluster was seen to have gone back to what it was earlier.
    gone_back: bool,
}

impl Published {
    /// Takes in what the watch tells.
    pub fn see(&mut self, event: Event<ResourceSlice>) {
        match event {
            Event::Init => {
                self.listed = Some(BTreeMap::new());
                self.written.clear();
            }
            Event::InitApply(slice) => {
                self.generation = self.generation.max(slice.spec.pool.generation);
                self.listed.get_or_insert_default().insert(slice.name_any(), slice);
            }
            Event::InitDone => {
                // What is listed is what there is, also where versions are lower ones: etcd may have been restored.
                let before = std::mem::replace(&mut self.slices, self.listed.take().unwrap_or_default());
                let written = std::mem::take(&mut self.written);
                for (_, slice) in before.into_iter().filter(|(name, _)| written.contains(name)) {
                    self.put(slice);
                }
                self.known = true;
            }
            Event::Apply(slice) => self.put(slice),
            Event::Delete(slice) => {
                let name = slice.name_any();
                if self.slices.get(&name).is_none_or(|known| version(known) <= version(&slice)) {
                    self.slices.remove(&name);
                }
            }
        }
    }

    /// Whether all of them were seen once; before that nothing is to be written.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// The highest generation that was seen or written.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// Whether the cluster was seen to have gone back since this was asked last: all has to be listed anew.
    pub fn has_gone_back(&mut self) -> bool {
        std::mem::take(&mut self.gone_back)
    }

    /// What a write was answered with. The watch is not listened to during a write: what is older than what is kept is of a cluster that has
    /// gone back.
    fn answered(&mut self, slice: ResourceSlice) {
        let name = slice.name_any();
        self.gone_back |= self.slices.get(&name).is_some_and(|known| version(known) > version(&slice));
        self.written.insert(name);
        self.put(slice);
    }

    /// An answer to a write may be newer than what the watch has come to.
    fn put(&mut self, slice: ResourceSlice) {
        self.generation = self.generation.max(slice.spec.pool.generation);
        let name = slice.name_any();
        if self.slices.get(&name).is_none_or(|known| version(known) <= version(&slice)) {
            self.slices.insert(name, slice);
        }
    }

    /// Whether these are what is there.
    pub fn is(&self, wanted: &[ResourceSlice]) -> bool {
        let generation = self.slices.values().next().map(|slice| slice.spec.pool.generation);
        wanted.len() == self.slices.len()
            && self.slices.values().all(|slice| Some(slice.spec.pool.generation) == generation)
            && wanted.iter().all(|slice| {
                self.slices.get(&slice.name_any()).is_some_and(|there| plain(there) == plain(slice))
            })
    }

    /// Writes what is wanted where it is not there, and removes the rest. What was done before an error is known to the next call.
    ///
    /// # Errors
    ///
    /// The API server's refusal; that it did not answer. What was written and removed until then stays so.
    pub async fn publish(
        &mut self,
        api: &Api<ResourceSlice>,
        mut wanted: Vec<ResourceSlice>,
    ) -> Result<Publication, PublishError> {
        let mut done = Publication { generation: self.generation, ..Publication::default() };
        if self.is(&wanted) {
            return Ok(done);
        }
        if !wanted.is_empty() {
            self.generation += 1;
        }
        done.generation = self.generation;
        for slice in &mut wanted {
            slice.spec.pool.generation = self.generation;
            self.keep_times(slice);
            let name = slice.name_any();
            let write = PatchParams::apply(MANAGER).force();
            let written = answer(api.patch(&name, &write, &Patch::Apply(&*slice))).await;
            self.answered(written.map_err(|source| PublishError { what: "write", slice: name, source })?);
            done.written += 1;
        }
        let over: Vec<String> = self
            .slices
            .keys()
            .filter(|name| !wanted.iter().any(|slice| slice.name_any() == **name))
            .cloned()
            .collect();
        for name in over {
            let uid = self.slices.get(&name).and_then(|slice| slice.metadata.uid.clone());
            let remove = DeleteParams {
                preconditions: Some(Preconditions { uid, resource_version: None }),
                ..DeleteParams::default()
            };
            match answer(api.delete(&name, &remove)).await {
                Ok(_) => {}
                // Somebody else was quicker, and may have put another one there: the watch tells.
                Err(ApiError::Refused { code: 404 | 409, .. }) => {}
                Err(source) => return Err(PublishError { what: "remove", slice: name, source }),
            }
            self.slices.remove(&name);
            self.written.remove(&name);
            done.removed += 1;
        }
        Ok(done)
    }

    /// A taint keeps the time since when it is there.
    fn keep_times(&self, slice: &mut ResourceSlice) {
        let mut times: BTreeMap<(&str, &str), &Time> = BTreeMap::new();
        for device in self.slices.values().flat_map(|slice| slice.spec.devices.iter().flatten()) {
            for taint in device.taints.iter().flatten() {
                if let Some(time) = &taint.time_added {
                    times.insert((&device.name, &taint.key), time);
                }
            }
        }
        for device in slice.spec.devices.iter_mut().flatten() {
            for taint in device.taints.iter_mut().flatten() {
                taint.time_added =
                    times.get(&(device.name.as_str(), taint.key.as_str())).map(|time| (*time).clone());
            }
        }
    }
}

/// The order in which objects of a kind were written (comparable numbers since Kubernetes 1.35, and in practice before).
fn version(slice: &ResourceSlice) -> u64 {
    slice.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// A slice without what is not ours to say: generation, times, and what the API server adds.
fn plain(slice: &ResourceSlice) -> ResourceSlice {
    let mut plain = ResourceSlice { spec: slice.spec.clone(), ..ResourceSlice::default() };
    plain.metadata.name = slice.metadata.name.clone();
    plain.metadata.owner_references = slice.metadata.owner_references.clone();
    plain.spec.pool.generation = 0;
    for device in plain.spec.devices.iter_mut().flatten() {
        for taint in device.taints.iter_mut().flatten() {
            taint.time_added = None;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, version: u64, generation: i64) -> ResourceSlice {
        serde_json::from_value(
            serde_json::json!({"metadata": {"name": name, "resourceVersion": version.to_string()}, "spec": {
            "driver": "d", "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1}}}),
        )
        .unwrap()
    }

    fn kept(published: &Published) -> Vec<(u64, i64)> {
        published.slices.values().map(|slice| (version(slice), slice.spec.pool.generation)).collect()
    }

    /// etcd was restored from a snapshot: all versions are lower ones.
    #[test]
    fn an_answer_of_an_earlier_cluster_has_all_listed_anew_and_generations_go_on() {
        let mut published = Published::default();
        published.see(Event::Apply(slice("a", 900, 7)));
        published.answered(slice("a", 41, 8));
        assert!(published.has_gone_back() && !published.has_gone_back());
        published.see(Event::Init);
        published.see(Event::InitApply(slice("a", 41, 8)));
        published.see(Event::InitDone);
        assert_eq!((kept(&published), published.generation()), (vec![(41, 8)], 8));
        published.answered(slice("a", 42, 9));
        assert!(!published.has_gone_back());
    }

    #[test]
    fn a_write_during_a_list_is_newer_than_what_is_on_it() {
        let mut published = Published::default();
        published.see(Event::Init);
        published.see(Event::InitApply(slice("a", 5, 1)));
        published.answered(slice("a", 9, 2));
        published.see(Event::InitDone);
        assert_eq!(kept(&published), [(9, 2)]);
    }
}
