use super::*;
use penstock_model::Source;

use crate::saved::BESIDE;

#[test]
fn a_board_of_which_it_cannot_be_written_down_that_it_stays_ends_and_that_is_said() {
    let there = tempfile::tempdir().unwrap();
    let directory = there.path().join("boards/a");
    files::create_dir_all(&directory).unwrap();
    let sleep = Command::new("sleep").arg("600").current_dir(&directory);
    let process = sleep.start_to_stay(tempfile::tempfile().unwrap()).unwrap();
    let qemu = Running::of(process.id()).unwrap();
    let board = Board {
        kept: KeptBoard {
            name: "a".to_owned(),
            port: 1,
            qemu: Some(qemu),
            switches: Vec::new(),
            owner: Running::this(),
            runs_on: Some(RunsOn::here()),
            emulator: "9".to_owned(),
            choice: Choice::counting(),
            program: None,
            kernel: penstock_model::BoardKernel::Standard,
            can_be_reset: false,
            bridges: BTreeSet::new(),
        },
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
    let broken = Emulator::acted_by("echo no memory >&2; exit 1");
    let nothing = UpOptions { program: Some(there.path().join("nothing")), ..UpOptions::default() };
    // A QEMU that does not start, as where there is no memory for it; a program that is not there.
    for (options, why) in [(UpOptions::default(), "QEMU ended"), (nothing, "files could not be handled")] {
        let (emulator, options) = (&broken, &options);
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
        let error = up.attempt(&mut Vec::new(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(saved.is_there(), "{why}");
        // One of which a part is gone is none.
        files::remove_file(directory.join(BESIDE[0])).unwrap();
        assert!(!saved.is_there());
    }
}
