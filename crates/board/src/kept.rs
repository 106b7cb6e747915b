//! What is written down of a board that runs, so that another Penstock can find, enter and end it.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use penstock_host::{
    files,
    running::{self, Running, RunsOn},
};
use penstock_model::{BoardKernel, InterfaceName, digest::sha256};
use serde::{Deserialize, Serialize};

use crate::{
    accelerator::Choice,
    cache::{Cache, DirectoryLock},
    error::BoardError,
    machine, switch,
};

const FILE: &str = "board.json";
/// How long a process may take to be gone.
const ENDING: Duration = Duration::from_secs(10);
/// How long one may take that is not the one that is asked for: each command looks at all, and one that cannot be ended holds none up for
/// long. What is killed and not gone by then is found again.
const PASSING: Duration = Duration::from_secs(1);
/// The longest name that becomes a directory as it is; the paths of sockets must stay short.
const LONGEST_NAME: usize = 20;

/// A running board, as it is written in its directory.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct KeptBoard {
    /// The name of the board.
    pub name: String,
    /// The loopback port of its SSH server.
    pub port: u16,
    /// Its QEMU; `None` before that runs.
    pub qemu: Option<Running>,
    /// Its embedded switches.
    #[serde(default)]
    pub switches: Vec<Running>,
    /// The Penstock that it is to end with; `None` when it stays.
    pub owner: Option<Running>,
    /// Where these processes run; `None` for a board from before it was written down.
    #[serde(default)]
    pub runs_on: Option<RunsOn>,
    /// The version of QEMU that runs it.
    pub emulator: String,
    /// What executes it, and why.
    pub choice: Choice,
    /// The file that its QEMU's process runs; `None` for a board from before it was written down.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// The kernel that it boots.
    #[serde(default = "standard")]
    pub kernel: BoardKernel,
    /// Whether it can be reset: what it was furnished with outlives that.
    #[serde(default)]
    pub can_be_reset: bool,
    /// The Linux bridges that were made in it, which a reset takes away and which are made again then.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub bridges: BTreeSet<InterfaceName>,
}

impl fmt::Display for KeptBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeptBoard { name, port, .. } = self;
        write!(
            f,
            "{name}: SSH on 127.0.0.1:{port}, QEMU {} ({}), {} kernel",
            self.emulator,
            self.choice.accelerator.name(),
            self.kernel.name()
        )?;
        self.owner.map_or(Ok(()), |owner| write!(f, ", ends with process {}", owner.id))?;
        self.elsewhere()
            .map_or(Ok(()), |host| write!(f, "; it runs on another machine or in a container: {host}"))
    }
}

/// The kernel of boards from before there was another.
fn standard() -> BoardKernel {
    BoardKernel::Standard
}

impl KeptBoard {
    /// The name of the machine or the container that it runs on, where that is not this one: whether it runs cannot be told from here.
    pub fn elsewhere(&self) -> Option<&str> {
        RunsOn::elsewhere(self.runs_on.as_ref())
    }

    /// Whether that is written down of the very same board, and not of a later one of its name.
    fn is_same(&self, written: &KeptBoard) -> bool {
        self.qemu == written.qemu && (self.qemu.is_some() || self.owner == written.owner)
    }

    /// Whether its QEMU runs.
    pub fn is_up(&self) -> bool {
        self.qemu.is_some_and(|qemu| qemu.is_alive())
    }

    /// Reads what is written in `directory`; `None` when nothing is.
    pub(crate) fn read(directory: &Path) -> Option<KeptBoard> {
        serde_json::from_slice(&files::read(directory.join(FILE)).ok()?).ok()
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<(), BoardError> {
        // Plain fields always become JSON.
        let bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        Ok(files::write_atomic_mode(directory.join(FILE), bytes, 0o600)?)
    }

    /// Ends its QEMU and its switches, the very processes and no others, and removes its directory. They work in that directory,
    /// which is nobody else's: what is written down here may be from before the machine was last started. A QEMU is found, too, that was
    /// started a moment before a Penstock was killed that had yet to write it down.
    pub(crate) fn end(&self, directory: &Path) -> Result<(), BoardError> {
        self.end_within(directory, ENDING)
    }

    /// As [`end`](KeptBoard::end), where each process may take this long to be gone.
    fn end_within(&self, directory: &Path, time: Duration) -> Result<(), BoardError> {
        if let Some(qemu) = self.qemu
            && !qemu.kill_in(directory, time)
        {
            return Err(BoardError::Stuck { name: self.name.clone(), id: qemu.id });
        }
        for switch in &self.switches {
            // It would also end by itself, without guests. Who starts it anew is killed first, and it with that.
            switch.kill_in(directory, time);
        }
        switch::await_end(directory);
        let _lock = directory.parent().map(DirectoryLock::of).transpose()?;
        // Another Penstock may have ended it too, and one may have been brought up in its place.
        if KeptBoard::read(directory).is_some_and(|written| !self.is_same(&written)) {
            return Ok(());
        }
        let found = self.program.iter().flat_map(|program| running::of_program_in(program, directory));
        for qemu in found {
            if !qemu.kill_in(directory, time) {
                return Err(BoardError::Stuck { name: self.name.clone(), id: qemu.id });
            }
        }
        Ok(files::remove_tree(directory)?)
    }
}

/// The directory of the board `name`.
pub(crate) fn directory(cache: &Cache, name: &str) -> Result<PathBuf, BoardError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(good) {
        return Err(BoardError::Name { name: name.to_owned() });
    }
    let short = if name.len() <= LONGEST_NAME {
        name.to_owned()
    } else {
        format!("{}~{}", &name[..LONGEST_NAME - 8], &sha256(name)[..7])
    };
    Ok(cache.running().join(short))
}

/// A fresh directory for a board of this name, or for one whose name nobody has, with what `board` says is known of it.
pub(crate) fn claim(
    cache: &Cache,
    wanted: Option<&str>,
    board: impl FnOnce(String) -> KeptBoard,
) -> Result<(PathBuf, KeptBoard), BoardError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    files::make_own_directory(cache.running())?;
    // The names of those whose Penstock is gone can be had again.
    list(cache, None)?;
    // Of two that bring one up, the second finds what the first has written.
    let _lock = DirectoryLock::of(cache.running())?;
    let (name, directory) = loop {
        let next = || format!("run-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = wanted.map_or_else(next, str::to_owned);
        let directory = directory(cache, &name)?;
        match KeptBoard::read(&directory) {
            None => break (name, directory),
            // A process of a container can have the same number.
            Some(_) if wanted.is_none() => {}
            Some(board) if board.elsewhere().is_some() => {
                return Err(BoardError::elsewhere(&board, directory));
            }
            Some(_) => return Err(BoardError::Taken { name }),
        }
    };
    // What is there without a `board.json` is of one that was killed before it had any.
    files::remove_tree(&directory)?;
    files::create_dir_all(&directory)?;
    files::set_mode(&directory, 0o700)?;
    let board = board(name);
    board.write(&directory)?;
    Ok((directory, board))
}

/// What is written down of boards, by name.
#[derive(Debug, Default)]
pub(crate) struct KeptBoards {
    /// Those that run.
    pub running: Vec<KeptBoard>,
    /// Those that stayed and whose QEMU has ended by itself.
    pub ended: Vec<KeptBoard>,
    /// Those of another machine or a container, of which nothing more is known.
    pub elsewhere: Vec<KeptBoard>,
    /// The names of those that are to be gone, and what keeps them.
    pub stuck: Vec<(String, BoardError)>,
}

/// All boards. Those whose Penstock is gone, and which were to end with it, are cleared away, but for those of another machine or container.
/// One that cannot be keeps nobody from the others, and is waited for only where it is the one that is `named`.
pub(crate) fn list(cache: &Cache, named: Option<&str>) -> Result<KeptBoards, BoardError> {
    // Somebody else's could name any process, to be ended by us: `/tmp` is everybody's. Held, so that it is not exchanged.
    let Some(held) = files::own_directory(cache.running())? else { return Ok(KeptBoards::default()) };
    let mut boards = KeptBoards::default();
    for name in files::list(held.path())? {
        let directory = held.path().join(&name);
        if let Some(board) = KeptBoard::read(&directory).filter(|board| board.elsewhere().is_some()) {
            boards.elsewhere.push(board);
            continue;
        }
        let kept = running::with_owner(|| KeptBoard::read(&directory), |board| board.owner);
        let Some((board, orphaned)) = kept else { continue };
        match (board.is_up(), board.owner) {
            _ if orphaned => {
                let ended = board.end_within(&cache.running().join(name), ending_timeout(named, &board.name));
                boards.stuck.extend(ended.err().map(|error| (board.name, error)));
            }
            (true, _) => boards.running.push(board),
            // It is being made, or whoever made it sees for itself that it ended.
            (false, Some(_)) => {}
            (false, None) => boards.ended.push(board),
        }
    }
    Ok(boards)
}

/// How long each process of a board may take to be gone where that board, another, or none is named.
fn ending_timeout(named: Option<&str>, board: &str) -> Duration {
    if named == Some(board) { ENDING } else { PASSING }
}

/// Clears boards away whose QEMU has ended by itself, that of this name or all; gives why each ended ([`BoardError::Died`]), and what keeps
/// those that are to be gone.
pub(crate) fn clear_ended(cache: &Cache, name: Option<&str>) -> Result<Vec<BoardError>, BoardError> {
    let KeptBoards { mut ended, mut stuck, .. } = list(cache, name)?;
    let wanted = |board: &str| name.is_none_or(|name| board == name);
    ended.retain(|board| wanted(&board.name));
    stuck.retain(|(name, _)| wanted(name));
    Ok(cleared(cache, ended, stuck))
}

/// Why boards ended, which are cleared away, and what keeps others.
fn cleared(cache: &Cache, ended: Vec<KeptBoard>, stuck: Vec<(String, BoardError)>) -> Vec<BoardError> {
    let ended = ended.into_iter().map(|board| clear(cache, board).unwrap_or_else(|error| error));
    ended.chain(stuck.into_iter().map(|(_, error)| error)).collect()
}

/// Those that are there, those of elsewhere last, and what [`clear_ended`] gives of all others.
pub(crate) fn survey(cache: &Cache) -> Result<(Vec<KeptBoard>, Vec<BoardError>), BoardError> {
    let KeptBoards { mut running, ended, elsewhere, stuck } = list(cache, None)?;
    running.extend(elsewhere);
    Ok((running, cleared(cache, ended, stuck)))
}

/// Clears one away; gives why it ended.
pub(crate) fn clear(cache: &Cache, board: KeptBoard) -> Result<BoardError, BoardError> {
    let directory = directory(cache, &board.name)?;
    let why = machine::last_words(&directory);
    board.end(&directory)?;
    Ok(BoardError::Died { name: board.name, why })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
pub(crate) mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use penstock_host::Command;

    use super::*;

    /// A board of this process, without a QEMU.
    pub(crate) fn kept(name: &str) -> KeptBoard {
        KeptBoard {
            name: name.to_owned(),
            port: 1,
            qemu: None,
            switches: Vec::new(),
            owner: Running::this(),
            runs_on: Some(RunsOn::here()),
            emulator: "9".to_owned(),
            choice: Choice::counting(),
            program: None,
            kernel: BoardKernel::Standard,
            can_be_reset: false,
            bridges: BTreeSet::new(),
        }
    }

    /// A cache whose boards run below it.
    fn cache(there: &tempfile::TempDir) -> Cache {
        let cache = Cache::at(there.path()).running_in(there.path().join("run"));
        files::make_own_directory(cache.running()).unwrap();
        cache
    }

    fn names(boards: &[KeptBoard]) -> Vec<&str> {
        boards.iter().map(|board| board.name.as_str()).collect()
    }

    #[test]
    fn a_board_of_another_machine_is_let_alone_and_that_is_said() {
        let there = tempfile::tempdir().unwrap();
        let cache = cache(&there);
        let elsewhere = RunsOn { host: "b".into(), start: "of b".into(), machine: None };
        // None has a process of which this machine knows.
        let gone = Some(Running { id: 1, started: 0 });
        for (name, owner, qemu) in [("stays", None, gone), ("made", gone, None), ("begun", gone, gone)] {
            let directory = directory(&cache, name).unwrap();
            files::make_own_directory(&directory).unwrap();
            let runs_on = Some(elsewhere.clone());
            KeptBoard { owner, qemu, runs_on, ..kept(name) }.write(&directory).unwrap();
        }
        for _ in 0..2 {
            let listed = list(&cache, None).unwrap();
            assert_eq!(names(&listed.elsewhere), ["begun", "made", "stays"]);
            assert!(listed.running.is_empty() && listed.ended.is_empty());
            let (all, cleared) = survey(&cache).unwrap();
            assert_eq!((names(&all), cleared.len()), (vec!["begun", "made", "stays"], 0));
            assert!(clear_ended(&cache, None).unwrap().is_empty());
            for board in &listed.elsewhere {
                let said = board.to_string();
                assert!(said.ends_with("; it runs on another machine or in a container: b"), "{said}");
                for error in [
                    crate::Board::drop_kept(&cache, &board.name).unwrap_err(),
                    claim(&cache, Some(&board.name), |name| kept(&name)).unwrap_err(),
                ] {
                    assert!(matches!(&error, BoardError::Elsewhere { host, .. } if host == "b"), "{error}");
                    assert!(error.hint().is_some());
                }
            }
        }
    }

    #[test]
    fn of_those_who_bring_up_one_name_one_does() {
        let there = tempfile::tempdir().unwrap();
        let cache = cache(&there);
        for round in 0..20 {
            let name = format!("board{round}");
            let all: Vec<_> = std::thread::scope(|scope| {
                let one = || {
                    let claimed = claim(&cache, Some(&name), |name| kept(&name));
                    claimed.map(|(directory, _)| files::write_atomic(directory.join("its"), "").unwrap())
                };
                let all: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1, "{all:?}");
            let taken = |one: &Result<(), BoardError>| matches!(one, Ok(()) | Err(BoardError::Taken { .. }));
            assert!(all.iter().all(taken), "{all:?}");
            assert!(files::exists(directory(&cache, &name).unwrap().join("its")));
        }
        // No two without a name are one.
        let (one, other) = (claim(&cache, None, |name| kept(&name)), claim(&cache, None, |name| kept(&name)));
        assert_ne!(one.unwrap().0, other.unwrap().0);
        assert!(!files::list(cache.running()).unwrap().contains(&DirectoryLock::NAME.to_owned()));
    }

    /// Processes of this machine that have ended.
    const GONE: Option<Running> = Some(Running { id: 1, started: 0 });

    #[test]
    fn a_qemu_that_a_killed_penstock_had_not_written_down_is_ended() {
        let there = tempfile::tempdir().unwrap();
        let cache = cache(&there);
        let program = penstock_host::process::find("sleep").unwrap();
        let (directory, board) = claim(&cache, Some("a"), |name| kept(&name)).unwrap();
        let start = |at: &Path| {
            let command = Command::new("sleep").arg("600").current_dir(at);
            command.start_to_stay(tempfile::tempfile().unwrap()).unwrap()
        };
        let (its, other) = (start(&directory), start(there.path()));
        KeptBoard { owner: GONE, program: Some(program), ..board }.write(&directory).unwrap();
        assert!(list(&cache, Some("a")).unwrap().running.is_empty());
        assert!(!files::exists(&directory));
        assert!(Running::of(its.id()).is_none(), "it is gone");
        assert!(Running::of(other.id()).is_some(), "it is let alone");
        its.end(Duration::ZERO);
        other.end(Duration::ZERO);
    }

    #[test]
    fn a_board_that_cannot_be_ended_keeps_nobody_from_the_others() {
        let there = tempfile::tempdir().unwrap();
        let cache = cache(&there);
        for (name, owner, qemu) in
            [("ended", None, GONE), ("runs", None, Running::this()), ("left", GONE, None)]
        {
            let (directory, board) = claim(&cache, Some(name), |name| kept(&name)).unwrap();
            KeptBoard { owner, qemu, ..board }.write(&directory).unwrap();
        }
        // Without the lock none is removed.
        files::create_dir_all(cache.running().join(DirectoryLock::NAME)).unwrap();
        let listed = list(&cache, None).unwrap();
        assert_eq!((names(&listed.running), names(&listed.ended)), (vec!["runs"], vec!["ended"]));
        assert_eq!(listed.stuck.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["left"]);
        assert_eq!(clear_ended(&cache, None).unwrap().len(), 2);
        let (all, cleared) = survey(&cache).unwrap();
        assert_eq!((names(&all), cleared.len()), (vec!["runs"], 2));
        // Only who asks for that one waits for it.
        assert_eq!(
            [Some("left"), Some("runs"), None].map(|named| ending_timeout(named, "left")),
            [ENDING, PASSING, PASSING]
        );
        assert_eq!(clear_ended(&cache, Some("left")).unwrap().len(), 1);
        assert!(
            matches!(crate::Board::attach(&cache, "left"), Err(BoardError::File(_))),
            "what keeps it is said"
        );
        assert_eq!(crate::Board::attach(&cache, "runs").unwrap().name(), "runs");
    }

    #[test]
    fn a_later_board_of_a_name_is_not_removed_for_an_earlier_one() {
        let there = tempfile::tempdir().unwrap();
        let cache = cache(&there);
        let (directory, later) = claim(&cache, Some("a"), |name| kept(&name)).unwrap();
        let gone = Some(Running { id: 1, started: 0 });
        for earlier in [KeptBoard { owner: gone, ..kept("a") }, KeptBoard { qemu: gone, ..kept("a") }] {
            earlier.end(&directory).unwrap();
            assert!(files::exists(&directory));
        }
        later.end(&directory).unwrap();
        assert!(!files::exists(&directory));
    }

    #[test]
    fn a_board_that_another_user_wrote_down_ends_no_process() {
        let there = tempfile::tempdir().unwrap();
        let cache = Cache::at(there.path().join("cache"));
        let victim = Command::new("sleep").arg("600").start_to_stay(tempfile::tempfile().unwrap()).unwrap();
        let process = Running::of(victim.id()).unwrap();
        // As another user can make it who foresees the directory: their `board.json`, with a process of root's.
        let planted = there.path().join("planted");
        std::fs::create_dir_all(planted.join("a")).unwrap();
        let choice = r#"{"accelerator": "tcg", "why": "a test"}"#;
        let text = format!(
            r#"{{"name": "a", "port": 1, "qemu": {{"pid": {}, "started": {}}}, "owner": {{"pid": 1, "started": 99}},
                "emulator": "9", "choice": {choice}}}"#,
            process.id, process.started
        );
        std::fs::write(planted.join("a").join(FILE), text).unwrap();
        let running = cache.running().to_owned();
        std::fs::create_dir_all(running.parent().unwrap()).unwrap();
        let refused = |why: &str| {
            let said = penstock_host::chain(&list(&cache, None).unwrap_err());
            assert!(said.contains(why), "{said}");
            assert!(process.is_alive());
        };
        symlink(&planted, &running).unwrap();
        refused("it is a symbolic link");
        std::fs::remove_file(&running).unwrap();
        std::fs::rename(&planted, &running).unwrap();
        // Only root can make it somebody else's; the rest holds for everybody.
        if penstock_host::process::is_root() {
            std::os::unix::fs::chown(&running, Some(65534), None).unwrap();
            refused("it belongs to user 65534");
            std::os::unix::fs::chown(&running, Some(0), None).unwrap();
        } else {
            penstock_testkit::skip::part("needs root");
        }
        std::fs::set_permissions(&running, std::fs::Permissions::from_mode(0o777)).unwrap();
        refused("others than its owner may write to it");
        victim.end(Duration::ZERO);
        std::fs::remove_dir_all(&running).unwrap();
    }
}
