use std::path::Path;

use super::*;
use penstock_host::{files, running::Running};
use penstock_model::Source;
use penstock_testkit::script;

use super::up::BOOTS;
use crate::{
    kept::tests::kept,
    machine::SERIAL_LOG,
    origin::Origin,
    saved::{BESIDE, Saved},
};

#[test]
fn a_board_of_which_it_cannot_be_written_down_that_it_stays_ends_and_that_is_said() {
    let there = tempfile::tempdir().unwrap();
    let directory = there.path().join("boards/a");
    files::create_dir_all(&directory).unwrap();
    let sleep = Command::new("sleep").arg("600").current_dir(&directory);
    let process = sleep.start_to_stay(tempfile::tempfile().unwrap()).unwrap();
    let qemu = Running::of(process.id()).unwrap();
    let board = Board {
        kept: KeptBoard { qemu: Some(qemu), ..kept("a") },
        shell: Shell::new(&directory, 1),
        directory: directory.clone(),
        processes: vec![process],
        timings: Vec::new(),
        warm: false,
    };
    // A directory is in the place of the file, and no rename replaces that.
    files::create_dir_all(directory.join("board.json/in the way")).unwrap();
    let error = board.detach().unwrap_err();
    assert!(penstock_host::chain(&error).contains("board.json"), "{error}");
    assert!(!qemu.is_alive());
    assert!(!files::exists(&directory));
}

/// What is saved of a board is taken for nothing that went wrong before QEMU has read it.
#[test]
fn a_saved_board_outlives_what_is_not_its_fault() {
    let there = tempfile::tempdir().unwrap();
    let cache = Cache::at(there.path()).running_in(there.path().join("run"));
    let parsed = penstock_model::parse(&Source::new("test.yaml", "nics: {NET0: {vfs: 2}}")).unwrap();
    let design = Design::from_model(&parsed.model, None).unwrap();
    let (image, choice) = (Image::called("/images/d", "sums"), Choice::counting());
    // It ends before it has sockets, or when they are there and nobody listens.
    let broken = Emulator::acted_by("echo no memory >&2; exit 1");
    let ends = Emulator::acted_by("echo no memory >&2; : >serial; : >control; exit 1");
    let mute = Emulator::acted_by(": >serial; : >control; exec sleep 600");
    let nothing = UpOptions { program: Some(there.path().join("nothing")), ..UpOptions::default() };
    let usual = UpOptions::default();
    let cold = UpOptions { cold: true, ..UpOptions::default() };
    // A QEMU that does not start, as where there is no memory for it; a program that is not there; a QEMU that does not answer.
    for (emulator, options, why, boots) in [
        (&broken, &usual, "QEMU ended before the board was up: no memory", false),
        (&ends, &usual, "QEMU ended before the board was up: no memory", false),
        (&ends, &cold, "QEMU ended before the board was up: no memory", true),
        (&broken, &nothing, "files could not be handled", false),
        (&mute, &usual, "could not read the board's console", true),
    ] {
        let up = Up { design: &design, image: &image, cache: &cache, options, emulator, choice: &choice };
        let origin = Origin::of(&up.run(Path::new("")));
        let directory = cache.saved().join(origin.key());
        files::create_dir_all(&directory).unwrap();
        for name in BESIDE.iter().chain(&["state"]) {
            files::write_atomic(directory.join(name), "x").unwrap();
        }
        files::write_atomic(directory.join("origin.json"), origin.text()).unwrap();
        let saved = Saved::place(&cache, origin);
        assert!(saved.is_there());
        let attempted = || {
            let mut booted = false;
            let is_boot = |phase: &str| phase == "Booting the board";
            let outcome = up.attempt(&mut Vec::new(), &mut |progress| {
                booted |= matches!(&progress, Progress::Phase(phase) if is_boot(phase));
            });
            (outcome.unwrap_err(), booted)
        };
        let (error, booted) = attempted();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(booted, boots, "{error}");
        assert!(saved.is_there(), "{why}");
        // One that cannot be read any more, as where another has just removed it, is none, and left alone.
        let key = directory.join(BESIDE[0]);
        files::remove_file(&key).unwrap();
        files::create_dir_all(&key).unwrap();
        if options.program.is_none() {
            assert!(attempted().1 && saved.is_there(), "{why}");
        }
        // One of which a part is gone is none.
        files::remove_tree(&key).unwrap();
        assert!(!saved.is_there());
    }
}

/// QEMU's emulation may run code that the kernel has replaced: no fault of the board, and nothing has been done with it yet.
#[test]
fn a_board_is_booted_again_where_qemu_ran_code_that_its_kernel_had_replaced() {
    let there = tempfile::tempdir().unwrap();
    let parsed = penstock_model::parse(&Source::new("test.yaml", "nics: {NET0: {vfs: 2}}")).unwrap();
    let design = Design::from_model(&parsed.model, None).unwrap();
    let image = Image::called("/images/d", "sums");
    let boots = there.path().join("boots");
    let counting = Choice::counting();
    let kvm = Choice { accelerator: Accelerator::Kvm, ..counting.clone() };
    let trap = "[    1.869200] Oops: int3: 0000 [#1] PREEMPT_RT SMP NOPTI";
    let other = "[    1.869200] Oops: Oops: 0002 [#1] PREEMPT_RT SMP NOPTI";
    let told = "it ran code that the board's kernel had already replaced (Oops: int3: 0000 [#1] PREEMPT_RT SMP NOPTI)";
    let ended = "QEMU ended before the board was up: it said nothing";
    // What its console says at each boot, and how often it is booted.
    for (first, then, choice, expected, why) in [
        (trap, trap, &counting, BOOTS, told),
        (trap, other, &counting, 2, ended),
        (other, trap, &counting, 1, ended),
        (trap, other, &kvm, 1, ended),
    ] {
        let cache = Cache::at(there.path()).running_in(there.path().join("run"));
        let _ = files::remove_file(&boots);
        let at = boots.display();
        let emulator = Emulator::acted_by(&format!(
            "if [ -e '{at}' ]; then echo '{then}'; else echo '{first}'; fi >{SERIAL_LOG}; echo >>'{at}'; : >serial; : >control; exit 1"
        ));
        let options = UpOptions { cold: true, ..UpOptions::default() };
        let up = Up {
            design: &design,
            image: &image,
            cache: &cache,
            options: &options,
            emulator: &emulator,
            choice,
        };
        let mut notes = Vec::new();
        let error = up.attempt(&mut Vec::new(), &mut |progress| {
            if let Progress::Note(note) = progress {
                notes.push(note);
            }
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(files::read_to_string(&boots).unwrap().lines().count(), expected, "{error}");
        assert_eq!(
            notes.iter().filter(|note| note.contains("booting it again")).count(),
            expected - 1,
            "{notes:?}"
        );
    }
}

/// Another may take the port that was free, which QEMU finds out when its sockets are there.
#[test]
fn another_port_is_tried_where_one_is_taken() {
    let there = tempfile::tempdir().unwrap();
    let cache = Cache::at(there.path()).running_in(there.path().join("run"));
    let parsed = penstock_model::parse(&Source::new("test.yaml", "nics: {NET0: {vfs: 2}}")).unwrap();
    // So that nothing is asked of this machine's KVM.
    let design = Design { icount: true, ..Design::from_model(&parsed.model, None).unwrap() };
    let image = Image::called(&there.path().join("image").to_string_lossy(), "sums");
    let tried = there.path().join("tried");
    let qemu = format!(
        "#!/bin/sh\ncase \"$*\" in *--version) echo 'QEMU emulator version 11.1.3 (a script)'; exit ;; esac\n\
         echo >>'{}'\n: >serial\n: >control\necho 'Could not set up host forwarding rule' >&2\nexit 1\n",
        tried.display()
    );
    let loader = image.file("qemu").join("lib/ld-linux-x86-64.so.2");
    files::create_dir_all(loader.parent().unwrap()).unwrap();
    script::write(&loader, qemu);
    let error = Board::up(design, &image, &cache, &UpOptions::default(), &mut |_| {}).unwrap_err();
    assert!(matches!(&error, BoardError::Port { why } if why.contains("host forwarding")), "{error}");
    assert_eq!(files::read_to_string(&tried).unwrap().lines().count(), PORTS);
}
