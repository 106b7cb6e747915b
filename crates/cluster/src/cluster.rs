//! A cluster that runs.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use penstock_board::{
    Board, BoardError, Cache, Design, Forward, Image, KeptBoard, Listener, Progress, UpOptions, cached,
};
use penstock_host::{
    Command, ProcessError, files, interrupt,
    running::{Running, RunsOn},
};
use penstock_model::ByteSize;

use crate::{
    config,
    control_plane::{self, ControlPlane, Secrets},
    error::ClusterError,
    kept::{self, KeptCluster, KeptNode, KeptProgram},
    node::{self, NodeFiles},
    node_disk::NodeDisk,
    program::{ClusterProgram, VERSION},
};

/// The most nodes: each is a machine that is emulated here.
const MOST_NODES: usize = 16;

/// What a node needs of memory: kubelet and containerd take 170 MB, what is unpacked of images and what pods write is in memory too.
const MEMORY: ByteSize = ByteSize(2 << 30);

/// What a node needs of CPUs.
const CPUS: u32 = 2;

/// How long nodes may take to be Ready, from kubelet's start on.
const READY: Duration = Duration::from_secs(300);

/// How long it is waited for nodes before everything that they depend on is looked at.
const ROUND: Duration = Duration::from_secs(5);

/// How a cluster is to be brought up.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Its name; nodes are called after it.
    pub name: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// Whether kwok runs, which simulates the nodes with the annotation `kwok.x-k8s.io/node: fake`.
    pub simulate: bool,
    /// How each node's board is brought up. Its name, disk of files and way to this machine are the cluster's affair.
    pub board: UpOptions,
    /// The program that carries a connection of a node to this machine ([`Forward::carrier`]).
    pub carrier: Command,
}

/// Makes a board large enough for a node; what had to be changed, a sentence for each.
pub fn fit(design: &mut Design) -> Vec<String> {
    let mut changed = Vec::new();
    if design.memory < MEMORY {
        changed.push(format!(
            "Each node has {} MiB of memory: the board that the model describes, with {} MiB, is too small for kubelet and containerd.",
            MEMORY.0 >> 20,
            design.memory.0 >> 20
        ));
        design.memory = MEMORY;
    }
    if design.cpus < CPUS {
        changed.push(format!("Each node has {CPUS} CPUs, and not {} as the model says.", design.cpus));
        design.cpus = CPUS;
    }
    changed
}

/// A running cluster. Dropped, it is ended and its files are removed, unless it was [detached](Cluster::detach).
#[derive(Debug)]
pub struct Cluster {
    cache: Cache,
    kept: KeptCluster,
    directory: PathBuf,
    plane: Option<ControlPlane>,
    boards: Vec<Board>,
    timings: Vec<(&'static str, Duration)>,
    done: bool,
}

/// What the node of this number is called, and its board.
fn node_name(cluster: &str, number: usize) -> String {
    format!("{cluster}-{number}")
}

impl Cluster {
    /// Brings a cluster up: the control plane, a board for each node, and on it what `furnish` puts there. It is up when all nodes are Ready.
    ///
    /// # Errors
    ///
    /// [`ClusterError`] when its name is taken or names no nodes, a program ends, a board does not come up, or nodes are not Ready in time;
    /// everything that was started is ended then, and its files are removed ([`ClusterError::Left`]: but for what does not end).
    pub fn up(
        design: &Design,
        image: &Image,
        cache: &Cache,
        parts: (&ClusterProgram, &NodeDisk),
        options: &ClusterOptions,
        furnish: &mut dyn FnMut(&mut Board) -> Result<(), ClusterError>,
        listener: Listener<'_>,
    ) -> Result<Cluster, ClusterError> {
        let mut cluster = Cluster::begin(cache, parts.0, options, listener).map_err(interrupted)?;
        match cluster.make(design, image, parts, options, furnish, listener) {
            Ok(()) => Ok(cluster),
            Err(error) => Err(cluster.given_up(interrupted(error))),
        }
    }

    /// Ends what there is of it, since it did not come up; the error with what could not be ended.
    fn given_up(mut self, error: ClusterError) -> ClusterError {
        match self.end() {
            Ok(()) => error,
            Err(left) => ClusterError::Left {
                name: self.kept.name.clone(),
                error: Box::new(error),
                left: penstock_host::chain(&left),
            },
        }
    }

    /// Ends it, once.
    fn end(&mut self) -> Result<(), ClusterError> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(());
        }
        // An interrupt ends what is going on, and not the clean-up.
        interrupt::set_aside(|| {
            self.boards.clear();
            self.plane = None;
            self.kept.end(&self.cache, &self.directory)
        })
    }

    /// Whether a cluster of this name and so many nodes can be brought up. Takes no time, so that it is said before parts are made that take
    /// minutes.
    ///
    /// # Errors
    ///
    /// [`ClusterError`] when its name names no cluster or is taken, also by a board, or there are to be no nodes or too many.
    pub fn check(cache: &Cache, name: &str, nodes: usize) -> Result<(), ClusterError> {
        kept::directory(cache, name)?;
        if !(1..=MOST_NODES).contains(&nodes) {
            return Err(ClusterError::Nodes { wanted: nodes, limit: MOST_NODES });
        }
        if let Some(cluster) = kept::list(cache)?.0.iter().find(|cluster| cluster.name == name) {
            return Err(ClusterError::taken(cluster, cache));
        }
        let taken = |board: &str| (1..=nodes).any(|number| node_name(name, number) == board);
        if let Some(board) = Board::list(cache)?.into_iter().find(|board| taken(&board.name)) {
            return Err(BoardError::Taken { name: board.name }.into());
        }
        match Board::elsewhere(cache)?.into_iter().find(|board| taken(&board.name)) {
            // It says which machine that is.
            Some(board) => Ok(Board::attach(cache, &board.name).map(drop)?),
            None => Ok(()),
        }
    }

    /// A fresh directory for it, with what is known of it.
    fn begin(
        cache: &Cache,
        program: &ClusterProgram,
        options: &ClusterOptions,
        listener: Listener<'_>,
    ) -> Result<Cluster, ClusterError> {
        let name = &options.name;
        let directory = kept::directory(cache, name)?;
        files::make_own_directory(cache.clusters())?;
        Cluster::check(cache, name, options.nodes)?;
        // Of two that begin one, the second finds what the first has written.
        let _lock = cached::lock(&kept::lock_file(cache), listener)?;
        if let Some(cluster) = KeptCluster::read(&directory) {
            return Err(ClusterError::taken(&cluster, cache));
        }
        let nodes: Vec<KeptNode> = (1..=options.nodes)
            .map(|number| KeptNode { name: node_name(name, number), qemu: None })
            .collect();
        // What is there without a `cluster.json` is of one that was killed before it had any.
        files::remove_tree(&directory)?;
        files::make_own_directory(&directory)?;
        let kept = KeptCluster {
            name: name.clone(),
            version: VERSION.to_owned(),
            server: String::new(),
            kubeconfig: directory.join(control_plane::KUBECONFIG),
            nodes,
            programs: Vec::new(),
            owner: Running::this(),
            runs_on: Some(RunsOn::here()),
            program: program.file().to_owned(),
            boards: Some(cache.running().to_owned()),
        };
        kept.write(&directory)?;
        Ok(Cluster {
            cache: cache.clone(),
            kept,
            directory,
            plane: None,
            boards: Vec::new(),
            timings: Vec::new(),
            done: false,
        })
    }

    fn make(
        &mut self,
        design: &Design,
        image: &Image,
        (program, disk): (&ClusterProgram, &NodeDisk),
        options: &ClusterOptions,
        furnish: &mut dyn FnMut(&mut Board) -> Result<(), ClusterError>,
        listener: Listener<'_>,
    ) -> Result<(), ClusterError> {
        listener(Progress::Phase("Starting etcd and the API server".to_owned()));
        let began = Instant::now();
        let names: Vec<String> = self.kept.nodes.iter().map(|node| node.name.clone()).collect();
        let secrets = Secrets::make(program, &self.directory, &names)?;
        let (kept, directory) = (&mut self.kept, &self.directory);
        let mut note = |started: &KeptProgram| {
            kept.note(started);
            kept.write(directory)
        };
        let plane = ControlPlane::start(program, directory, &options.name, &secrets, &mut note)?;
        let port = plane.port();
        self.plane = Some(plane);
        self.kept.server = config::server_here(port);
        self.kept.write(&self.directory)?;
        self.timings.push(("API server listens", began.elapsed()));

        // The API server becomes ready while the first board comes up.
        let forward = Forward { port, carrier: options.carrier.clone() };
        for (position, name) in names.iter().enumerate() {
            let began = Instant::now();
            let board = UpOptions {
                name: Some(name.clone()),
                files: Some(disk.file().to_owned()),
                forward: Some(forward.clone()),
                ..options.board.clone()
            };
            let mut board = Board::up(design.clone(), image, &self.cache, &board, listener)?;
            self.write_down(position, name)?;
            self.timings.push(("board up", began.elapsed()));
            listener(Progress::Phase(format!("Starting containerd and kubelet on {name}")));
            let began = Instant::now();
            let (_, token) = &secrets.nodes[position];
            let user = config::node_user(name);
            let kubeconfig =
                config::kubeconfig(&options.name, &config::server_on_node(), &secrets.ca, &user, token);
            furnish(&mut board)?;
            node::prepare(&board, &NodeFiles { name, ca: &secrets.ca, kubeconfig: &kubeconfig })?;
            self.timings.push(("containerd up", began.elapsed()));
            if position == 0 {
                self.complete(program, options.simulate)?;
            }
            let began = Instant::now();
            node::start(&board, name)?;
            self.timings.push(("kubelet started, image there", began.elapsed()));
            self.boards.push(board);
        }
        listener(Progress::Phase("Waiting until all nodes are Ready".to_owned()));
        let began = Instant::now();
        self.await_nodes(program, &names)?;
        self.timings.push(("nodes Ready", began.elapsed()));
        Ok(())
    }

    fn complete(&mut self, program: &ClusterProgram, simulate: bool) -> Result<(), ClusterError> {
        let (kept, directory) = (&mut self.kept, &self.directory);
        let mut note = |started: &KeptProgram| {
            kept.note(started);
            kept.write(directory)
        };
        match &mut self.plane {
            Some(plane) => plane.complete(program, directory, simulate, &mut note),
            None => Ok(()),
        }
    }

    /// The QEMU of a node's board, so that it can be told from a later board of its name.
    fn write_down(&mut self, position: usize, name: &str) -> Result<(), ClusterError> {
        let boards = Board::list(&self.cache)?;
        let board: Option<&KeptBoard> = boards.iter().find(|board| board.name == name);
        self.kept.nodes[position].qemu = board.and_then(|board| board.qemu);
        self.kept.write(&self.directory)
    }

    fn await_nodes(&mut self, program: &ClusterProgram, names: &[String]) -> Result<(), ClusterError> {
        let deadline = Instant::now() + READY;
        let round = format!("--timeout={}s", ROUND.as_secs());
        let nodes: Vec<String> = names.iter().map(|name| format!("node/{name}")).collect();
        for condition in ["create", "condition=Ready"] {
            let wait = control_plane::kubectl(program, &self.directory)
                .args(["wait", &format!("--for={condition}"), &round])
                .args(&nodes)
                .deadline(READY);
            loop {
                let output = wait.run()?;
                if output.status.success() {
                    break;
                }
                if interrupt::pending() {
                    return Err(ClusterError::Interrupted { doing: "waiting for the nodes" });
                }
                if let Some(plane) = &mut self.plane {
                    plane.check(&self.directory)?;
                }
                for (board, node) in self.boards.iter().zip(&self.kept.nodes) {
                    if node.qemu.is_some_and(|qemu| !qemu.is_alive())
                        && let Some(died) = board.died()
                    {
                        return Err(died.into());
                    }
                    if let Some(why) = node::kubelet_ended(board, &node.name)? {
                        return Err(ClusterError::Ended {
                            program: format!("kubelet on {}", node.name),
                            why,
                        });
                    }
                }
                if Instant::now() > deadline {
                    let logs = self
                        .boards
                        .iter()
                        .map(|board| format!("kubelet on {} said last:\n{}", board.name(), node::log(board)));
                    let why = std::iter::once(output.errors()).chain(logs).collect::<Vec<_>>().join("\n");
                    return Err(ClusterError::NodesNotReady { after: READY, why });
                }
            }
        }
        Ok(())
    }

    /// Lets it run on when this process ends.
    ///
    /// # Errors
    ///
    /// [`ClusterError::File`] or [`ClusterError::Board`] when it cannot be written down that it or a board of it stays; it ends then.
    pub fn detach(mut self) -> Result<KeptCluster, ClusterError> {
        std::mem::take(&mut self.boards).into_iter().try_for_each(Board::detach)?;
        let stays = KeptCluster { owner: None, ..self.kept.clone() };
        stays.write(&self.directory)?;
        if let Some(plane) = self.plane.take() {
            plane.leave();
        }
        self.done = true;
        Ok(stays)
    }

    /// What each phase of bringing it up took, in order; boards one after the other.
    pub fn timings(&self) -> &[(&'static str, Duration)] {
        &self.timings
    }

    /// The clusters that there are, and why some of them, whose Penstock was killed or of which nothing runs, could not be cleared away.
    ///
    /// # Errors
    ///
    /// [`ClusterError::File`] when the directory of clusters cannot be read, or is not this user's own.
    pub fn list(cache: &Cache) -> Result<(Vec<KeptCluster>, Vec<ClusterError>), ClusterError> {
        kept::list(cache)
    }

    /// A cluster by name.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NoSuchCluster`] with those that there are, [`ClusterError::Elsewhere`] for one of another machine or a container, and as
    /// [`list`](Cluster::list).
    pub fn find(cache: &Cache, name: &str) -> Result<KeptCluster, ClusterError> {
        kept::directory(cache, name)?;
        let (clusters, _) = kept::list(cache)?;
        let found = clusters.iter().find(|cluster| cluster.name == name).cloned();
        if let Some(cluster) = found.as_ref().filter(|cluster| cluster.elsewhere().is_some()) {
            return Err(ClusterError::taken(cluster, cache));
        }
        found.ok_or_else(|| ClusterError::NoSuchCluster {
            name: name.to_owned(),
            kept: clusters.into_iter().map(|cluster| cluster.name).collect(),
        })
    }

    /// Ends a cluster with its nodes, and removes its files.
    ///
    /// # Errors
    ///
    /// As [`find`](Cluster::find), and [`ClusterError::Stuck`] when a process does not end; it can be tried again.
    pub fn down(cache: &Cache, name: &str) -> Result<KeptCluster, ClusterError> {
        let cluster = Cluster::find(cache, name)?;
        cluster.end(cache, &kept::directory(cache, name)?)?;
        Ok(cluster)
    }

    /// The file by which its administrator enters it from a node: as that on this machine, with the address that leads there from a node.
    ///
    /// # Errors
    ///
    /// As [`find`](Cluster::find), [`ClusterError::ComingUp`] before it has an API server, and [`ClusterError::File`] when the administrator's
    /// file cannot be read.
    pub fn kubeconfig(cache: &Cache, name: &str, on_node: bool) -> Result<String, ClusterError> {
        let cluster = Cluster::find(cache, name)?;
        if cluster.server.is_empty() {
            return Err(ClusterError::ComingUp { name: cluster.name });
        }
        let text = files::read_to_string(&cluster.kubeconfig)?;
        Ok(if on_node { text.replace(&cluster.server, &config::server_on_node()) } else { text })
    }

    /// kubectl of the cluster's version, as its administrator.
    ///
    /// # Errors
    ///
    /// As [`find`](Cluster::find).
    pub fn kubectl(cache: &Cache, name: &str) -> Result<Command, ClusterError> {
        let cluster = Cluster::find(cache, name)?;
        let program: &Path = &cluster.program;
        Ok(Command::new(program).arg("kubectl").env("KUBECONFIG", &cluster.kubeconfig))
    }
}

/// An error as that of an interrupt, whatever was being done: it failed because of that.
fn interrupted(error: ClusterError) -> ClusterError {
    match error {
        ClusterError::Process(ProcessError::Interrupted { .. })
        | ClusterError::Board(BoardError::Interrupted { .. })
        | ClusterError::Node {
            source: penstock_host::PlaceError::Process { source: ProcessError::Interrupted { .. }, .. },
            ..
        } => ClusterError::Interrupted { doing: "bringing the cluster up" },
        error => error,
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::Source;

    #[test]
    fn of_a_cluster_that_did_not_come_up_it_is_said_what_is_left() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path()).running_in(there.path().join("boards"));
        let options = ClusterOptions {
            name: "a".to_owned(),
            nodes: 1,
            simulate: false,
            board: UpOptions::default(),
            carrier: Command::new("/bin/sh"),
        };
        let begin =
            || Cluster::begin(&cache, &ClusterProgram::called("/nosuch"), &options, &mut |_| {}).unwrap();
        let why = || ClusterError::Interrupted { doing: "bringing the cluster up" };
        let error = begin().given_up(why());
        assert!(matches!(error, ClusterError::Interrupted { .. }), "nothing is left: {error}");
        let (cluster, lock) = (begin(), kept::lock_file(&cache));
        assert_eq!(cluster.kept.boards.as_deref(), Some(cache.running()));
        // Without the lock nothing is removed.
        files::remove_file(&lock).unwrap();
        files::create_dir_all(&lock).unwrap();
        let error = cluster.given_up(why());
        let said = error.to_string();
        assert!(
            said.starts_with("interrupted while bringing the cluster up; ") && said.contains("clusters.lock"),
            "{said}"
        );
        assert!(error.hint().is_some_and(|hint| hint.contains("cluster down a")));
        assert!(files::exists(cache.clusters().join("a")));
    }

    #[test]
    fn a_board_that_is_too_small_for_a_node_is_made_larger_and_that_is_said() {
        let design = |text: &str| {
            let parsed =
                penstock_model::parse(&Source::new("test.yaml", text)).expect("the test's model is good");
            Design::from_model(&parsed.model, None).expect("the test's board can be composed")
        };
        let mut small = design("nics: {NET0: {vfs: 2}}\nboard: {memory: 512MiB, cpus: 1}\n");
        let said = fit(&mut small);
        assert_eq!((small.memory, small.cpus), (MEMORY, CPUS));
        assert!(said.len() == 2 && said[0].contains("2048 MiB") && said[0].contains("512 MiB"), "{said:?}");
        let mut large = design("nics: {NET0: {vfs: 2}}\nboard: {memory: 4GiB, cpus: 3}\n");
        assert!(fit(&mut large).is_empty());
        assert_eq!((large.memory.0 >> 30, large.cpus), (4, 3));
    }
}
