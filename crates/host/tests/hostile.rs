//! A machine that is out to harm whoever looks at it: whatever its sysfs and procfs hold, a scan comes to an end, in little
//! time and memory, and what it says can be read.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use penstock_host::{
    Root,
    scan::{
        lifelines::{Started, lifelines},
        scan,
        tuning::tuning,
    },
};
use penstock_model::{Inventory, inventory::tuning::Reading};
use penstock_testkit::{memory, sysfs};
use proptest::prelude::*;
use serde_json::json;

/// Far more than a scan takes, far less than a person waits. A scan that waits for a pipe never ends.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Looks at all that is under `tree` as `scan` does; a scan that does not end fails the test.
fn look(tree: &Path) -> Inventory {
    let root = Root::at(tree);
    let (send, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut inventory = scan(&root, None);
        inventory.lifelines = Some(lifelines(&root, None, &Started::default()));
        let (tuning, unknown) = tuning(&root, &inventory);
        inventory.tuning = Some(tuning);
        inventory.unknown.extend(unknown);
        let _ = send.send(inventory);
    });
    let inventory = outcome.recv_timeout(TIMEOUT).expect("a scan comes to an end and does not panic");
    let json = serde_json::to_string(&inventory).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&json).unwrap(), inventory);
    for note in &inventory.unknown {
        assert!(!note.contains(char::is_control), "{note:?}");
        assert!(note.len() < 10_000, "a note of {} bytes: {:.200}", note.len(), note);
    }
    inventory
}

/// Every file and link of a tree, in order; not what is behind links.
fn entries(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let is_directory = fs::symlink_metadata(&path).unwrap().is_dir();
        if is_directory {
            entries(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The machine of the tests of what decides how late a thread wakes.
const TUNED: &str = "tuned";

fn planted(machine: &str) -> (tempfile::TempDir, Vec<PathBuf>) {
    let tree = if machine == TUNED {
        // In memory where there is such a place: some of these trees become thousands of files.
        let tree = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        sysfs::plant(include_str!("machines/tuned.tree"), tree.path()).unwrap();
        tree
    } else {
        sysfs::machine(machine)
    };
    let mut found = Vec::new();
    entries(tree.path(), &mut found);
    assert!(found.len() > 100, "{} entries", found.len());
    (tree, found)
}

/// What may stand where a file is meant.
#[derive(Clone, Debug)]
enum Evil {
    Bytes(Vec<u8>),
    /// So many MiB of one byte.
    Large(u8, usize),
    Empty,
    Directory,
    Pipe,
    Socket,
    LinkToItself,
    LinkUp,
    LinkOut,
    LinkToNothing,
    LinkToLongName,
    Gone,
}

impl Evil {
    fn put(&self, path: &Path) {
        if fs::symlink_metadata(path).is_ok_and(|data| data.is_dir()) {
            fs::remove_dir_all(path).unwrap();
        } else {
            let _ = fs::remove_file(path);
        }
        match self {
            Evil::Bytes(bytes) => fs::write(path, bytes).unwrap(),
            Evil::Large(byte, size) => {
                let mut file = fs::File::create(path).unwrap();
                for _ in 0..*size {
                    file.write_all(&vec![*byte; 1 << 20]).unwrap();
                }
            }
            Evil::Empty => fs::write(path, "").unwrap(),
            Evil::Directory => fs::create_dir_all(path.join("sub/../sub")).unwrap(),
            Evil::Pipe => mkfifo(path, Mode::S_IRWXU).unwrap(),
            // A path to a socket may have 107 bytes; where that is too few there is nothing.
            Evil::Socket => drop(std::os::unix::net::UnixListener::bind(path)),
            Evil::LinkToItself => symlink(path.file_name().unwrap(), path).unwrap(),
            Evil::LinkUp => symlink("..", path).unwrap(),
            Evil::LinkOut => symlink("/dev/zero", path).unwrap(),
            Evil::LinkToNothing => symlink("../../no/such/thing\u{1b}[2J", path).unwrap(),
            Evil::LinkToLongName => symlink("x".repeat(255) + "/" + &"y".repeat(255), path).unwrap(),
            Evil::Gone => {}
        }
    }
}

/// Numbers that overflow something, and words that are nearly numbers.
const NUMBERS: [&str; 16] = [
    "99999999999",
    "-99999999999999999999999",
    "18446744073709551616",
    "65535",
    "65536",
    "0",
    "-1",
    "0x",
    "0xffffffffffffffffffff",
    "+7",
    "1e9",
    "7 7",
    "0-4294967295",
    "4294967295-0",
    "0-1,0-1,,",
    "\u{661}",
];

fn evil() -> impl Strategy<Value = Evil> {
    prop_oneof![
        6 => prop::sample::select(&NUMBERS[..]).prop_map(|text| Evil::Bytes(text.into())),
        2 => "\\PC{0,300}".prop_map(|text| Evil::Bytes(text.into())),
        3 => prop::collection::vec(any::<u8>(), 0..5000).prop_map(Evil::Bytes),
        1 => (any::<u8>(), 1usize..3).prop_map(|(byte, size)| Evil::Large(byte, size)),
        1 => Just(Evil::Empty),
        1 => Just(Evil::Directory),
        1 => Just(Evil::Pipe),
        1 => Just(Evil::Socket),
        1 => Just(Evil::LinkToItself),
        1 => Just(Evil::LinkUp),
        1 => Just(Evil::LinkOut),
        1 => Just(Evil::LinkToNothing),
        1 => Just(Evil::LinkToLongName),
        1 => Just(Evil::Gone),
    ]
}

/// Each file of a machine in turn is each of the things that it should not be.
#[test]
fn nothing_in_the_place_of_a_file_breaks_a_scan() {
    for evil in [
        Evil::Bytes(vec![0xff; 64]),
        Evil::Bytes("99999999999".into()),
        Evil::Empty,
        Evil::Directory,
        Evil::Pipe,
        Evil::Socket,
        Evil::LinkToItself,
        Evil::LinkUp,
        Evil::LinkOut,
        Evil::LinkToLongName,
        Evil::Gone,
    ] {
        // All at once: that each is met is what matters, and a scan goes on past each.
        for machine in ["82576-seven-vfs", "mlx5-switchdev", TUNED] {
            let (tree, found) = planted(machine);
            found.iter().filter(|path| !path.is_symlink()).for_each(|path| evil.put(path));
            look(tree.path());
            let (tree, found) = planted(machine);
            found.iter().filter(|path| path.is_symlink()).for_each(|path| evil.put(path));
            look(tree.path());
        }
    }
}

#[test]
fn no_mixture_of_evils_breaks_a_scan() {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), evil()), 1..40);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    runner
        .run(&(0usize..5, changes), |(machine, changes)| {
            let machines =
                ["82599-two-port", "shared-iommu-group", "82576-seven-vfs", "mlx5-switchdev", TUNED];
            let (tree, found) = planted(machines[machine]);
            for (which, evil) in changes {
                evil.put(&found[which.index(found.len())]);
            }
            look(tree.path());
            Ok(())
        })
        .unwrap();
}

/// No name of a file is longer than 255 bytes, but what links and files say can be.
#[test]
fn names_and_texts_of_a_megabyte_stay_out() {
    let (tree, found) = planted("x550-two-port");
    let long = "n".repeat(1 << 20);
    for path in found.iter().filter(|path| !path.is_symlink()) {
        fs::write(path, &long).unwrap();
    }
    let began = Instant::now();
    let inventory = look(tree.path());
    let json = serde_json::to_string(&inventory).unwrap();
    assert!(json.len() < 1 << 20, "an inventory of {} bytes", json.len());
    assert!(began.elapsed() < TIMEOUT / 2, "{:?}", began.elapsed());
}

/// Nor what is said to be drivers' answers.
#[test]
fn answers_of_drivers_of_a_megabyte_stay_out() {
    let tree = sysfs::machine("mlx5-switchdev");
    let long = "\u{1b}[2J\n".repeat(1 << 18);
    let pf = "0000:08:00.0";
    let versions = json!({"fixed": {&long: &long}, "running": {"fw": &long}, "stored": {&long: "1"}});
    let reporter = json!({"name": &long, "healthy": true, "errors": 0, "recoveries": 0});
    for answers in [
        json!({"pfs": {pf: {"firmware": &long, "devlink": {"versions": versions, "health": [reporter]}}}}),
        json!({"unknown": [&long, "a", "a"]}),
        // These make no sense, and an error says what they are.
        json!({"pfs": {&long: {}}}),
        json!({"pfs": &long}),
        json!({"pfs": {pf: {"devlink": {"eswitch": {"mode": &long}}}}}),
    ] {
        fs::write(tree.path().join(".drivers.json"), answers.to_string()).unwrap();
        let inventory = look(tree.path());
        let json = serde_json::to_string(&inventory).unwrap();
        assert!(json.len() < 1 << 17, "an inventory of {} bytes", json.len());
        let texts = inventory.pfs.iter().flat_map(|pf| {
            let devlink = pf.devlink.iter();
            let versions = devlink.clone().flat_map(|it| it.versions.fixed.iter().flat_map(|(a, b)| [a, b]));
            pf.firmware
                .iter()
                .chain(versions)
                .chain(devlink.flat_map(|it| it.health.iter().map(|it| &it.name)))
        });
        texts.for_each(|text| assert!(!text.contains(char::is_control), "{text:?}"));
    }
    // A record of 4 MiB and more is not read.
    fs::write(tree.path().join(".drivers.json"), " ".repeat(5 << 20)).unwrap();
    assert!(look(tree.path()).unknown.iter().any(|note| note.contains("/.drivers.json is longer than")));
}

/// Registers that make no sense together: no VF is where none can be, and no list grows past what PCI has room for.
#[test]
fn no_register_makes_more_vfs_than_there_is_room_for() {
    let tree = sysfs::machine("x550-two-port");
    let function = tree.path().join("sys/devices/pci0000:00/0000:00:02.2/0000:04:00.1");
    let numbers = ["0", "1", "7", "65535", "65536", "99999999999", "-1", ""];
    for total in numbers {
        for (offset, stride) in
            [("0", "0"), ("0", "1"), ("65535", "65535"), ("1", "0"), ("1", "1"), ("-1", "x")]
        {
            for (name, value) in [
                ("sriov_totalvfs", total),
                ("sriov_offset", offset),
                ("sriov_stride", stride),
                ("sriov_numvfs", total),
            ] {
                fs::write(function.join(name), value).unwrap();
            }
            let inventory = look(tree.path());
            for sriov in inventory.pfs.iter().filter_map(|pf| pf.sriov.as_ref()) {
                assert!(sriov.vfs.len() <= 65_536, "{total} {offset} {stride}: {} VFs", sriov.vfs.len());
                assert!(
                    sriov.vfs.iter().all(|vf| inventory.pf(vf.bdf).is_none()),
                    "{total} {offset} {stride}"
                );
            }
        }
    }
}

/// Thousands of functions, each with as many VFs as a register can say.
#[test]
fn thousands_of_greedy_functions_are_scanned_in_bounded_time_and_memory() {
    let tree = tempfile::tempdir().unwrap();
    let devices = tree.path().join("sys/bus/pci/devices");
    for number in 0..2000u32 {
        let directory =
            devices.join(format!("{:04x}:{:02x}:{:02x}.0", number / 1000, number % 1000 / 8, number % 8));
        fs::create_dir_all(&directory).unwrap();
        for (name, value) in [
            ("class", "0x020000"),
            ("vendor", "0x8086"),
            ("device", "0x1563"),
            ("subsystem_vendor", "0x8086"),
            ("subsystem_device", "0x0001"),
            ("sriov_totalvfs", "65535"),
            ("sriov_numvfs", "0"),
            ("sriov_offset", "1"),
            ("sriov_stride", "1"),
            ("sriov_vf_device", "1565"),
        ] {
            fs::write(directory.join(name), value).unwrap();
        }
    }
    let before = memory::status("VmHWM");
    let inventory = look(tree.path());
    assert_eq!(inventory.pfs.len(), 2000);
    let grown = memory::status("VmHWM").saturating_sub(before);
    assert!(grown < 1 << 30, "a scan took {} MiB", grown >> 20);
    assert!(
        inventory.unknown.iter().any(|note| note.contains("left out")),
        "{:?}",
        inventory.unknown.first()
    );
}

/// Directories of a kernel's have no hundred thousand entries, and a scan says how many it read.
#[test]
fn directories_without_end_are_cut() {
    let (tree, _) = planted("82576-seven-vfs");
    let odd = tree.path().join("sys/bus/pci/devices");
    for number in 0..20_000 {
        fs::write(odd.join(format!("{number:0>200}")), "").unwrap();
    }
    let inventory = look(tree.path());
    assert!(inventory.unknown.len() < 5_000, "{} notes", inventory.unknown.len());
    assert!(inventory.unknown.last().unwrap().contains("more"), "{:?}", inventory.unknown.last());
    assert_eq!(inventory.pfs.len(), 2, "what is a function is still read");
}

/// A few characters stand for 65536 CPUs, and each of many interrupts may say so.
#[test]
fn sets_of_all_cpus_of_hundreds_of_interrupts_take_bounded_memory() {
    let (tree, _) = planted(TUNED);
    for number in 100..600 {
        let directory = tree.path().join(format!("proc/irq/{number}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("smp_affinity_list"), "0-65535").unwrap();
        fs::write(directory.join("effective_affinity_list"), "0-65535").unwrap();
    }
    let before = memory::status("VmHWM");
    let inventory = look(tree.path());
    let grown = memory::status("VmHWM").saturating_sub(before);
    assert!(grown < 1 << 30, "a look took {} MiB", grown >> 20);
    let irqs = inventory.tuning.unwrap().irqs;
    assert!(irqs.len() > 500 && matches!(irqs[&599].effective, Reading::Unreadable(_)));
}

/// Groups below groups without end.
#[test]
fn control_groups_without_end_are_cut() {
    let (tree, _) = planted(TUNED);
    let groups = tree.path().join("sys/fs/cgroup/machine.slice");
    for number in 0..11_000 {
        fs::create_dir_all(groups.join(format!("{number}"))).unwrap();
    }
    let inventory = look(tree.path());
    assert!(inventory.unknown.iter().any(|note| note.contains("more groups")), "{:?}", inventory.unknown);
}

/// Slots and labels that no firmware gives.
#[test]
fn places_that_make_no_sense_are_said() {
    let (tree, _) = planted("82599-two-port");
    let slots = tree.path().join("sys/bus/pci/slots");
    for (name, address) in
        [("3-", "0000:04:00"), ("é", "zz"), ("9-9", ""), (&"s".repeat(200)[..], "0000:04:00")]
    {
        fs::create_dir_all(slots.join(name)).unwrap();
        fs::write(slots.join(name).join("address"), address).unwrap();
    }
    symlink(".", slots.join("loop")).unwrap();
    mkfifo(&slots.join("1/label"), Mode::S_IRWXU).unwrap();
    let inventory = look(tree.path());
    assert!(
        inventory.unknown.iter().any(|note| note.contains("is no slot name")),
        "{:#?}",
        inventory.unknown
    );
}
