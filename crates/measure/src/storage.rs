//! Storage: fio in a guest and on the host, on the same file or device.
//!
//! **Files.** In a container's directory the host makes the file, through the container's root, and holds it: fio on the host
//! is given the held file and never a path that the container could have changed meanwhile. In a VM fio itself makes it,
//! in a new directory that only root can enter.
//! It is written once before the first sample, and removed after the last; the next run removes that of one that was killed.
//!
//! **Devices** are read, and written only where the model says so. Even then none is written that holds a file system
//! that somebody has mounted, swap space, or another device; and none whose path inside is another device than on the host.
//!
//! Both ends use fio the same way: past the page cache and through io_uring where both can, else the best that both can,
//! which is noted.

pub mod cells;
pub mod command;
mod left_over;
mod place;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_host::{
    Command, Place, PlaceError, ProcessError, chain, interrupt,
    scratch::{Directory, Scratch},
};
use penstock_model::{
    StorageTarget,
    measurement::{Mix, Storage, Subject, Tool, ToolVersion},
    verdict::Vantage,
};
use penstock_statistics::Random;

pub use cells::{matrix, targets};

use crate::{
    matrix::Planned,
    network::lease::{MARK, sweep},
    output::OutputError,
    parse::{Reading, fio},
    record::RawOutput,
    sampler::{Failure, Preparation, Sampler},
    storage::command::IoMethod,
    testbed::Testbed,
};

/// A file system is never filled further than this part of what is free.
const MOST_OF_FREE: f64 = 0.9;

/// How long a small question may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The name of the file in the directory that is made for it.
const FILE: &str = "data";

/// Blocks that every file and device takes.
const USUAL_BLOCK: u32 = 4096;

/// Takes samples of storage cells.
pub struct StorageTaker {
    testbed: Testbed,
    targets: BTreeMap<String, StorageTarget>,
    /// What fio is given, by target and place.
    files: BTreeMap<(String, Vantage), String>,
    ways: BTreeMap<String, IoMethod>,
    /// The cells that were refused, by id, each with the reason.
    refused: BTreeMap<String, String>,
    /// Files that were made here, and directories in VMs.
    made: Vec<Scratch>,
    made_inside: Vec<(Vantage, String)>,
    /// What no other run calls anything, and what tells this run's processes from all others.
    run: String,
    mark: String,
}

/// An end of a target: where fio runs, and on what.
struct Arm {
    vantage: Vantage,
    place: Arc<dyn Place>,
    file: String,
}

/// Where fio is run, and how its processes are found again.
#[derive(Clone, Copy)]
struct Runner<'a> {
    place: &'a dyn Place,
    mark: &'a str,
}

/// What is found of a target while it is made ready.
struct TargetCells<'a> {
    target: &'a StorageTarget,
    cells: Vec<(&'a Planned, &'a Storage)>,
    missing: BTreeMap<String, String>,
}

impl TargetCells<'_> {
    /// The cells that these words are true of are missing, because of this; the first reason stays.
    fn miss(&mut self, which: impl Fn(&Planned, &Storage) -> bool, why: &str) {
        for (cell, storage) in &self.cells {
            if which(cell, storage) {
                self.missing.entry(cell.id.clone()).or_insert_with(|| why.to_owned());
            }
        }
    }

    fn miss_at(&mut self, vantage: &Vantage, why: &str) {
        self.miss(|_, storage| storage.place == *vantage, why);
    }

    fn wants(&self, which: impl Fn(&Planned, &Storage) -> bool) -> bool {
        self.cells.iter().any(|(cell, storage)| which(cell, storage))
    }
}

impl StorageTaker {
    /// Of these targets, which are those of [`targets`].
    pub fn new(testbed: &Testbed, targets: &[StorageTarget]) -> StorageTaker {
        let targets = targets.iter().map(|target| (cells::label(target), target.clone())).collect();
        let run = own_name();
        StorageTaker {
            testbed: testbed.clone(),
            targets,
            files: BTreeMap::new(),
            ways: BTreeMap::new(),
            refused: BTreeMap::new(),
            made: Vec::new(),
            made_inside: Vec::new(),
            mark: left_over::mark(&run),
            run,
        }
    }

    /// Makes one target ready at both ends.
    fn make_ready(&mut self, label: &str, found: &mut TargetCells<'_>, preparation: &mut Preparation) {
        if !found.target.write {
            let why = format!("{label} may not be written to: the model has it with `write: off`");
            found.miss(|cell, _| cells::writes(cell), &why);
        }
        let vantages: BTreeSet<Vantage> =
            found.cells.iter().map(|(_, storage)| storage.place.clone()).collect();
        let mut places = BTreeMap::new();
        for vantage in vantages {
            match self.ready_place(&vantage, preparation) {
                Ok(place) => drop(places.insert(vantage, place)),
                Err(why) => found.miss_at(&vantage, &why),
            }
        }
        let outcome = match cells::is_device(found.target) {
            true => self.device(found, &places),
            false => self.directory(found, &places),
        };
        let arms = outcome.unwrap_or_else(|why| {
            found.miss(|_, _| true, &why);
            Vec::new()
        });
        let Some((arms, way)) = choose_way(arms, found, preparation, label, &self.mark) else { return };
        smaller_blocks(&arms, way, found, &self.mark);
        if !way.goes_deep() {
            let why =
                format!("only {} works at both ends, which does one operation after the other", way.engine);
            found.miss(|_, storage| storage.depth > 1, &why);
        }
        self.ways.insert(label.to_owned(), way);
        for arm in arms {
            self.files.insert((label.to_owned(), arm.vantage), arm.file);
        }
    }

    /// A place with fio.
    fn ready_place(
        &self,
        vantage: &Vantage,
        preparation: &mut Preparation,
    ) -> Result<Arc<dyn Place>, String> {
        let place = self.testbed.place(vantage)?.clone();
        let version = version(place.as_ref());
        let told =
            ToolVersion { tool: Tool::Fio, place: place.describe(), version: version.as_ref().ok().cloned() };
        if !preparation.tools.contains(&told) {
            preparation.tools.push(told);
        }
        version.map(|_| place)
    }

    fn device(
        &self,
        found: &mut TargetCells<'_>,
        places: &BTreeMap<Vantage, Arc<dyn Place>>,
    ) -> Result<Vec<Arm>, String> {
        let inside = Vantage::Guest(found.target.guest.clone());
        let path = found.target.path.clone();
        let here = found.target.host.as_deref().map(place::device_here).transpose();
        let writes = found.wants(|cell, _| cells::writes(cell));
        if let (Ok(Some((node, device))), true) = (&here, writes)
            && let Some(why) = place::in_use_here(node, *device)
        {
            found.miss(|cell, _| cells::writes(cell), &format!("{node} is not written to: {why}"));
        }
        let mut arms = Vec::new();
        if let Some(place) = places.get(&inside) {
            let root = place::root_of(place.as_ref())?;
            let refused = match (&root, &here) {
                // Both ends must be one device: what is written to another may be somebody's.
                (Some(root), Ok(Some((_, device)))) => place::another_device_inside(root, &path, *device),
                (Some(_), Ok(None)) => {
                    Some(format!("the model gives {} no device {path}", found.target.guest))
                }
                (Some(_), Err(why)) => Some(why.clone()),
                (None, _) => None,
            };
            if let Some(why) = refused {
                return Err(why);
            }
            if root.is_none()
                && writes
                && let Some(why) = place::in_use_inside(place.as_ref(), &path)
            {
                found.miss(|cell, _| cells::writes(cell), &format!("it is not written to: {why}"));
            }
            arms.push(Arm { vantage: inside, place: place.clone(), file: path });
        }
        if let Some(place) = places.get(&Vantage::Host) {
            match here {
                Ok(Some((file, _))) => arms.push(Arm { vantage: Vantage::Host, place: place.clone(), file }),
                Ok(None) => found.miss_at(&Vantage::Host, "the model tells no path of it on the host"),
                Err(why) => found.miss_at(&Vantage::Host, &why),
            }
        }
        Ok(arms)
    }

    fn directory(
        &mut self,
        found: &mut TargetCells<'_>,
        places: &BTreeMap<Vantage, Arc<dyn Place>>,
    ) -> Result<Vec<Arm>, String> {
        let target = found.target;
        let inside = Vantage::Guest(target.guest.clone());
        let name = format!(".penstock-measure-{}", target.guest);
        let mut file_inside = target.path.trim_end_matches('/').to_owned();
        file_inside.push('/');
        file_inside.push_str(&name);
        // A VM is given a new directory: somebody there could have laid a link where the name is known.
        let own_inside = left_over::directory(&file_inside, &self.run, self.made_inside.len());
        let size = target.size.0;
        let mut arms = Vec::new();
        // The guest's own directory, as the host reaches it.
        let mut theirs = None;
        let guest = places.get(&inside).or_else(|| self.testbed.places.get(&inside)?.as_ref().ok());
        if let Some(place) = guest
            && let Some(root) = place::root_of(place.as_ref())?
        {
            let directory = Directory::in_root(&root, &target.path);
            // The process could have ended, and another have its number.
            place.namespace().map_err(|error| chain(&error))?;
            let directory = directory.map_err(|error| chain(&error))?;
            theirs = Some(self.make(directory, &name, size)?);
        }
        if let Some(place) = places.get(&inside) {
            let made = match theirs {
                Some(_) => Ok(()),
                None => {
                    file_inside = format!("{own_inside}/{FILE}");
                    let directories = (target.path.as_str(), own_inside.as_str());
                    self.lay_out_inside(&inside, place.as_ref(), directories, &name, size)
                }
            };
            match made {
                Ok(()) => arms.push(Arm { vantage: inside, place: place.clone(), file: file_inside }),
                Err(why) => found.miss_at(&inside, &why),
            }
        }
        if let Some(place) = places.get(&Vantage::Host) {
            match self.file_on_host(target, theirs, &name) {
                Ok(file) => arms.push(Arm { vantage: Vantage::Host, place: place.clone(), file }),
                Err(why) => found.miss_at(&Vantage::Host, &why),
            }
        }
        Ok(arms)
    }

    /// The host's end of a directory. `theirs` is the file in the container's, by its position in `made`.
    fn file_on_host(
        &mut self,
        target: &StorageTarget,
        theirs: Option<usize>,
        name: &str,
    ) -> Result<String, String> {
        let theirs = theirs.and_then(|at| self.made.get(at));
        let Some(host) = &target.host else {
            let none = || "the model tells no path of it on the host".to_owned();
            return theirs.map(Scratch::path).ok_or_else(none);
        };
        let directory = Directory::in_root("/", host).map_err(|error| chain(&error))?;
        // One directory that both see under different names has one file.
        if let Some(theirs) = theirs.filter(|file| file.directory().is(&directory)) {
            return Ok(theirs.path());
        }
        let at = self.make(directory, name, target.size.0)?;
        Ok(self.made[at].path())
    }

    /// Has fio in a VM make a file, in a directory of its own, whose name begins with `name`.
    fn lay_out_inside(
        &mut self,
        vantage: &Vantage,
        place: &dyn Place,
        (parent, directory): (&str, &str),
        name: &str,
        size: u64,
    ) -> Result<(), String> {
        // fio would make a directory that is missing, and nobody would remove it.
        let there = place.run(&Command::new("test").args(["-d", parent]).deadline(TIMEOUT));
        if !there.map_err(|error| chain(&error))?.status.success() {
            return Err(format!("there is no directory {parent} {}", place.describe()));
        }
        left_over::remove(place, parent, name, &self.run);
        // It is removed in the end, also when nobody told that it was made, or it cannot be filled.
        let made = place.run(&Command::new("mkdir").args(["-m", "700", "--", directory]).deadline(TIMEOUT));
        if made.as_ref().map_or_else(was_ended, |output| output.status.success()) {
            self.made_inside.push((vantage.clone(), directory.to_owned()));
        }
        made.map_err(|error| chain(&error))?.succeeded().map_err(|error| chain(&error))?;
        let runner = Runner { place, mark: &self.mark };
        reading_of(&runner.run(&command::lay_out(&format!("{directory}/{FILE}"), size))?, Mix::Write)
            .map(drop)
    }

    /// Makes a file and fills it; gives its position in `made`.
    fn make(&mut self, directory: Directory, name: &str, size: u64) -> Result<usize, String> {
        let free = directory.free_space().map_err(|error| chain(&error))?;
        if size as f64 > free as f64 * MOST_OF_FREE {
            return Err(format!("a file of {size} bytes does not fit: {free} bytes are free there"));
        }
        let file = directory.make(name).map_err(|error| chain(&error))?;
        // It is removed in the end, also when it cannot be filled.
        self.made.push(file);
        let at = self.made.len() - 1;
        // Nothing that a file system or a drive could make smaller.
        let mut random = Random::for_purpose(0, "contents of a file");
        let next = |bytes: &mut [u8]| {
            bytes
                .chunks_mut(8)
                .for_each(|word| word.copy_from_slice(&random.draw().to_ne_bytes()[..word.len()]));
        };
        self.made[at].fill(size, next).map_err(|error| chain(&error))?;
        Ok(at)
    }
}

/// What no other run calls anything.
fn own_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), since.as_nanos())
}

/// Looks once more right before it is written to: somebody may have mounted it meanwhile, on the host or in the VM that has it.
fn may_be_written(target: &StorageTarget, testbed: &Testbed) -> Result<(), String> {
    if !target.write {
        return Err(format!("{} may not be written to", cells::label(target)));
    }
    if !cells::is_device(target) {
        return Ok(());
    }
    if let Ok(guest) = testbed.place(&Vantage::Guest(target.guest.clone()))
        && guest.namespace().is_err()
        && let Some(why) = place::in_use_inside(guest.as_ref(), &target.path)
    {
        return Err(format!("it is not written to: {why}"));
    }
    let Some(host) = target.host.as_deref() else { return Ok(()) };
    let (node, device) = place::device_here(host)?;
    match place::in_use_here(&node, device) {
        Some(why) => Err(format!("{node} is not written to: {why}")),
        None => Ok(()),
    }
}

/// Which fio is in a place.
fn version(place: &dyn Place) -> Result<String, String> {
    let output = place.run(&Command::new("fio").arg("--version").deadline(TIMEOUT));
    match output {
        Ok(output) if output.status.success() => {
            let text: String = output.text().trim().chars().filter(|c| !c.is_control()).take(80).collect();
            Ok(text)
        }
        // How lxc-attach and a shell say that there is no such program.
        Ok(output) if output.status.code() == Some(127) => {
            Err(format!("fio is not installed {}", place.describe()))
        }
        Ok(output) => Err(format!("fio cannot be run {}: {}", place.describe(), output.errors().trim())),
        Err(PlaceError::Process { source: ProcessError::NotInstalled { .. }, .. }) => {
            Err(format!("fio is not installed {}", place.describe()))
        }
        Err(error) => Err(chain(&error)),
    }
}

impl Runner<'_> {
    /// Runs fio. Its jobs are processes of their own, in a guest too, and outlive the command that was ended: they are ended here.
    fn run(&self, command: &Command) -> Result<RawOutput, String> {
        let Runner { place, mark } = *self;
        let output = match place.run(&command.clone().env(MARK, mark)) {
            Ok(output) => output,
            Err(error) if was_ended(&error) => {
                let end = Command::new("sh").args(["-c", &sweep(mark)]).deadline(TIMEOUT);
                let ended = interrupt::set_aside(|| place.run(&end));
                let left = ended.err().map(|_| format!("; fio may still run {}", place.describe()));
                return Err(chain(&error) + &left.unwrap_or_default());
            }
            Err(error) => return Err(chain(&error)),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(RawOutput::of(place.describe(), command, &output, text))
    }
}

/// Whether a command was ended before its own end.
fn was_ended(error: &PlaceError) -> bool {
    let early = |source: &ProcessError| {
        matches!(source, ProcessError::Interrupted { .. } | ProcessError::TimedOut { .. })
    };
    matches!(error, PlaceError::Process { source, .. } if early(source)) || interrupt::pending()
}

/// Whether fio did what it was asked for; why not, else.
fn reading_of(raw: &RawOutput, mix: Mix) -> Result<Reading, String> {
    raw.is_whole(Tool::Fio)?;
    fio::json(raw.stdout.as_bytes(), mix).map_err(|error| match (&error, raw.stderr.trim()) {
        (OutputError::Empty { .. }, said) if !said.is_empty() => {
            said.lines().next().unwrap_or_default().chars().take(300).collect()
        }
        _ => error.to_string(),
    })
}

/// The best way that works at all ends, and the ends at which any works.
fn choose_way(
    arms: Vec<Arm>,
    found: &mut TargetCells<'_>,
    preparation: &mut Preparation,
    label: &str,
    mark: &str,
) -> Option<(Vec<Arm>, IoMethod)> {
    let mut refused: Vec<(IoMethod, Vec<Option<String>>)> = Vec::new();
    for way in IoMethod::ALL {
        let refusals: Vec<Option<String>> =
            arms.iter().map(|arm| refusal(arm, way, USUAL_BLOCK, mark)).collect();
        let works = refusals.iter().all(Option::is_none);
        refused.push((way, refusals));
        if works {
            break;
        }
    }
    // An end at which nothing works must not keep the other from being measured.
    let lost = |at: usize| refused.iter().all(|(_, refusals)| refusals[at].is_some());
    for (at, arm) in arms.iter().enumerate().filter(|(at, _)| lost(*at)) {
        let why = refused.first().and_then(|(_, refusals)| refusals[at].clone()).unwrap_or_default();
        found.miss_at(&arm.vantage, &why);
    }
    let ends: Vec<usize> = (0..arms.len()).filter(|at| !lost(*at)).collect();
    let works =
        |(_, refusals): &&(IoMethod, Vec<Option<String>>)| ends.iter().all(|at| refusals[*at].is_none());
    let chosen = refused.iter().find(works).map(|(way, _)| *way);
    let arms: Vec<Arm> =
        arms.into_iter().enumerate().filter(|(at, _)| ends.contains(at)).map(|(_, arm)| arm).collect();
    if arms.is_empty() {
        return None;
    }
    let Some(way) = chosen else {
        found.miss(|_, _| true, "fio cannot be used the same way on the host and in the guest");
        return None;
    };
    let first = refused.first().and_then(|(_, refusals)| refusals.iter().flatten().next());
    if let Some(why) = first.filter(|_| way != IoMethod::ALL[0]) {
        let cache = match way.direct {
            true => "",
            false => "; what is measured is the page cache as well",
        };
        let direct = if way.direct { "direct" } else { "buffered" };
        preparation.notes.push(format!(
            "{label}: {direct} I/O through {} at both ends, because io_uring with direct I/O does not work: {why}{cache}",
            way.engine
        ));
    }
    Some((arms, way))
}

/// Why a block cannot be read this way at an end, if so.
fn refusal(arm: &Arm, way: IoMethod, block: u32, mark: &str) -> Option<String> {
    let runner = Runner { place: arm.place.as_ref(), mark };
    let read = runner.run(&command::trial(way, &arm.file, block));
    read.and_then(|raw| reading_of(&raw, Mix::Read)).err()
}

/// Cells with blocks that are smaller than an end takes are missing.
fn smaller_blocks(arms: &[Arm], way: IoMethod, found: &mut TargetCells<'_>, mark: &str) {
    let sizes: BTreeSet<u32> = found.cells.iter().map(|(_, storage)| storage.block).collect();
    for block in sizes.into_iter().filter(|block| *block < USUAL_BLOCK) {
        let refused = arms.iter().find_map(|arm| Some((arm, refusal(arm, way, block, mark)?)));
        let Some((arm, why)) = refused else { return };
        let why = format!("no blocks of {block} bytes can be used {}: {why}", arm.place.describe());
        found.miss(|_, storage| storage.block == block, &why);
    }
}

impl Sampler for StorageTaker {
    fn prepare(&mut self, cells: &[Planned]) -> Preparation {
        let mut preparation = Preparation::default();
        let mut by_target: BTreeMap<&str, Vec<(&Planned, &Storage)>> = BTreeMap::new();
        for cell in cells {
            match &cell.measurement.subject {
                Subject::Storage(storage) => {
                    by_target.entry(&storage.target).or_default().push((cell, storage))
                }
                Subject::Network(_) => {
                    drop(preparation.missing.insert(cell.id.clone(), "it is no storage".to_owned()));
                }
            }
        }
        for (label, cells) in by_target {
            let Some(target) = self.targets.get(label).cloned() else {
                let why = format!("the model has no storage {label}");
                preparation.missing.extend(cells.iter().map(|(cell, _)| (cell.id.clone(), why.clone())));
                continue;
            };
            let mut found = TargetCells { target: &target, cells, missing: BTreeMap::new() };
            self.make_ready(label, &mut found, &mut preparation);
            self.refused.extend(found.missing.clone());
            preparation.missing.extend(found.missing);
        }
        preparation
    }

    fn take(&mut self, cell: &Planned, dwell: Duration) -> Result<RawOutput, Failure> {
        let Subject::Storage(storage) = &cell.measurement.subject else {
            return Err("it is no storage".to_owned().into());
        };
        if let Some(why) = self.refused.get(&cell.id) {
            return Err(why.clone().into());
        }
        let not_ready = || format!("{} was not made ready {}", storage.target, storage.place);
        let target = self.targets.get(&storage.target).ok_or_else(not_ready)?;
        if storage.mix != Mix::Read {
            may_be_written(target, &self.testbed)?;
        }
        let file = self.files.get(&(storage.target.clone(), storage.place.clone())).ok_or_else(not_ready)?;
        let way = self.ways.get(&storage.target).ok_or_else(not_ready)?;
        let place = self.testbed.place(&storage.place)?;
        let runner = Runner { place: place.as_ref(), mark: &self.mark };
        Ok(runner.run(&command::sample(*way, file, storage, target.size.0, dwell))?)
    }

    fn finish(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        for (vantage, directory) in std::mem::take(&mut self.made_inside) {
            let script = "cd -- \"$1\" 2>/dev/null || exit 0; rm -f -- \"$2\" && rmdir -- \"$1\"";
            let words = ["-c", script, "penstock-measure", &directory, FILE];
            let remove = Command::new("sh").args(words).deadline(TIMEOUT);
            // A VM that is gone took the file with it, or keeps it where nobody can reach it now.
            let outcome = self.testbed.place(&vantage).and_then(|place| {
                let output = interrupt::set_aside(|| place.run(&remove)).map_err(|error| chain(&error))?;
                output.succeeded().map(drop).map_err(|error| chain(&error))
            });
            complaints
                .extend(outcome.err().map(|why| format!("{directory} was not removed {vantage}: {why}")));
        }
        let removed = std::mem::take(&mut self.made).into_iter().map(Scratch::remove);
        complaints.extend(removed.filter_map(Result::err).map(|error| chain(&error)));
        self.files.clear();
        self.ways.clear();
        complaints
    }
}
