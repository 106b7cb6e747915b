//! fio at both ends of files and devices. The guests run on this host: one is reached as a container is, through its root,
//! the other as a VM is. What mounts something needs root.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    os::unix::{
        fs::{OpenOptionsExt, PermissionsExt, chown, symlink},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{self, Child, ExitCode},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use penstock_host::{Command, Here, InterfaceReport, Output, Place, PlaceError, ProcessError, files};
use penstock_measure::{
    matrix::{Matrix, Null, Planned},
    parse,
    sampler::Sampler,
    storage::{self, StorageTaker},
    testbed::Testbed,
};
use penstock_model::{
    ByteSize, Model, Source, StorageTarget,
    measurement::{Metric, Mix, Storage, Subject},
    verdict::Vantage,
};
use penstock_testkit::{
    needs::{self, Lack},
    trials::Trials,
};

const DWELL: Duration = Duration::from_secs(1);
const NAME: &str = ".penstock-measure-a";
/// open(2), on all processors that these tests run on.
const O_EXCL: i32 = 0o200;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.one_at_a_time();
    let missing = trials.lacking("storage", no_fio);
    let tests: [(&str, fn()); 9] = [
        ("a_container_and_the_host_have_one_file", one_file),
        ("the_host_never_writes_where_a_link_leads", links),
        ("a_guest_without_fio_is_missing_and_the_host_is_not", without_fio),
        ("fio_of_an_unknown_version_is_missing", unknown_version),
        ("a_guest_that_stops_is_missing", gone),
        ("a_vm_has_a_file_of_its_own", vm),
        ("what_a_killed_run_left_in_a_vm_is_removed", killed),
        ("fio_in_a_guest_does_not_outlive_an_interrupt", interrupted),
        ("what_may_not_be_written_is_not", not_written),
    ];
    trials.add(&missing, tests);
    let mounts = trials.lacking("full disks and devices", no_mounts);
    let tests: [(&str, fn()); 2] = [
        ("a_full_disk_is_missing_in_netns", full_disk),
        ("a_device_is_written_only_when_nobody_uses_it_in_netns", device),
    ];
    trials.add(&mounts, tests);
    let opens = trials.lacking("devices of VMs", nobody_opens);
    let test: (&str, fn()) = ("a_device_that_a_vm_uses_is_not_written_in_netns", device_of_vm);
    trials.add(&opens, [test]);
    trials.run()
}

fn no_fio() -> Option<Lack> {
    needs::programs(&["fio"])
}

fn no_mounts() -> Option<Lack> {
    no_fio()
        .or_else(needs::root)
        .or_else(|| needs::programs(&["mkfs.ext4", "mount", "umount"]))
        .or_else(needs::loop_device)
}

/// A device of a VM is opened by perl or by python3.
fn nobody_opens() -> Option<Lack> {
    no_mounts().or_else(|| needs::programs(&["perl"]).and_then(|_| needs::programs(&["python3"])))
}

/// A guest whose commands run on this host.
struct Guest {
    vm: bool,
    fio: bool,
    gone: AtomicBool,
    /// How often it was asked for anything.
    asked: AtomicUsize,
    bend: fn(Output) -> Output,
    /// Whether Ctrl-C ends fio's command, and what that leaves.
    interrupted: AtomicBool,
    left: Mutex<Option<Child>>,
}

impl Guest {
    fn container() -> Guest {
        Guest {
            vm: false,
            fio: true,
            gone: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
            bend: |output| output,
            interrupted: AtomicBool::new(false),
            left: Mutex::new(None),
        }
    }

    fn answers(&self) -> Result<(), PlaceError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.gone.load(Ordering::Relaxed) {
            true => Err(PlaceError::Gone { place: self.describe(), why: "it does not run".to_owned() }),
            false => Ok(()),
        }
    }
}

impl Place for Guest {
    fn describe(&self) -> String {
        "inside a".to_owned()
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        self.answers()?;
        let failed = |source| PlaceError::Process { place: self.describe(), source };
        if !self.fio && command.program() == "fio" {
            return Err(failed(ProcessError::NotInstalled { program: "fio".to_owned() }));
        }
        if command.program() == "fio" && self.interrupted.load(Ordering::Relaxed) {
            let environment = command.environment().iter().cloned();
            let child = process::Command::new("sleep").arg("600").envs(environment).spawn().unwrap();
            *self.left.lock().unwrap() = Some(child);
            let command = command.to_string();
            return Err(failed(ProcessError::Interrupted { command, left: None }));
        }
        command.run().map(self.bend).map_err(failed)
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError> {
        self.answers()?;
        Ok(files::read_at_most(path, limit).unwrap().0)
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        unreachable!()
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        self.answers()?;
        match self.vm {
            true => Err(PlaceError::Gone { place: self.describe(), why: "another kernel".to_owned() }),
            false => Ok(Some(std::process::id())),
        }
    }
}

fn inside() -> Vantage {
    Vantage::Guest("a".parse().unwrap())
}

fn model(text: &str) -> Model {
    let text = format!("nics: {{NET0: {{vfs: 1}}}}\n{text}");
    penstock_model::parse(&Source::new("m.yaml", text)).unwrap_or_else(|error| panic!("{error:?}")).model
}

/// A model with one storage target.
fn of(kind: &str, storage: &str) -> Model {
    model(&format!("guests: {{a: {{kind: {kind}}}}}\nmeasure: {{storage: [{{guest: a, {storage}}}]}}\n"))
}

struct Run {
    sampler: StorageTaker,
    matrix: Matrix,
    missing: BTreeMap<String, String>,
    notes: Vec<String>,
    guest: Arc<Guest>,
}

fn prepared(guest: Guest, targets: &[StorageTarget], matrix: Matrix) -> Run {
    let guest = Arc::new(guest);
    let here: Arc<dyn Place> = Arc::new(Here::default());
    let places = BTreeMap::from([(Vantage::Host, Ok(here)), (inside(), Ok(guest.clone() as Arc<dyn Place>))]);
    let testbed = Testbed { places, ..Testbed::default() };
    let mut sampler = StorageTaker::new(&testbed, targets);
    let preparation = sampler.prepare(&matrix.cells);
    Run { sampler, matrix, missing: preparation.missing, notes: preparation.notes, guest }
}

fn quick(guest: Guest, model: &Model) -> Run {
    prepared(guest, &storage::targets(model), storage::matrix(model, true, Null::None))
}

fn storage_of(cell: &Planned) -> &Storage {
    match &cell.measurement.subject {
        Subject::Storage(storage) => storage,
        Subject::Network(_) => unreachable!(),
    }
}

impl Run {
    fn cell(&self, place: &Vantage, mix: Mix) -> Planned {
        let fits = |cell: &&Planned| {
            let storage = storage_of(cell);
            storage.place == *place && storage.mix == mix
        };
        self.matrix.cells.iter().find(fits).unwrap().clone()
    }

    /// Takes a sample, which tells something; gives fio's command line.
    #[track_caller]
    fn measured(&mut self, place: &Vantage, mix: Mix) -> String {
        let cell = self.cell(place, mix);
        assert_eq!(self.missing.get(&cell.id), None);
        let raw = self.sampler.take(&cell, DWELL).unwrap();
        let reading = parse::read(&cell.measurement, &raw).unwrap_or_else(|error| panic!("{error}: {raw:?}"));
        for metric in [Metric::Iops, Metric::Bandwidth] {
            assert!(reading.values[&metric] > 0.0, "{metric}: {raw:?}");
        }
        // A disk that is busy with other work may do too few operations in a second for a median; that is told.
        match reading.values.get(&Metric::P50) {
            Some(median) => assert!(*median > 0.0, "{raw:?}"),
            None => {
                let withheld = reading.withheld.iter().find(|withheld| withheld.metric == Metric::P50);
                assert!(withheld.is_some_and(|withheld| withheld.have < withheld.need), "{raw:?}");
            }
        }
        assert!(reading.histogram.is_some_and(|histogram| !histogram.is_empty()));
        raw.command
    }

    /// The cells at a place are missing for this reason.
    #[track_caller]
    fn all_missing(&self, place: &Vantage, why: &str) {
        let mut cells = self.matrix.cells.iter().filter(|cell| storage_of(cell).place == *place).peekable();
        assert!(cells.peek().is_some());
        for cell in cells {
            let told = self.missing.get(&cell.id).unwrap_or_else(|| panic!("{} is there", cell.id));
            assert!(told.contains(why), "{told}");
        }
    }
}

fn directory() -> tempfile::TempDir {
    // Not in memory, where it can be helped: direct I/O is what is measured.
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(disk).unwrap()
}

fn one_file() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let model = of("container", &format!("path: {path}, size: 8MiB"));
    let mut run = quick(Guest::container(), &model);
    assert_eq!(run.missing, BTreeMap::new());
    let file = directory.path().join(NAME);
    assert_eq!(fs::metadata(&file).unwrap().len(), 8 << 20);
    assert!(fs::read(&file).unwrap()[..4096].iter().any(|byte| *byte != 0), "it was written once");
    let host = run.measured(&Vantage::Host, Mix::Read);
    let guest = run.measured(&inside(), Mix::Read);
    assert!(guest.contains(file.to_str().unwrap()), "{guest}");
    assert!(host.contains(&format!("/proc/{}/fd/", std::process::id())), "{host}");
    let without_file = |command: &str| {
        let words = command.split(' ').filter(|word| !word.starts_with("--filename"));
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without_file(&host), without_file(&guest), "both ends do the same");
    run.measured(&Vantage::Host, Mix::Mixed);
    run.measured(&inside(), Mix::Write);
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
}

fn links() {
    let (directory, outside) = (directory(), directory());
    let victim = outside.path().join("victim");
    fs::write(&victim, vec![7; 1 << 20]).unwrap();
    let file = directory.path().join(NAME);
    // Before the file is made, and after.
    symlink(&victim, &file).unwrap();
    let path = directory.path().to_str().unwrap();
    let mut run = quick(Guest::container(), &of("container", &format!("path: {path}, size: 1MiB")));
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
    fs::remove_file(&file).unwrap();
    symlink(&victim, &file).unwrap();
    run.measured(&Vantage::Host, Mix::Write);
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    assert_eq!(fs::read(&victim).unwrap(), vec![7; 1 << 20]);
}

fn without_fio() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let guest = Guest { fio: false, ..Guest::container() };
    let mut run = quick(guest, &of("container", &format!("path: {path}, size: 1MiB")));
    run.all_missing(&inside(), "fio is not installed inside a");
    run.measured(&Vantage::Host, Mix::Read);
    assert!(run.sampler.take(&run.cell(&inside(), Mix::Read), DWELL).is_err());
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

fn unknown_version() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let bend = |output: Output| Output { stdout: output.text().replace("fio-3.", "fio-9.").into(), ..output };
    let run =
        quick(Guest { bend, ..Guest::container() }, &of("container", &format!("path: {path}, size: 1MiB")));
    run.all_missing(&inside(), "is not known here: fio 3 is");
    let here = run.cell(&Vantage::Host, Mix::Read);
    assert!(!run.missing.contains_key(&here.id));
}

fn gone() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let model = of("container", &format!("path: {path}, size: 1MiB"));
    let mut run = quick(Guest::container(), &model);
    run.measured(&inside(), Mix::Read);
    run.guest.gone.store(true, Ordering::Relaxed);
    let error = run.sampler.take(&run.cell(&inside(), Mix::Read), DWELL).unwrap_err();
    assert!(error.to_string().contains("it does not run"), "{error}");
    run.measured(&Vantage::Host, Mix::Read);
    assert_eq!(run.sampler.finish(), Vec::<String>::new(), "its file is removed all the same");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    // It stopped before.
    let guest = Guest { gone: AtomicBool::new(true), ..Guest::container() };
    quick(guest, &model).all_missing(&inside(), "it does not run");
}

fn vm() {
    let (there, here) = (directory(), directory());
    let (there, here) = (there.path().to_str().unwrap(), here.path().to_str().unwrap());
    let guest = || Guest { vm: true, ..Guest::container() };
    // Whoever is there knows the name, and what is written must not go where it leads.
    let victim = Path::new(there).join("victim");
    fs::write(&victim, "kept").unwrap();
    symlink(&victim, Path::new(there).join(NAME)).unwrap();
    let mut run = quick(guest(), &of("vm", &format!("path: {there}, host: {here}, size: 1MiB")));
    assert_eq!(run.missing, BTreeMap::new());
    let command = run.measured(&inside(), Mix::Write);
    let own = command.split(' ').find_map(|word| word.strip_prefix("--filename=")).unwrap();
    let own = Path::new(own).parent().unwrap();
    assert_eq!(fs::metadata(own).unwrap().permissions().mode() & 0o777, 0o700, "{}", own.display());
    run.measured(&Vantage::Host, Mix::Write);
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    assert_eq!(fs::read(&victim).unwrap(), b"kept");
    assert_eq!((fs::read_dir(there).unwrap().count(), fs::read_dir(here).unwrap().count()), (2, 0));
    // Without a path on the host there is no end on the host.
    let mut run = quick(guest(), &of("vm", &format!("path: {there}, size: 1MiB")));
    assert!(run.matrix.cells.iter().all(|cell| storage_of(cell).place == inside()));
    run.measured(&inside(), Mix::Read);
    run.sampler.finish();
    let run = quick(guest(), &of("vm", "path: /no/such/directory, size: 1MiB"));
    run.all_missing(&inside(), "there is no directory /no/such/directory inside a");
    assert!(!Path::new("/no/such").exists(), "it is not made");
}

fn killed() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    let left = |name: &str| {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join("data"), "much").unwrap();
    };
    let old = [".penstock-measure-a-1-200-0", ".penstock-measure-a-1-200-1", ".penstock-measure-a-17-3-10"];
    old.into_iter().for_each(left);
    fs::remove_file(path(old[1]).join("data")).unwrap();
    // A guest's that is called a-1, no run's, another's, one's that goes on.
    let mut others = vec![
        ".penstock-measure-a-1-1-200-0",
        ".penstock-measure-a-1-200",
        ".penstock-measure-a-1-2x-0",
        ".penstock-measure-b-1-200-0",
        ".penstock-measure-a-7-800-0",
        "victim",
    ];
    others.iter().copied().for_each(left);
    let mut going_on =
        process::Command::new("sleep").arg("600").env("PENSTOCK_MEASURE", "storage-7-800;").spawn();
    let link = ".penstock-measure-a-5-600-0";
    symlink(path("victim"), path(link)).unwrap();
    others.push(link);
    if needs::root().is_none() {
        others.push(".penstock-measure-a-9-100-0");
        left(".penstock-measure-a-9-100-0");
        chown(path(".penstock-measure-a-9-100-0"), Some(65534), None).unwrap();
    }
    let guest = Guest { vm: true, ..Guest::container() };
    let storage = format!("path: {}, size: 1MiB", directory.path().display());
    let mut run = quick(guest, &of("vm", &storage));
    if let Ok(going_on) = &mut going_on {
        going_on.kill().unwrap();
        going_on.wait().unwrap();
    }
    assert_eq!(run.missing, BTreeMap::new());
    for name in old {
        assert!(!path(name).exists(), "{name} is left");
    }
    for name in &others {
        assert_eq!(fs::read(path(name).join("data")).unwrap(), b"much", "{name}");
    }
    run.measured(&inside(), Mix::Read);
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), others.len(), "its own is removed");
}

fn interrupted() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let guest = Guest { vm: true, ..Guest::container() };
    let mut run = quick(guest, &of("vm", &format!("path: {path}, size: 1MiB")));
    run.guest.interrupted.store(true, Ordering::Relaxed);
    assert!(run.sampler.take(&run.cell(&inside(), Mix::Write), DWELL).is_err());
    let mut left = run.guest.left.lock().unwrap().take().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let ended = loop {
        match left.try_wait().unwrap() {
            None if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            ended => break ended,
        }
    };
    let _ = left.kill();
    assert_eq!(ended.and_then(|status| status.signal()), Some(9), "it was found by its mark");
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The cells of a target that may be written to, asked of one that may not.
fn not_written() {
    let directory = directory();
    let path = directory.path().to_str().unwrap();
    let target = |write: &str| of("container", &format!("path: {path}, size: 1MiB, write: {write}"));
    let all = storage::matrix(&target("on"), true, Null::None);
    let reading = storage::matrix(&target("off"), true, Null::None);
    assert!(reading.cells.iter().all(|cell| storage_of(cell).mix == Mix::Read) && !reading.cells.is_empty());
    let mut run = prepared(Guest::container(), &storage::targets(&target("off")), all);
    let before = fs::read(directory.path().join(NAME)).unwrap();
    for mix in [Mix::Write, Mix::Mixed] {
        for place in [Vantage::Host, inside()] {
            let cell = run.cell(&place, mix);
            assert!(run.missing[&cell.id].contains("may not be written to"), "{:?}", run.missing);
            assert!(run.sampler.take(&cell, DWELL).is_err());
        }
    }
    assert_eq!(fs::read(directory.path().join(NAME)).unwrap(), before);
    let command = run.measured(&inside(), Mix::Read);
    assert!(command.contains("--readonly"));
    run.sampler.finish();
}

/// A file system in memory, for one test.
struct Mounted(PathBuf);

impl Mounted {
    fn at(path: &Path, words: &[&str]) -> Mounted {
        Command::new("mount").args(words).arg(path).succeed().unwrap();
        Mounted(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).succeed().unwrap();
    }
}

fn full_disk() {
    let directory = directory();
    let _mounted = Mounted::at(directory.path(), &["-t", "tmpfs", "-o", "size=8m", "none"]);
    let path = directory.path().to_str().unwrap();
    let storage = format!("path: {path}, size: 16MiB");
    let mut run = quick(Guest::container(), &of("container", &storage));
    run.all_missing(&inside(), "does not fit");
    run.all_missing(&Vantage::Host, "does not fit");
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    let mut run = quick(Guest { vm: true, ..Guest::container() }, &of("vm", &storage));
    run.all_missing(&inside(), "No space left on device");
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    // What fits is measured, in whatever way this kernel's tmpfs can.
    let mut run = quick(Guest::container(), &of("container", &format!("path: {path}, size: 1MiB")));
    run.measured(&Vantage::Host, Mix::Mixed);
    let direct = run.measured(&inside(), Mix::Mixed).contains("--direct=1");
    assert!(direct || run.notes.iter().any(|note| note.contains("page cache")), "{:?}", run.notes);
    run.sampler.finish();
}

/// A loop device, for one test.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Loop {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).succeed().unwrap();
        Loop(output.text().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).succeed();
    }
}

/// Unmounts it. Programs that were started meanwhile in a mount namespace of their own have it mounted until they end.
fn unmounted(mounted: Mounted, device: &Loop) {
    drop(mounted);
    let until = Instant::now() + Duration::from_secs(120);
    while penstock_host::device::is_held(&device.0).unwrap() {
        assert!(Instant::now() < until, "somebody has {} still", device.0);
        thread::sleep(Duration::from_millis(50));
    }
}

fn device_of_vm() {
    let directory = directory();
    let file = directory.path().join("disk");
    fs::write(&file, vec![0; 16 << 20]).unwrap();
    let device = Loop::over(&file);
    let model = of("vm", &format!("path: {}, size: 4MiB, write: on", device.0));
    let guest = || Guest { vm: true, ..Guest::container() };
    // As a RAID has its members, ZFS its disks.
    let held = || OpenOptions::new().read(true).custom_flags(O_EXCL).open(&device.0).unwrap();
    let member = held();
    let mut run = quick(guest(), &model);
    let cell = run.cell(&inside(), Mix::Write);
    assert!(run.missing[&cell.id].contains("somebody inside a has"), "{:?}", run.missing);
    run.measured(&inside(), Mix::Read);
    run.sampler.finish();
    drop(member);
    // It was free when it was made ready.
    let mut run = quick(guest(), &model);
    assert_eq!(run.missing, BTreeMap::new());
    let member = held();
    let error = run.sampler.take(&cell, DWELL).unwrap_err();
    assert!(error.to_string().contains("is not written to"), "{error}");
    drop(member);
    assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 0));
    let before = run.guest.asked.load(Ordering::Relaxed);
    run.measured(&inside(), Mix::Write);
    let asked = run.guest.asked.load(Ordering::Relaxed) - before;
    assert_eq!(asked, 3, "whether it is a VM, who has the device, and fio");
    run.sampler.finish();
}

fn device() {
    let directory = directory();
    let file = directory.path().join("disk");
    fs::write(&file, vec![0; 16 << 20]).unwrap();
    let device = Loop::over(&file);
    let model = |write: &str| {
        let path = &device.0;
        model(&format!(
            "guests: {{a: {{devices: [{path}]}}}}\n\
             measure: {{storage: [{{guest: a, path: {path}, size: 4MiB, write: {write}}}]}}\n"
        ))
    };
    let contents = || {
        let _ = Command::new("sync").succeed();
        fs::read(&file).unwrap()
    };
    // Only read, unless the model says so.
    let mut run = quick(Guest::container(), &model("off"));
    assert!(run.matrix.cells.iter().all(|cell| storage_of(cell).mix == Mix::Read));
    run.measured(&Vantage::Host, Mix::Read);
    run.measured(&inside(), Mix::Read);
    assert_eq!(run.sampler.finish(), Vec::<String>::new());
    assert!(contents().iter().all(|byte| *byte == 0));
    // Nor when it says so, while somebody has it mounted.
    Command::new("mkfs.ext4").args(["-q", &device.0]).succeed().unwrap();
    let at = directory.path().join("mount");
    fs::create_dir(&at).unwrap();
    let mounted = Mounted::at(&at, &["-o", "ro", &device.0]);
    let before = contents();
    let mut run = quick(Guest::container(), &model("on"));
    for place in [Vantage::Host, inside()] {
        let cell = run.cell(&place, Mix::Write);
        assert!(run.missing[&cell.id].contains("mounted on the host at"), "{:?}", run.missing);
        assert!(run.sampler.take(&cell, DWELL).is_err());
        run.measured(&place, Mix::Read);
    }
    run.sampler.finish();
    unmounted(mounted, &device);
    // It was free when it was made ready.
    let mut run = quick(Guest::container(), &model("on"));
    assert_eq!(run.missing, BTreeMap::new());
    let mounted = Mounted::at(&at, &["-o", "ro", &device.0]);
    let error = run.sampler.take(&run.cell(&inside(), Mix::Write), DWELL).unwrap_err();
    assert!(error.to_string().contains("is not written to"), "{error}");
    unmounted(mounted, &device);
    assert_eq!(contents(), before);
    run.measured(&inside(), Mix::Write);
    assert_ne!(contents(), before, "now it may be");
    run.sampler.finish();
    // Inside it is another device than the model says.
    let other = Loop::over(&{
        let file = directory.path().join("other");
        fs::write(&file, vec![0; 1 << 20]).unwrap();
        file
    });
    let swapped = StorageTarget {
        guest: "a".parse().unwrap(),
        path: other.0.clone(),
        host: Some(device.0.clone()),
        size: ByteSize(1 << 20),
        write: true,
    };
    let mut matrix = storage::matrix(&model("on"), true, Null::None);
    for cell in &mut matrix.cells {
        let Subject::Storage(storage) = &mut cell.measurement.subject else { unreachable!() };
        storage.target = format!("a:{}", other.0);
    }
    let run = prepared(Guest::container(), &[swapped], matrix);
    run.all_missing(&inside(), "on the host");
    run.all_missing(&Vantage::Host, "on the host");
}
