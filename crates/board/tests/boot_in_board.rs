//! Boards that really boot. They say why when they cannot run here, and are counted as ignored then.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_board::{Board, BoardError, Cache, Design, Image, Lasting, Progress, SETTLED, UpOptions};
use penstock_host::{Command, Place, files};
use penstock_model::{Model, Source};
use penstock_testkit::{
    needs::Lack,
    trials::{Failed, Outcome, Test, Trials},
};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    // Two boards at once on two CPUs take as long as one after the other, and their times mean nothing.
    trials.one_at_a_time();
    let missing =
        trials.lacking("boards", || image().err().map(|error| Lack::Installable(error.to_string())));
    // What three of them boot is one design, which is saved once.
    let shared = tempfile::tempdir().map_err(|error| error.to_string());
    let with_shared = |test: fn(&Path) -> Outcome| {
        let directory = shared.as_ref().map(|directory| directory.path().to_owned()).map_err(String::clone);
        move || test(&directory?)
    };
    let tests: [(&str, Test); 8] = [
        ("it_boots_has_its_nics_and_resumes_in_board", it_boots_and_resumes),
        ("the_realtime_kernel_boots_and_resumes_in_board", realtime),
        ("one_with_systemd_resumes_in_board", with_systemd),
        ("a_board_with_vms_is_not_one_that_was_saved_without_in_board", only_the_same_resumes),
        ("two_hundred_vfs_appear_in_board", two_hundred_vfs),
        ("nvme_with_sriov_boots_in_board", nvme),
        ("a_vm_with_vfs_of_two_kinds_boots_in_board", vm),
        ("an_image_is_what_it_was_in_board", image_holds),
    ];
    trials.add(&missing, tests);
    trials.add(
        &missing,
        [
            ("one_that_stays_is_found_and_ended_in_board", with_shared(one_that_stays)),
            ("a_damaged_saved_board_is_booted_instead_in_board", with_shared(damaged_state)),
            ("the_console_account_does_nothing_else_in_board", with_shared(console_account)),
        ],
    );
    trials.run()
}

/// The user's cache, where `make test` has put the image.
fn user_cache() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    cache.unwrap_or_else(std::env::temp_dir).join("penstock")
}

fn image() -> Result<Image, String> {
    let told = |progress: Progress| {
        if let Progress::Phase(what) = progress {
            eprintln!("{what}");
        }
    };
    Image::ensure(&Cache::at(user_cache()), &mut { told }).map_err(|error| error.to_string())
}

/// A cache of the test's own, but for the images and for whether KVM works here.
fn cache(directory: &Path) -> Result<Cache, Failed> {
    if !files::exists(directory.join("images")) {
        files::link(user_cache().join("images"), directory.join("images"))?;
    }
    if let Ok(known) = files::read(Cache::at(user_cache()).accelerators()) {
        files::write_atomic(Cache::at(directory).accelerators(), known)?;
    }
    Ok(Cache::at(directory))
}

fn model(text: &str) -> Model {
    penstock_model::parse(&Source::new("test.yaml", text)).expect("the test's model is good").model
}

fn design(text: &str) -> Design {
    Design::from_model(&model(text), None).expect("the test's board can be composed")
}

const TWO_NICS: &str = r#"
nics:
  NET0: {match: {mac: "0c:c4:7a:9a:61:ea"}, vfs: 7}
  NET1: {match: {mac: "0c:c4:7a:9a:61:eb"}, vfs: 9}
board: {cables: [[NET0, NET1]]}
"#;

fn up(design: Design, cache: &Cache, options: &UpOptions) -> Result<(Board, Vec<Progress>), Failed> {
    let progress = RefCell::new(Vec::new());
    let started = Instant::now();
    let binary = penstock_testkit::binary::path().map(Command::new);
    let switch = binary.map(|binary| binary.args(["embedded-switch", "--until-left"]));
    let options = &UpOptions { switch, ..options.clone() };
    let board = Board::up(design, &image()?, cache, options, &mut |p| progress.borrow_mut().push(p))
        .map_err(|error| format!("{error}: {:?}", std::error::Error::source(&error)))?;
    let kind = if board.is_warm() { "warm" } else { "cold" };
    eprintln!("{kind} in {:.1} s: {:?}", started.elapsed().as_secs_f32(), board.timings());
    Ok((board, progress.into_inner()))
}

fn inside(board: &Board, script: &str) -> Result<String, Failed> {
    let output = board.run(&Command::new("sh").args(["-ec", script]).deadline(Duration::from_secs(300)))?;
    Ok(output.succeeded()?.text())
}

fn expect_empty(cache: &Cache) -> Outcome {
    match files::list(cache.running()) {
        Ok(names) if !names.is_empty() => Err(format!("left over: {names:?}").into()),
        _ => Ok(()),
    }
}

/// To bring a board up with a program of so many bytes, of which no two pages are the same.
fn with_program(directory: &Path, length: usize) -> Result<UpOptions, Failed> {
    let program = directory.join("program");
    let bytes: Vec<u8> = (length as u32..).flat_map(u32::to_ne_bytes).take(length).collect();
    files::write_atomic(&program, bytes)?;
    Ok(UpOptions { program: Some(program), ..UpOptions::default() })
}

/// That what `install` puts into the board is the program that [`with_program`] made last.
fn program_is_installed(board: &Board, directory: &Path) -> Outcome {
    board.install("/usr/local/bin/program")?;
    let sum = Command::new("sha256sum").arg(directory.join("program")).succeed()?.text();
    let seen = inside(board, "sha256sum /usr/local/bin/program; stat -c %a /usr/local/bin/program")?;
    let digest = |text: &str| text.split_whitespace().next().map(str::to_owned);
    assert_eq!(digest(&seen), digest(&sum));
    assert!(seen.ends_with("755\n"), "{seen}");
    Ok(())
}

fn it_boots_and_resumes() -> Outcome {
    let directory = tempfile::tempdir()?;
    let cache = cache(directory.path())?;
    let (board, notes) = up(design(TWO_NICS), &cache, &with_program(directory.path(), 1_000_001)?)?;
    assert!(!board.is_warm());
    // Wall clocks of two moments say more of what else this machine does than of the board.
    let had = |board: &Board, phase: &str| board.timings().iter().any(|(name, _)| *name == phase);
    assert!(had(&board, "boot") && !had(&board, "resume"), "{:?}", board.timings());
    program_is_installed(&board, directory.path())?;
    assert!(notes.iter().any(|p| matches!(p, Progress::Note(n) if n.starts_with("Accelerator: "))));
    assert!(inside(&board, "uname -sr")?.starts_with("Linux 6."));
    nics_are_right(&board)?;
    assert!(board.serial_log().contains("Linux version"), "the log starts with the first byte");
    assert!(inside(&board, "ls /sys/kernel/iommu_groups | wc -l")?.trim().parse::<u32>()? > 3);
    board.down()?;
    expect_empty(&cache)?;

    // Another program than the saved board was booted with.
    let options = with_program(directory.path(), 3_000_001)?;
    let (board, _) = up(design(TWO_NICS), &cache, &options)?;
    assert!(board.is_warm());
    assert!(had(&board, "resume") && !had(&board, "boot"), "{:?}", board.timings());
    program_is_installed(&board, directory.path())?;
    assert!(board.serial_log().contains("Linux version"));
    // Not further off than a second, at some moment while it is asked.
    let here = || SystemTime::now().duration_since(UNIX_EPOCH);
    let before = here()?;
    let clock = Duration::from_nanos(inside(&board, "date +%s%N")?.trim().parse()?);
    let second = Duration::from_secs(1);
    let right = before - second..=here()? + second;
    assert!(right.contains(&clock), "the clock is {clock:?} and should be in {right:?}");
    nics_are_right(&board)?;

    // What is written there is what was given, whatever the bytes.
    let bytes: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let started = Instant::now();
    board.write("/root/a file", &bytes, 0o750)?;
    eprintln!("3 MB copied in {:.2} s", started.elapsed().as_secs_f32());
    assert_eq!(inside(&board, "stat -c '%a %s' '/root/a file'")?, "750 3000000\n");
    assert_eq!(board.read("/root/a file", 300)?, &bytes[..300]);
    let status = board.run(&Command::new("sh").args(["-c", "cat; exit 7"]).input("given"))?;
    assert_eq!((status.status.code(), status.text().as_str()), (Some(7), "given"));
    let started = Instant::now();
    assert!(board.run(&Command::new("sleep").arg("60").deadline(Duration::from_secs(1))).is_err());
    assert!(started.elapsed() < Duration::from_secs(30));

    // There is no way out: 10.0.2.2 would be this machine's loopback interface, where somebody listens.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let knock = format!("timeout 3 bash -c 'echo >/dev/tcp/10.0.2.2/{port}' && echo open || echo shut");
    assert_eq!(inside(&board, &knock)?, "shut\n");
    assert_eq!(inside(&board, "ip route show default")?, "");
    drop(board);
    expect_empty(&cache)
}

/// The other kernel, saved and resumed as the first one is, with more CPUs and with what measures it.
fn realtime() -> Outcome {
    let directory = tempfile::tempdir()?;
    let cache = cache(directory.path())?;
    let both =
        |kernel: &str| design(&format!("nics: {{NET0: {{vfs: 2}}}}\nboard: {{kernel: {kernel}, cpus: 4}}"));
    let (board, notes) = up(both("realtime"), &cache, &UpOptions::default())?;
    let told = |p: &Progress| matches!(p, Progress::Note(n) if n == "Kernel: realtime (the model says so)");
    assert!(notes.iter().any(told), "{notes:?}");
    board.down()?;
    // One that is like it but for the kernel is another board, and takes nothing of it.
    let (board, _) = up(both("standard"), &cache, &UpOptions { save: false, ..UpOptions::default() })?;
    assert!(!board.is_warm());
    assert_eq!(inside(&board, "cat /sys/kernel/realtime 2>/dev/null || echo none")?, "none\n");
    board.down()?;
    let (board, _) = up(both("realtime"), &cache, &UpOptions::default())?;
    assert!(board.is_warm());
    let script = "
        cat /sys/kernel/realtime
        nproc
        grep -c -e mitigations=off -e rcu_expedited=1 /proc/cmdline || true
        cyclictest -q -a 3 -t 1 -p 80 -i 1000 -l 100 | grep -c 'C: *100'
        grep -o timerlat /sys/kernel/tracing/available_tracers
        for tool in rtla oslat hackbench chrt taskset; do command -v $tool; done | wc -l";
    assert_eq!(inside(&board, script)?, "1\n4\n0\n1\ntimerlat\n5\n");
    nics_work(&board)?;
    board.down()?;
    expect_empty(&cache)
}

/// VFs are made under their own driver, and given back.
/// The runs of some services, which have another id each time that they are started.
const SERVICES: &str = "systemctl show -P InvocationID board-ssh board-settled dbus systemd-logind systemd-journald systemd-udevd virtlogd";

/// A board with systemd, and libvirt, is saved when all its units are up, and has them as they were when it is resumed.
fn with_systemd() -> Outcome {
    let directory = tempfile::tempdir()?;
    let cache = cache(directory.path())?;
    let model = "nics: {NET0: {vfs: 1}}\nguests: {a: {kind: vm, functions: [NET0#0]}}\n";
    let lasting = Lasting { systemd: true, ..Lasting::default() };
    let options = UpOptions { lasting, ..UpOptions::default() };
    let (board, notes) = up(design(model), &cache, &options)?;
    assert!(!board.is_warm());
    assert_eq!(files::list(directory.path().join("boards"))?.len(), 1, "it is saved: {notes:?}");
    all_is_up(&board)?;
    let services = inside(&board, SERVICES)?;
    board.down()?;

    let (board, notes) = up(design(model), &cache, &options)?;
    assert!(board.is_warm(), "{notes:?}");
    assert_eq!(inside(&board, SERVICES)?, services, "nothing was started anew");
    all_is_up(&board)?;
    // As after weeks in which it was saved: no calendar has anything for it to do.
    inside(&board, "date -s '40 days' && sleep 3")?;
    all_is_up(&board)?;
    assert_eq!(inside(&board, SERVICES)?, services);
    let timers =
        inside(&board, "systemctl list-timers --no-legend | grep -v systemd-tmpfiles-clean || true")?;
    assert_eq!(timers, "");

    // Its devices were loaded, not started, and QEMU resets them none the less.
    let said = board.serial_log().len();
    inside(&board, "nohup sh -c 'sleep 1; echo b >/proc/sysrq-trigger' >/dev/null 2>&1 &")?;
    let deadline = Instant::now() + Duration::from_secs(180);
    while !board.serial_log().get(said..).is_some_and(|since| since.contains(SETTLED)) {
        assert!(Instant::now() < deadline, "{:?}", board.serial_log().get(said..));
        thread::sleep(Duration::from_millis(200));
    }
    board.down()?;
    expect_empty(&cache)
}

/// No unit has failed or is still being started, and a session, a unit that is made now, the journal and libvirt work.
fn all_is_up(board: &Board) -> Outcome {
    // Waits where the answer is not final, and fails unless that is `running`.
    let state = inside(board, "systemctl is-system-running --wait || systemctl --failed --no-legend")?;
    assert_eq!(state, "running\n");
    assert!(inside(board, "loginctl list-sessions --no-legend")?.contains("root"));
    let line = "systemd-run --quiet --wait echo from-a-unit && journalctl --sync && journalctl -o cat | grep -c '^from-a-unit$'";
    assert!(inside(board, line)?.trim().parse::<u32>()? >= 1);
    let able = inside(board, "virsh -q domcapabilities --virttype kvm --machine q35 | head -n 1")?;
    assert_eq!(able, "<domainCapabilities>\n");
    assert_eq!(inside(board, "cat /sys/module/kvm/parameters/halt_poll_ns")?, "0\n");
    Ok(())
}

fn nics_work(board: &Board) -> Outcome {
    let script = "
        cd /sys/bus/pci/devices/0000:01:00.0
        echo 2 >sriov_numvfs
        basename $(readlink virtfn1/driver)
        echo 0 >sriov_numvfs";
    assert_eq!(inside(board, script)?, "igbvf\n");
    Ok(())
}

/// PFs and VFs as the design says, under the kernel's own drivers; VFs are made and given back.
fn nics_are_right(board: &Board) -> Outcome {
    let interfaces = board.interfaces()?;
    let macs: Vec<(String, String)> = interfaces
        .iter()
        .filter(|report| report.interface.name.as_str() != "mgmt")
        .map(|report| (report.interface.mac.to_string(), report.device.clone().unwrap_or_default()))
        .collect();
    let igb = ("0c:c4:7a:9a:61:ea".to_owned(), "0000:01:00.0".to_owned());
    assert!(macs.contains(&igb), "{macs:?}");
    assert!(macs.iter().any(|(mac, _)| mac == "0c:c4:7a:9a:61:eb"), "{macs:?}");
    let script = "
        cd /sys/bus/pci/devices
        for pf in 0000:01:00.0/7 0000:02:00.0/9; do
            bdf=${pf%/*} vfs=${pf#*/}
            [ $(cat $bdf/sriov_totalvfs) = $vfs ]
            echo $vfs >$bdf/sriov_numvfs
            basename $(readlink $bdf/virtfn2)
            ls -d $bdf/virtfn* | wc -l
            echo 0 >$bdf/sriov_numvfs
        done";
    assert_eq!(inside(board, script)?, "0000:01:10.4\n7\n0000:02:10.4\n9\n");
    Ok(())
}

/// What the boards of the tests below are.
const SMALL: &str = "nics: {NET0: {vfs: 1}}";

fn one_that_stays(directory: &Path) -> Outcome {
    let cache = cache(directory)?;
    let options = UpOptions { name: Some("kept".to_owned()), ..UpOptions::default() };
    let (board, _) = up(design(SMALL), &cache, &options)?;
    board.detach()?;
    let listed = Board::list(&cache)?;
    assert_eq!(listed.iter().map(|board| board.name.as_str()).collect::<Vec<_>>(), ["kept"]);
    let again = Board::up(design(SMALL), &image()?, &cache, &options, &mut |_| {});
    assert!(matches!(again, Err(BoardError::Taken { .. })));
    assert_eq!(files::list(cache.saved())?.len(), 1, "what is saved stays for the next one");
    let board = Board::attach(&cache, "kept")?;
    assert_eq!(inside(&board, "hostname")?, "board\n");
    let words = ["echo".to_owned(), "a  b".to_owned()];
    assert_eq!(board.ssh_command(&words, false).succeed()?.text(), "a  b\n");
    let line = ["echo 'a  b'; echo c".to_owned()];
    assert_eq!(board.ssh_command(&line, false).succeed()?.text(), "a  b\nc\n");
    drop(board);
    assert_eq!(Board::list(&cache)?.len(), 1, "looking at a board does not end it");
    Board::drop_kept(&cache, "kept")?;
    assert!(matches!(Board::attach(&cache, "kept"), Err(BoardError::NoSuchBoard { .. })));
    assert!(!listed[0].is_up());
    expect_empty(&cache)?;
    one_that_ended_is_told_of(&cache, &options)
}

/// A kernel that resets its board ends it: whoever asks for it next is told, with what its console said last.
fn one_that_ended_is_told_of(cache: &Cache, options: &UpOptions) -> Outcome {
    let reset = |how: &str, triple: bool| -> Outcome {
        let board = Board::up(design(SMALL), &image()?, cache, options, &mut |_| {})?;
        // The kernel itself says it: what a program writes to the console waits in a queue, which such an end does not wait for.
        let script = format!(
            "echo '<2>farewell' >/dev/kmsg; echo {how} >/sys/kernel/reboot/type; echo b >/proc/sysrq-trigger"
        );
        let _ = board.ssh_command(&["sh", "-c", &script].map(str::to_owned), false).run();
        // Its connection breaks off before QEMU has given its memory back.
        let ended = Instant::now();
        let died = loop {
            match board.died() {
                Some(died) => break died.to_string(),
                None if ended.elapsed() > Duration::from_secs(60) => break String::new(),
                None => thread::sleep(Duration::from_millis(200)),
            }
        };
        assert!(died.contains("farewell"), "{died}");
        assert_eq!(died.contains("had a triple fault"), triple, "{died}");
        board.detach()?;
        assert_eq!(Board::list(cache)?.len(), 0);
        Ok(())
    };
    reset("acpi", false)?;
    match Board::attach(cache, "kept") {
        Err(BoardError::Died { name, why }) => assert!(name == "kept" && why.contains("farewell"), "{why}"),
        other => return Err(format!("{other:?}").into()),
    }
    assert!(matches!(Board::attach(cache, "kept"), Err(BoardError::NoSuchBoard { .. })), "it is said once");
    expect_empty(cache)?;
    // The next of its name says it, too.
    reset("triple", true)?;
    let mut notes = Vec::new();
    let board = Board::up(design(SMALL), &image()?, cache, options, &mut |progress| {
        if let Progress::Note(note) = progress {
            notes.push(note);
        }
    })?;
    assert!(
        notes.iter().any(|note| note.contains("ended by itself") && note.contains("farewell")),
        "{notes:?}"
    );
    board.down()?;
    expect_empty(cache)
}

/// A model with a VM and one without, of the same NICs, memory and CPUs: each gets the board that was booted for it.
fn only_the_same_resumes() -> Outcome {
    let directory = tempfile::tempdir()?;
    let cache = cache(directory.path())?;
    let with = |guests: &str| {
        design(&format!("nics: {{NET0: {{vfs: 2}}}}\nboard: {{memory: 2GiB, cpus: 2}}\n{guests}"))
    };
    let (container, vm) =
        ("guests: {a: {functions: [NET0#0]}}", "guests: {a: {kind: vm, functions: [NET0#0]}}");
    let for_vms = "[ -c /dev/kvm ] && [ -S /run/libvirt/libvirt-sock ] && echo yes || echo no";
    let (board, _) = up(with(container), &cache, &UpOptions::default())?;
    assert_eq!(inside(&board, for_vms)?, "no\n");
    is_of_its_command(&cache)?;
    board.down()?;
    let (board, notes) = up(with(vm), &cache, &UpOptions::default())?;
    assert!(!board.is_warm(), "{notes:?}");
    assert_eq!(inside(&board, for_vms)?, "yes\n");
    board.down()?;
    assert_eq!(files::list(directory.path().join("boards"))?.len(), 2);
    for (guests, expected) in [(vm, "yes\n"), (container, "no\n")] {
        let (board, notes) = up(with(guests), &cache, &UpOptions::default())?;
        assert!(board.is_warm(), "{notes:?}");
        assert_eq!(inside(&board, for_vms)?, expected);
        board.down()?;
    }
    // One whose record is of another board is not resumed, whatever its directory is called.
    for key in files::list(directory.path().join("boards"))? {
        let record = directory.path().join("boards").join(key).join("origin.json");
        let text = files::read_to_string(&record)?;
        files::write_atomic(&record, text.replace("-nodefaults", "-other"))?;
    }
    let (board, notes) = up(with(container), &cache, &UpOptions::default())?;
    assert!(!board.is_warm(), "{notes:?}");
    board.down()?;
    expect_empty(&cache)
}

/// The record of the only saved board has every word of the QEMU that runs, and no other, but for the port.
fn is_of_its_command(cache: &Cache) -> Outcome {
    let [board] = &*Board::list(cache)? else { return Err("one board is to be up".into()) };
    let qemu = board.qemu.ok_or("it has no QEMU")?;
    let runs = files::read(format!("/proc/{}/cmdline", qemu.id))?;
    let runs: Vec<String> = runs
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).replace(&format!(":{}-:22", board.port), ":0-:22"))
        .collect();
    let [key] = &*files::list(cache.saved())? else { return Err("one board is to be saved".into()) };
    let record = files::read_to_string(cache.saved().join(key).join("origin.json"))?;
    let record: serde_json::Value = serde_json::from_str(&record)?;
    let words = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut recorded = vec![words(&record["qemu"]["program"])];
    recorded.extend(record["qemu"]["arguments"].as_array().into_iter().flatten().map(words));
    // The last word of a command line is ended as well.
    recorded.push(String::new());
    assert_eq!(runs, recorded);
    Ok(())
}

fn damaged_state(directory: &Path) -> Outcome {
    let cache = cache(directory)?;
    let small = || design(SMALL);
    up(small(), &cache, &UpOptions::default())?.0.down()?;
    let saved = files::list(directory.join("boards"))?;
    let [key] = &*saved else {
        return Err(format!("saved: {saved:?}").into());
    };
    let state = directory.join("boards").join(key).join("state");
    let whole = files::read(&state)?;
    files::write_atomic(&state, &whole[..whole.len() / 2])?;
    let (board, notes) = up(small(), &cache, &UpOptions::default())?;
    assert!(!board.is_warm());
    assert!(
        notes.iter().any(|p| matches!(p, Progress::Note(n) if n.contains("did not resume"))),
        "{notes:?}"
    );
    assert_eq!(inside(&board, "hostname")?, "board\n");
    board.down()?;
    expect_empty(&cache)
}

fn two_hundred_vfs() -> Outcome {
    let directory = tempfile::tempdir()?;
    let cache = cache(directory.path())?;
    let options = UpOptions { save: false, ..UpOptions::default() };
    let (board, _) = up(design("nics: {NET0: {vfs: 200}}"), &cache, &options)?;
    let script = "
        cd /sys/bus/pci/devices/0000:01:00.0
        echo 0 >sriov_drivers_autoprobe
        echo 200 >sriov_numvfs
        ls -d virtfn* | wc -l
        for n in 0 64 65 199; do
            vf=$(basename $(readlink virtfn$n))
            # With autoprobe off the kernel lets a VF be bound only to a driver that was asked for.
            echo virtio-pci >/sys/bus/pci/devices/$vf/driver_override
            echo $vf >/sys/bus/pci/drivers_probe
            ls /sys/bus/pci/devices/$vf/virtio*/net >/dev/null
            echo $vf
        done";
    let expected = "200\n0000:01:00.1\n0000:01:08.1\n0000:01:08.2\n0000:01:19.0\n";
    assert_eq!(inside(&board, script)?, expected);
    board.down()?;
    expect_empty(&cache)
}

fn nvme() -> Outcome {
    let directory = tempfile::tempdir()?;
    let cache = cache(directory.path())?;
    let text = "nics: {NET0: {vfs: 1}}\nboard: {nvme_vfs: 4}";
    let (board, notes) = up(design(text), &cache, &UpOptions::default())?;
    assert!(notes.iter().any(|p| matches!(p, Progress::Note(n) if n.contains("cannot save"))), "{notes:?}");
    let script = "ls /sys/class/nvme; cat /sys/class/nvme/nvme0/device/sriov_totalvfs";
    assert_eq!(inside(&board, script)?, "nvme0\n4\n");
    board.down()?;
    expect_empty(&cache)
}

const WITH_VM: &str = r#"
nics: {NET0: {vfs: 2}, NET1: {vfs: 16}}
guests: {one: {kind: vm, functions: [NET0#0, {vf: NET1#0, mac: "02:00:00:00:01:00"}, NET1#15]}}
"#;

/// What the VM's console has said, as soon as `word` is among it; at `end`, what it has said by then.
fn said_by_vm(board: &Board, word: &str, end: Instant) -> Result<String, Failed> {
    loop {
        let said = inside(board, "cat /run/one/console.log")?;
        if said.contains(word) || Instant::now() > end {
            return Ok(said);
        }
        thread::sleep(Duration::from_millis(300));
    }
}

/// A VM of libvirt with an igb VF, and a virtio VF whose MAC the board was made with, both through VFIO and the IOMMU.
fn vm() -> Outcome {
    let directory = tempfile::tempdir()?;
    let cache = cache(directory.path())?;
    let (board, notes) = up(design(WITH_VM), &cache, &UpOptions::default())?;
    assert!(!notes.iter().any(|p| matches!(p, Progress::Note(n) if n.contains("save"))), "{notes:?}");

    let seen = |text: &str, wanted: &[&str]| -> Outcome {
        match wanted.iter().find(|line| !text.lines().any(|said| said.trim_end() == **line)) {
            Some(line) => Err(format!("no line {line:?} in:\n{text}").into()),
            None => Ok(()),
        }
    };
    board.write("/root/domain.xml", include_bytes!("domain.xml"), 0o644)?;
    // The 16 VFs under the host's own driver first, with the addresses that QEMU gave them.
    let script = "
        cd /sys/bus/pci/devices
        ip link set eth0 up
        echo 0 >0000:01:00.0/sriov_drivers_autoprobe
        echo 2 >0000:01:00.0/sriov_numvfs
        ip link set eth0 vf 0 mac 02:00:00:00:00:00
        echo 16 >0000:02:00.0/sriov_numvfs
        ls -d 0000:02:*/virtio*/net/* | wc -l
        cat 0000:02:10.0/virtio*/net/*/address
        for vf in 0000:01:10.0 0000:02:10.0 0000:02:13.6; do
            echo vfio-pci >$vf/driver_override
            [ ! -e $vf/driver ] || echo $vf >$vf/driver/unbind
            echo $vf >/sys/bus/pci/drivers_probe
            basename $(readlink $vf/driver)
        done";
    seen(&inside(&board, script)?, &["17", "02:00:00:00:01:00", "vfio-pci"])?;

    let script = "
        mkdir -p /run/one/penstock
        cd /run/one
        echo one >penstock/hostname
        {
            echo 02:00:00:00:00:00 net0 1400 192.0.2.1/24 2001:db8::1/64
            echo 02:00:00:00:01:00 net1 - 198.51.100.1/24
        } >penstock/interfaces
        find penstock | busybox cpio -o -H newc >more
        cat /usr/lib/penstock/guest/initramfs more >initramfs
        virsh -q create --paused /root/domain.xml
        [ ! -s console.log ]
        virsh -q resume penstock-one";
    inside(&board, script)?;
    let started = Instant::now();
    let mut end = started + Duration::from_secs(300);
    // One that hangs before its first word is made anew, once, as `apply` does.
    let (first, ready) = ("penstock-guest:", "penstock-guest: ready");
    let said = said_by_vm(&board, first, started + Duration::from_secs(120))?;
    if !said.contains(first) {
        eprintln!("the VM has said nothing of its own in {:.1} s: {said:?}", started.elapsed().as_secs_f32());
        let anew = "virsh -q destroy penstock-one; virsh -q create --paused /root/domain.xml; virsh -q resume penstock-one";
        inside(&board, anew)?;
        end = Instant::now() + Duration::from_secs(180);
    }
    let said = said_by_vm(&board, ready, end)?;
    eprintln!("the VM was ready after {:.1} s", started.elapsed().as_secs_f32());
    let nic = |name: &str| -> Result<String, Failed> {
        let start = format!("penstock-nic: {name} ");
        let line = said.lines().find_map(|line| line.trim_end().strip_prefix(&start));
        Ok(line.ok_or_else(|| format!("no {name} in:\n{said}"))?.to_owned())
    };
    assert!(nic("net0")?.starts_with("02:00:00:00:00:00 up 1400 192.0.2.1/24 2001:db8::1/64"), "{said}");
    assert!(nic("net1")?.starts_with("02:00:00:00:01:00 up 1500 198.51.100.1/24"), "{said}");
    seen(&said, &["penstock-guest: begin", ready])?;

    // The agent answers; libvirt comes back by itself, and still knows the VM.
    let ping = r#"virsh -q qemu-agent-command penstock-one '{"execute":"guest-ping"}'"#;
    assert_eq!(inside(&board, ping)?.trim(), r#"{"return":{}}"#);
    let script = "
        kill -9 $(pidof libvirtd)
        for _ in $(seq 100); do
            # Answered when libvirt has its connection to QEMU again; a destroy before that finds no VM in the end.
            if virsh -q qemu-monitor-command penstock-one --hmp info status 2>/dev/null; then break; fi
            sleep 0.1
        done
        virsh -q destroy penstock-one || { cat /run/libvirtd.log >&2; exit 1; }
        virsh -q list --all --name
        ls -d /sys/bus/pci/devices/0000:01:00.0/virtfn* | wc -l";
    let words = inside(&board, script)?;
    assert_eq!(words.split_whitespace().collect::<Vec<_>>(), ["VM", "status:", "running", "2"]);
    board.down()?;
    expect_empty(&cache)?;
    switched_resumes(&cache)
}

/// The same board from its saved state, with a switch that was started anew: frames cross, also behind the IOMMU, the line leads to
/// it, a link that it takes down is down, and no NIC has to announce itself.
fn switched_resumes(cache: &Cache) -> Outcome {
    let (board, notes) = up(design(WITH_VM), cache, &UpOptions::default())?;
    assert!(board.is_warm(), "{notes:?}");
    // The kernel that announces a virtio-net NIC waits for ever when the NIC is taken down meanwhile.
    let announcements = inside(
        &board,
        "
        cd /sys/kernel/tracing
        echo 'p:announcement netdev_notify_peers' >kprobe_events
        echo 1 >events/kprobes/announcement/enable
        pf=$(basename /sys/bus/pci/devices/0000:02:00.0/virtio*/net/*)
        ip link set $pf up; sleep 2; ip link set $pf down
        grep -c announcement: trace || true
        echo 0 >events/kprobes/announcement/enable; echo >kprobe_events",
    )?;
    assert_eq!(announcements, "0\n");
    let script = "
        cd /sys/bus/pci/devices/0000:02:00.0
        echo 2 >sriov_numvfs
        for n in 0 1; do
            name=$(basename virtfn$n/virtio*/net/*)
            unshare -n sleep 300 >/dev/null 2>&1 </dev/null & holder=$!
            until [ $(readlink /proc/$holder/ns/net) != $(readlink /proc/self/ns/net) ]; do sleep 0.1; done
            ip link set $name netns $holder name net0
            nsenter -t $holder -n ip address add 10.0.0.$n/24 dev net0 nodad
            nsenter -t $holder -n ip link set net0 up
            echo $holder
        done";
    let holders = inside(&board, script)?;
    let [first, second] = *holders.split_whitespace().collect::<Vec<_>>() else {
        return Err(format!("namespaces: {holders:?}").into());
    };
    inside(&board, &format!("nsenter -t {first} -n ping -q -c 20 -i 0.05 -s 1400 -W 5 10.0.0.1"))?;
    let tell = |request: &str| {
        inside(&board, &format!("exec 3<>$(ls /dev/vport*) && echo '{request}' >&3 && head -n 1 <&3"))
    };
    let told = tell(r#"{"version":1,"do":"get"}"#)?;
    assert!(told.contains(r#""NET1#0""#) && told.contains(r#""connected":true"#), "{told}");
    tell(r#"{"version":1,"do":"set","port":"NET1#1","attributes":{"link_state":"disable"}}"#)?;
    let carrier = "for turn in $(seq 100); do
        [ $(cat /sys/class/net/net0/carrier) = 0 ] && exit; sleep 0.1; done; exit 1";
    // Another namespace has another /sys.
    inside(&board, &format!("nsenter -t {second} -n unshare -m sh -c 'mount -t sysfs sys /sys; {carrier}'"))?;
    board.down()?;
    expect_empty(cache)
}

/// What the account may do is one command; which this test puts there.
fn console_account(directory: &Path) -> Outcome {
    let cache = cache(directory)?;
    let (board, _) = up(design(SMALL), &cache, &UpOptions::default())?;
    let told = b"#!/bin/sh\necho \"$(id -un) $* $SSH_ORIGINAL_COMMAND\"\n";
    board.write("/usr/local/bin/penstock", told, 0o755)?;
    let guest = "rt-2".parse().expect("a guest's name");
    assert_eq!(board.console_command(&guest).succeed()?.text().trim(), "console console --ssh rt-2");
    board.down()?;
    expect_empty(&cache)
}

fn image_holds() -> Outcome {
    let image = image()?;
    image.verify()?;
    let packages = image.packages()?;
    assert!(packages.contains("linux-image-amd64 ") && packages.contains("linux-image-rt-amd64 "));
    let realtime = image.directory().join("guest/vmlinuz-realtime");
    for file in [image.guest_kernel(), image.guest_initramfs(), realtime] {
        assert!(files::length(&file)? > 1 << 20, "{}", file.display());
    }
    Ok(())
}
