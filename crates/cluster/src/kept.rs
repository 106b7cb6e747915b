//! What is written down of a cluster, so that another Penstock can find and end it.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_board::{Board, BoardError, Cache, KeptBoard};
use penstock_host::{
    files::{self, Lock},
    running::{self, Running, RunsOn},
};
use serde::{Deserialize, Serialize};

use crate::error::ClusterError;

const FILE: &str = "cluster.json";

/// The longest name: with the number of a node it is still the label of a host (RFC 1123).
const LONGEST_NAME: usize = 50;

/// How long a process may take to be gone.
const ENDING: Duration = Duration::from_secs(10);

/// A cluster, as it is written in its directory.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KeptCluster {
    /// The name of the cluster.
    pub name: String,
    /// The version of Kubernetes.
    pub version: String,
    /// The URL of its API server on this machine.
    pub server: String,
    /// The file on this machine by which its administrator enters it.
    pub kubeconfig: PathBuf,
    /// Its nodes, each a board.
    pub nodes: Vec<KeptNode>,
    /// The programs of its control plane.
    pub programs: Vec<KeptProgram>,
    /// The Penstock that it is to end with; `None` when it stays.
    pub owner: Option<Running>,
    /// Where these processes run; `None` for a cluster from before it was written down.
    #[serde(default)]
    pub runs_on: Option<RunsOn>,
    /// The file that all its programs are.
    pub program: PathBuf,
    /// The directory of boards that its nodes are in: another session of this user has another. `None` for a cluster from before it was
    /// written down.
    #[serde(default)]
    pub boards: Option<PathBuf>,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KeptNode {
    /// Its name, which is that of its board.
    pub name: String,
    /// The QEMU of its board; `None` before that runs.
    pub qemu: Option<Running>,
}

/// A program of a cluster's control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KeptProgram {
    /// Its name.
    pub name: String,
    /// Its process.
    pub process: Running,
}

impl fmt::Display for KeptCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        write!(
            f,
            "{}: Kubernetes {} at {}, nodes {}",
            self.name,
            self.version,
            self.server,
            nodes.join(", ")
        )?;
        if let Some(owner) = self.owner {
            write!(f, ", ends with process {}", owner.id)?;
        }
        if let Some(host) = self.elsewhere() {
            return write!(f, "; it runs on another machine or in a container: {host}");
        }
        match self.ended()[..] {
            [] => Ok(()),
            ref ended => write!(f, "; ended by themselves: {}", ended.join(", ")),
        }
    }
}

impl KeptCluster {
    /// The name of the machine or the container that it runs on, where that is not this one: whether it runs cannot be told from here.
    pub fn elsewhere(&self) -> Option<&str> {
        RunsOn::elsewhere(self.runs_on.as_ref())
    }

    /// Whether that is written down of the very same cluster, and not of a later one of its name.
    fn is_same(&self, written: &KeptCluster) -> bool {
        match (self.owner, written.owner) {
            (None, None) => self.programs == written.programs,
            (own, written) => own == written,
        }
    }

    /// What of it has ended by itself: programs of the control plane, boards.
    pub fn ended(&self) -> Vec<&str> {
        let programs = self.programs.iter().filter(|program| !program.process.is_alive());
        let nodes = self.nodes.iter().filter(|node| node.qemu.is_some_and(|qemu| !qemu.is_alive()));
        programs.map(|program| program.name.as_str()).chain(nodes.map(|node| node.name.as_str())).collect()
    }

    /// Notes a program that runs, in the place of an earlier one of its name.
    pub(crate) fn note(&mut self, started: &KeptProgram) {
        self.programs.retain(|program| program.name != started.name);
        self.programs.push(started.clone());
    }

    fn is_anything_up(&self) -> bool {
        self.programs.iter().any(|program| program.process.is_alive())
            || self.nodes.iter().any(|node| node.qemu.is_some_and(|qemu| qemu.is_alive()))
    }

    pub(crate) fn read(directory: &Path) -> Option<KeptCluster> {
        serde_json::from_slice(&files::read(directory.join(FILE)).ok()?).ok()
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<(), ClusterError> {
        // Plain fields always become JSON.
        let bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        Ok(files::write_atomic_mode(directory.join(FILE), bytes, 0o600)?)
    }

    /// Ends its programs and its boards, the very ones and no others, and removes its directory. The programs work in that directory, which
    /// is nobody else's: those too are found that were started a moment before a Penstock was killed that had yet to write them down. It goes
    /// on past what does not end, and says the first of it; what is written down stays then.
    pub(crate) fn end(&self, cache: &Cache, directory: &Path) -> Result<(), ClusterError> {
        let _lock = Lock::exclusive(lock_file(cache))?;
        // Another Penstock may have ended it too, and one may have been brought up in its place.
        if KeptCluster::read(directory).is_some_and(|written| !self.is_same(&written)) {
            return Ok(());
        }
        let mut first = None;
        let boards = self.boards.clone().map(|boards| cache.clone().running_in(boards));
        for node in &self.nodes {
            if let Err(error) = self.end_board(boards.as_ref().unwrap_or(cache), node) {
                first.get_or_insert(error);
            }
        }
        // Who depends on others ends first.
        let written = self.programs.iter().rev().map(|program| (program.name.clone(), program.process));
        let found = running::of_program_in(&self.program, directory);
        let found = found.into_iter().map(|process| ("a program".to_owned(), process));
        for (program, process) in written.chain(found) {
            if !process.kill_in(directory, ENDING) {
                first.get_or_insert(ClusterError::Stuck { name: self.name.clone(), program, id: process.id });
            }
        }
        match first {
            // What is written down is needed to try again.
            Some(error) => Err(error),
            None => Ok(files::remove_tree(directory)?),
        }
    }

    /// Ends the board of a node if it is still the one that was brought up for it. One without a QEMU that is written down is of a Penstock
    /// that was killed: such a board has the same owner.
    fn end_board(&self, cache: &Cache, node: &KeptNode) -> Result<(), ClusterError> {
        let is_its = |board: &KeptBoard| match node.qemu {
            Some(_) => board.qemu == node.qemu,
            None => self.owner.is_some() && board.owner == self.owner,
        };
        let boards = Board::list(cache)?;
        if let Some(board) = boards.iter().find(|board| board.name == node.name && is_its(board)) {
            match Board::drop_kept(cache, &board.name) {
                // Its QEMU ended meanwhile.
                Err(BoardError::NoSuchBoard { .. } | BoardError::Died { .. }) => {}
                dropped => dropped?,
            }
        }
        // Or before: `list` of clusters says which boards have.
        for error in Board::clear_ended(cache, Some(&node.name))? {
            if !matches!(error, BoardError::Died { .. }) {
                return Err(error.into());
            }
        }
        // No board of which anything is known.
        match node.qemu.filter(Running::is_alive) {
            Some(qemu) => {
                let program = format!("the QEMU of the node {}", node.name);
                Err(ClusterError::Stuck { name: self.name.clone(), program, id: qemu.id })
            }
            None => Ok(()),
        }
    }
}

/// The directory of the cluster `name`.
pub(crate) fn directory(cache: &Cache, name: &str) -> Result<PathBuf, ClusterError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let ends = bytes.first().zip(bytes.last()).is_some_and(|(first, last)| good(*first) && good(*last));
    if !ends || bytes.len() > LONGEST_NAME || !bytes.iter().all(|byte| good(*byte) || *byte == b'-') {
        return Err(ClusterError::Name { name: name.to_owned() });
    }
    Ok(cache.clusters().join(name))
}

/// What is locked by whoever makes or removes a cluster's directory.
pub(crate) fn lock_file(cache: &Cache) -> PathBuf {
    cache.directory().join("clusters.lock")
}

/// The clusters that there are, by name. Those whose Penstock is gone, and those of which nothing runs, are cleared away, but for those of
/// another machine or container. One that cannot be is there still, and the error says why.
pub(crate) fn list(cache: &Cache) -> Result<(Vec<KeptCluster>, Vec<ClusterError>), ClusterError> {
    let (mut clusters, mut stuck) = (Vec::new(), Vec::new());
    // Somebody else's could name any process, to be ended by us. Held, so that it is not exchanged.
    let Some(held) = files::own_directory(cache.clusters())? else { return Ok((clusters, stuck)) };
    for name in files::list(held.path())? {
        let directory = held.path().join(&name);
        if let Some(cluster) = KeptCluster::read(&directory).filter(|cluster| cluster.elsewhere().is_some()) {
            clusters.push(cluster);
            continue;
        }
        let kept = running::with_owner(|| KeptCluster::read(&directory), |cluster| cluster.owner);
        let Some((cluster, orphaned)) = kept else { continue };
        if orphaned || (cluster.owner.is_none() && !cluster.is_anything_up()) {
            match cluster.end(cache, &cache.clusters().join(&name)) {
                Ok(()) => continue,
                Err(error) => stuck.push(error),
            }
        }
        clusters.push(cluster);
    }
    Ok((clusters, stuck))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cluster;
    use penstock_host::{Command, process};

    fn kept(name: &str, program: &Path) -> KeptCluster {
        KeptCluster {
            name: name.to_owned(),
            version: "v1".to_owned(),
            server: "https://127.0.0.1:1".to_owned(),
            kubeconfig: PathBuf::from("/x"),
            nodes: Vec::new(),
            programs: Vec::new(),
            owner: None,
            runs_on: Some(RunsOn::here()),
            program: program.to_owned(),
            boards: None,
        }
    }

    /// Of another machine or container that has the same cache, no process is seen here.
    #[test]
    fn a_cluster_of_another_machine_is_let_alone_and_that_is_said() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path());
        files::make_own_directory(cache.clusters()).unwrap();
        let elsewhere = RunsOn { host: "b".into(), start: "of b".into(), machine: Some("b".into()) };
        // Neither of them has a process of which this machine knows.
        for (name, owner) in [("stays", None), ("made", Some(Running { id: 1, started: 0 }))] {
            let directory = directory(&cache, name).unwrap();
            files::make_own_directory(&directory).unwrap();
            let runs_on = Some(elsewhere.clone());
            KeptCluster { owner, runs_on, ..kept(name, Path::new("/nosuch")) }.write(&directory).unwrap();
        }
        let (listed, _) = list(&cache).unwrap();
        assert_eq!(listed.len(), 2);
        for cluster in &listed {
            let said = cluster.to_string();
            assert!(said.ends_with("; it runs on another machine or in a container: b"), "{said}");
            assert!(files::exists(directory(&cache, &cluster.name).unwrap().join(FILE)));
            for error in [
                Cluster::down(&cache, &cluster.name).unwrap_err(),
                Cluster::check(&cache, &cluster.name, 1).unwrap_err(),
            ] {
                assert!(matches!(&error, ClusterError::Elsewhere { host, .. } if host == "b"), "{error}");
                assert!(error.hint().is_some());
            }
        }
        assert_eq!(list(&cache).unwrap().0.len(), 2);
    }

    #[test]
    fn a_later_cluster_of_a_name_is_not_ended_for_an_earlier_one() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path());
        let directory = directory(&cache, "a").unwrap();
        files::make_own_directory(cache.clusters()).unwrap();
        files::make_own_directory(&directory).unwrap();
        let earlier =
            KeptCluster { owner: Some(Running { id: 1, started: 0 }), ..kept("a", Path::new("/x")) };
        KeptCluster { owner: Running::this(), ..kept("a", Path::new("/x")) }.write(&directory).unwrap();
        earlier.end(&cache, &directory).unwrap();
        assert!(files::exists(&directory));
        let later = KeptCluster::read(&directory).unwrap();
        later.end(&cache, &directory).unwrap();
        assert!(!files::exists(&directory));
    }

    #[test]
    fn a_name_is_the_label_of_a_host() {
        let cache = Cache::at("/c");
        for good in ["a", "xeon-d", "1", "a".repeat(50).as_str()] {
            assert_eq!(directory(&cache, good).unwrap(), Path::new("/c/clusters").join(good));
        }
        for bad in ["", "-a", "a-", "A", "a.b", "../a", "a/b", "a_b", "a".repeat(51).as_str()] {
            let error = directory(&cache, bad).unwrap_err();
            assert!(matches!(error, ClusterError::Name { .. }) && error.hint().is_some(), "{bad}");
        }
    }

    #[test]
    fn what_a_killed_penstock_started_and_had_not_written_down_is_ended() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path());
        let program = process::find("sleep").unwrap();
        let directory = directory(&cache, "a").unwrap();
        files::make_own_directory(cache.clusters()).unwrap();
        files::make_own_directory(&directory).unwrap();
        let start = |at: &Path| {
            let command = Command::new(&program).arg("600").current_dir(at);
            command.start_to_stay(tempfile::tempfile().unwrap()).unwrap()
        };
        let (its, other) = (start(&directory), start(Path::new("/")));
        let mut cluster = kept("a", &program);
        // One that works elsewhere has only got the number.
        cluster
            .programs
            .push(KeptProgram { name: "etcd".to_owned(), process: Running::of(other.id()).unwrap() });
        // No process of this start of the machine began then.
        cluster.owner = Some(Running { id: other.id(), started: 0 });
        cluster.write(&directory).unwrap();
        assert!(list(&cache).unwrap().0.is_empty());
        assert!(!files::exists(&directory));
        assert!(Running::of(its.id()).is_none(), "it is gone");
        assert!(Running::of(other.id()).is_some(), "it is let alone");
        its.end(Duration::ZERO);
        other.end(Duration::ZERO);
    }

    /// A process in the place of the QEMU of the board `name`, in a directory of boards; with `written` what is known of it.
    fn board(boards: &Path, name: &str, written: bool) -> process::Background {
        let directory = boards.join(name);
        files::make_own_directory(&directory).unwrap();
        let command = Command::new("sleep").arg("600").current_dir(&directory);
        let qemu = command.start_to_stay(tempfile::tempfile().unwrap()).unwrap();
        let Running { id, started } = Running::of(qemu.id()).unwrap();
        let known = format!(
            r#"{{"name": "{name}", "port": 1, "qemu": {{"pid": {id}, "started": {started}}}, "owner": null, "emulator": "9",
                "choice": {{"accelerator": "tcg", "why": "a test"}}}}"#
        );
        if written {
            files::write_atomic(directory.join("board.json"), known).unwrap();
        }
        qemu
    }

    #[test]
    fn the_nodes_of_a_cluster_are_ended_from_another_session_or_it_is_said_that_they_run() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path()).running_in(there.path().join("own"));
        files::make_own_directory(cache.clusters()).unwrap();
        let other = there.path().join("session");
        files::make_own_directory(&other).unwrap();
        let bring_up = |name: &str, written: bool, boards: Option<PathBuf>| {
            let qemu = board(&other, &format!("{name}-1"), written);
            let directory = directory(&cache, name).unwrap();
            files::make_own_directory(&directory).unwrap();
            let node = KeptNode { name: format!("{name}-1"), qemu: Running::of(qemu.id()) };
            let cluster = KeptCluster { nodes: vec![node], boards, ..kept(name, Path::new("/nosuch")) };
            cluster.write(&directory).unwrap();
            (qemu, directory)
        };
        let (qemu, directory) = bring_up("a", true, Some(other.clone()));
        Cluster::down(&cache, "a").unwrap();
        assert!(Running::of(qemu.id()).is_none(), "it is gone");
        assert!(!files::exists(other.join("a-1")) && !files::exists(directory));
        // As was written down before, and one of which nothing is known where it was.
        for (name, written, boards) in [("b", true, None), ("c", false, Some(other.clone()))] {
            let (qemu, directory) = bring_up(name, written, boards);
            let error = Cluster::down(&cache, name).unwrap_err();
            let told = format!("the QEMU of the node {name}-1 of the cluster");
            assert!(error.to_string().starts_with(&told) && error.hint().is_some(), "{error}");
            assert!(Running::of(qemu.id()).is_some() && files::exists(directory.join(FILE)));
            qemu.end(Duration::ZERO);
            Cluster::find(&cache, name).unwrap_err();
            assert!(!files::exists(&directory), "with its QEMU ended it is cleared away");
        }
    }

    #[test]
    fn a_cluster_that_cannot_be_ended_keeps_nobody_from_the_others() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path());
        files::make_own_directory(cache.clusters()).unwrap();
        for (name, owner) in [("left", None), ("runs", Running::this())] {
            let directory = directory(&cache, name).unwrap();
            files::make_own_directory(&directory).unwrap();
            KeptCluster { owner, ..kept(name, Path::new("/nosuch")) }.write(&directory).unwrap();
        }
        // Without the lock none is removed.
        files::create_dir_all(lock_file(&cache)).unwrap();
        let (listed, stuck) = list(&cache).unwrap();
        let names: Vec<&str> = listed.iter().map(|cluster| cluster.name.as_str()).collect();
        assert_eq!((names, stuck.len()), (vec!["left", "runs"], 1));
        assert!(matches!(Cluster::down(&cache, "left"), Err(ClusterError::File(_))));
        assert!(matches!(Cluster::kubeconfig(&cache, "runs", true), Err(ClusterError::File(_))));
    }

    #[test]
    fn a_program_that_is_started_again_is_noted_once() {
        let mut cluster = kept("a", Path::new("/x"));
        let program =
            |name: &str, id| KeptProgram { name: name.to_owned(), process: Running { id, started: 0 } };
        for (name, id) in [("etcd", 1), ("kube-apiserver", 2), ("etcd", 3), ("kube-apiserver", 4)] {
            cluster.note(&program(name, id));
        }
        assert_eq!(cluster.programs, [program("etcd", 3), program("kube-apiserver", 4)]);
    }

    #[test]
    fn a_cluster_without_an_api_server_has_no_kubeconfig() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path());
        let directory = directory(&cache, "a").unwrap();
        files::make_own_directory(cache.clusters()).unwrap();
        files::make_own_directory(&directory).unwrap();
        let kubeconfig = directory.join("kubeconfig");
        files::write_atomic(&kubeconfig, "server: https://127.0.0.1:1\n").unwrap();
        let up = KeptCluster { owner: Running::this(), kubeconfig, ..kept("a", Path::new("/x")) };
        KeptCluster { server: String::new(), ..up.clone() }.write(&directory).unwrap();
        for on_node in [true, false] {
            let error = Cluster::kubeconfig(&cache, "a", on_node).unwrap_err();
            assert!(matches!(&error, ClusterError::ComingUp { name } if name == "a"), "{error}");
        }
        up.write(&directory).unwrap();
        assert!(Cluster::kubeconfig(&cache, "a", false).unwrap().contains("127.0.0.1:1"));
        assert!(!Cluster::kubeconfig(&cache, "a", true).unwrap().contains("127.0.0.1:1"));
    }

    #[test]
    fn a_cluster_of_which_nothing_runs_is_cleared_away_and_one_that_is_being_made_is_not() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path());
        files::make_own_directory(cache.clusters()).unwrap();
        for (name, owner) in [("gone", None), ("made", Running::this())] {
            let directory = directory(&cache, name).unwrap();
            files::make_own_directory(&directory).unwrap();
            KeptCluster { owner, ..kept(name, Path::new("/nosuch")) }.write(&directory).unwrap();
        }
        let names: Vec<String> = list(&cache).unwrap().0.into_iter().map(|cluster| cluster.name).collect();
        assert_eq!(names, ["made"]);
        assert!(!files::exists(cache.clusters().join("gone")));
    }
}
