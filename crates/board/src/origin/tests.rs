use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use penstock_model::Source;
use proptest::prelude::*;

use super::*;
use crate::{
    design::Design, disk::Lasting, emulator::Emulator, forward::Forward, image::Image, saved::BESIDE,
};

const PLAIN: &str = "nics: {NET0: {vfs: 2}, NET1: {vfs: 16}}\nboard: {memory: 2GiB, cpus: 4}\n";

fn design(text: &str) -> Design {
    let parsed = penstock_model::parse(&Source::new("test.yaml", text)).expect("the test's model is good");
    Design::from_model(&parsed.model, None).expect("the test's board can be composed")
}

/// All that a run is made of.
struct Parts {
    design: Design,
    image: Image,
    emulator: Emulator,
    accelerator: Accelerator,
    lasting: Lasting,
    switch: Option<Command>,
    program: bool,
    files: Option<PathBuf>,
    forward: Option<Forward>,
}

impl Parts {
    fn of(text: &str) -> Parts {
        Parts {
            design: design(text),
            image: Image::called("/images/d", "sums"),
            emulator: Emulator::called("/bin/qemu", "QEMU emulator version 11.1.3 (Debian 1)"),
            accelerator: Accelerator::Tcg,
            lasting: Lasting::default(),
            switch: Some(Command::new("/bin/penstock").arg("embedded-switch")),
            program: true,
            files: None,
            forward: None,
        }
    }

    fn run<'a>(&'a self, directory: &'a str, stays: bool) -> Run<'a> {
        Run {
            design: &self.design,
            image: &self.image,
            emulator: &self.emulator,
            accelerator: self.accelerator,
            directory: Path::new(directory),
            stays,
            lasting: self.lasting,
            switch: self.switch.as_ref(),
            program: self.program,
            files: self.files.as_deref(),
            forward: self.forward.as_ref(),
        }
    }

    fn origin(&self) -> Origin {
        Origin::of(&self.run("/run/one", false))
    }

    fn command(&self) -> Command {
        self.run("/run/one", false).command(PerRun::LEFT_OUT)
    }
}

type Change = fn(&mut Parts);

fn arguments(command: &Command) -> Vec<String> {
    command.arguments().iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

#[test]
fn two_runs_of_one_board_have_one_origin() {
    let parts = Parts::of(PLAIN);
    let (one, other) = (parts.run("/run/one", false), parts.run("/elsewhere/other", true));
    assert_eq!(Origin::of(&one), Origin::of(&other));
    // What is left out is the port and that it waits, and nothing else.
    let left_out = arguments(&one.command(PerRun::LEFT_OUT));
    let mut running = arguments(&other.command(PerRun { port: 2201, resumes: true }));
    assert_eq!(running.split_off(left_out.len()), ["-S", "-incoming", "defer"]);
    let differing: Vec<_> = left_out.iter().zip(&running).filter(|(one, other)| one != other).collect();
    let [(zero, port)] = differing[..] else { panic!("{differing:?}") };
    assert_eq!(&port.replace(":2201-", ":0-"), zero);
}

#[test]
fn every_option_of_the_model_that_a_board_is_booted_with_counts() {
    let with = |more: &str| PLAIN.replace("cpus: 4}", &format!("cpus: 4{more}}}"));
    let vm = "guests: {a: {kind: vm, functions: [NET0#0]}}\n";
    let guest = "guests: {a: {functions: [NET0#0]}}\n";
    let of = |text: &str| Parts::of(text).origin().key();
    // A VM changes neither NICs nor memory nor CPUs of this board, but what is started on it.
    let (without, with_vm) = (design(&(PLAIN.to_owned() + guest)), design(&(PLAIN.to_owned() + vm)));
    assert_eq!(
        (without.nics.len(), without.memory, without.cpus),
        (with_vm.nics.len(), with_vm.memory, with_vm.cpus)
    );
    assert_eq!(of(PLAIN), of(&(PLAIN.to_owned() + guest)), "a container changes nothing of the board");
    assert_eq!(of(PLAIN), of(&PLAIN.replace("vfs: 2}", "vfs: 3}")), "an emulated igb has all its VFs");
    let mut keys = BTreeMap::new();
    let models = [
        PLAIN.to_owned(),
        PLAIN.to_owned() + vm,
        with(", nvme_vfs: 2"),
        with(", nvme_vfs: 3"),
        PLAIN.replace("cpus: 4", "cpus: 1"),
        PLAIN.replace("cpus: 4", "cpus: 1, icount: on"),
        with(", kernel: realtime"),
        with(", cables: [[NET0, NET1]]"),
        with(", emulation: {NET0: virtio}"),
        PLAIN.replace("vfs: 16}", "vfs: 17}"),
        PLAIN.replace("2GiB", "3GiB"),
        PLAIN.replace("cpus: 4", "cpus: 3"),
        PLAIN.replace("NET0: {vfs: 2}", "NET0: {vfs: 2, match: {mac: \"0c:c4:7a:9a:61:ea\"}}"),
        PLAIN.replace("NET0", "LAN0"),
        PLAIN.to_owned() + &vm.replace("NET0#0", "{vf: NET1#0, mac: \"02:00:00:00:01:00\"}"),
    ];
    for text in models {
        if let Some(other) = keys.insert(of(&text), text.clone()) {
            panic!("one key for\n{text}\nand\n{other}");
        }
    }
}

#[test]
fn what_the_command_only_names_counts_too() {
    let before = Parts::of(PLAIN).origin();
    let changes: [(&str, Change); 9] = [
        ("the image's files", |parts| parts.image = Image::called("/images/d", "other sums")),
        ("the image", |parts| parts.image = Image::called("/images/e", "sums")),
        ("a patch of QEMU", |parts| {
            parts.emulator = Emulator::called("/bin/qemu", "QEMU emulator version 11.1.3 (Debian 2)")
        }),
        ("another QEMU", |parts| {
            parts.emulator = Emulator::called("/opt/qemu", "QEMU emulator version 11.1.3 (Debian 1)")
        }),
        ("the accelerator", |parts| parts.accelerator = Accelerator::Kvm),
        ("another disk", |parts| parts.files = Some("/cache/files".into())),
        ("a way out", |parts| {
            parts.forward = Some(Forward { port: 1, carrier: Command::new("/bin/sh") });
        }),
        ("systemd", |parts| parts.lasting.systemd = true),
        ("the switch's program", |parts| parts.switch = Some(Command::new("/bin/sh").arg("embedded-switch"))),
    ];
    for (what, change) in changes {
        let mut parts = Parts::of(PLAIN);
        change(&mut parts);
        assert_ne!(parts.origin().key(), before.key(), "{what}");
    }
    // The configuration of a switch is in no argument of QEMU.
    let mut parts = Parts::of(PLAIN);
    let command = parts.command();
    parts.design.switches[0].lead_out(Some(crate::switch::Uplink::Listen(0)));
    assert_eq!(arguments(&parts.command()), arguments(&command));
    assert_ne!(parts.origin(), before);
    // Where there is no switch its program is nothing to the board.
    let mut parts = Parts::of("nics: {NET0: {vfs: 2}}");
    let without = parts.origin();
    parts.switch = None;
    assert_eq!(parts.origin(), without);
}

#[test]
fn every_file_that_firmware_is_given_is_saved_with_the_board() {
    let parts = Parts::of(&(PLAIN.to_owned() + "guests: {a: {kind: vm, functions: [NET0#0]}}\n"));
    let command = arguments(&parts.command());
    let given: Vec<&str> = command
        .windows(2)
        .filter(|pair| pair[0] == "-fw_cfg")
        .filter_map(|pair| pair[1].split_once("file=").map(|(_, file)| file))
        .collect();
    assert_eq!(given, ["host-key", "client-key.pub"]);
    // Its text is no part of the origin: so it has to be the same again.
    assert!(given.iter().all(|file| BESIDE.contains(file)), "{given:?}");
}

fn command_of(program: &OsString, environment: &[(OsString, OsString)], arguments: &[OsString]) -> Command {
    let command =
        environment.iter().fold(Command::new(program), |command, (name, value)| command.env(name, value));
    command.args(arguments)
}

proptest! {
    /// Whatever one changes of the command that starts QEMU, the board is another.
    #[test]
    fn any_change_of_the_command_is_another_origin(
        position in any::<prop::sample::Index>(), kind in 0..6_usize, at in any::<prop::sample::Index>(), byte in any::<u8>(),
        vm in any::<bool>(),
    ) {
        let guests = if vm { "guests: {a: {kind: vm, functions: [NET0#0]}}\n" } else { "" };
        let parts = Parts::of(&format!("{PLAIN}{guests}"));
        let (command, run) = (parts.command(), parts.run("/run/one", false));
        let before = Origin::started_by(&command, &run);
        prop_assert_eq!(&before, &Origin::of(&run));
        let (mut program, mut environment, mut words) =
            (command.program().to_owned(), command.environment().to_vec(), command.arguments().to_vec());
        let position = position.index(words.len());
        match kind {
            // A byte of a word, which need not be text then.
            0 => {
                let mut bytes = words[position].as_encoded_bytes().to_vec();
                let at = at.index(bytes.len() + 1);
                bytes.insert(at, if byte == 0 { b'0' } else { byte });
                words[position] = std::os::unix::ffi::OsStringExt::from_vec(bytes);
            }
            1 => { words.remove(position); }
            2 => { let word = words[position].clone(); words.insert(position, word); }
            3 => { words.extend(["-fw_cfg".into(), format!("name=opt/penstock/x{byte},string=1").into()]); }
            4 => program.push("x"),
            _ => environment[0].1.push("x"),
        }
        let after = Origin::started_by(&command_of(&program, &environment, &words), &run);
        prop_assert_ne!(before.key(), after.key());
    }
}
