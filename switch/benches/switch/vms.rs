//! TCP between two VMs, as iperf3 sees it: row `vms`. They are made of the image of the boards, and emulated in software, which
//! takes most of the time: what the switch has to do with it is the less the slower the machine.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    choice::Choice,
    processes::{GUESTS, SWITCH},
    prompt::Prompt,
    report::{Bar, Report, Row, Spread},
    supervisor::Workshop,
    switches::{self, Kind, Switch},
    testpmd::mac,
};

#[allow(dead_code, unused_imports, missing_docs, reason = "not all of it is needed here")]
#[path = "../../../crates/host/src/cpio.rs"]
mod cpio;

const INIT: &str = include_str!("vm-init.sh");
const PROMPT: &str = "vm> ";
/// All VMs have started within this.
const START: Duration = Duration::from_secs(180);
/// Seconds of a run.
const RUN: u64 = 2;
/// And it has ended within this.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Measures it against a peer with segmentation offload and one without.
pub fn measure(choice: &Choice, workshop: &Workshop, report: &mut Report) {
    if choice.wants("vms") {
        report.attempt("vms", workshop, |report| compare(choice.pairs, workshop, report));
    }
}

/// The newest image of a board.
fn image() -> Result<PathBuf, String> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let images = cache.ok_or("neither XDG_CACHE_HOME nor HOME is set")?.join("penstock/images");
    let made = |path: &PathBuf| fs::metadata(path.join("SHA256SUMS")).and_then(|file| file.modified()).ok();
    let all = fs::read_dir(&images).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    all.filter(|path| made(path).is_some()).max_by_key(made).ok_or_else(|| {
        format!("there is no image of a board in {}: `make image` makes one", images.display())
    })
}

/// The image's QEMU with its own loader and libraries, or this machine's.
fn emulator(image: &Path) -> Command {
    let tree = image.join("qemu");
    let mut command = Command::new(tree.join("lib/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(tree.join("lib")).arg(tree.join("qemu-system-x86_64"));
    command.arg("-L").arg(tree.join("share"));
    command
}

/// A switch and two VMs.
struct Lane {
    vms: Vec<Prompt>,
    switch: Switch,
}

impl Lane {
    /// Starts it; its VMs are up some time later: [`Lane::wait`].
    fn start(kind: Kind, image: &Path, workshop: &Workshop) -> Result<Lane, String> {
        let switch = switches::start(kind, workshop)?;
        switch.polls.stays_on(SWITCH);
        let initramfs = workshop.path("vm-initramfs");
        if !initramfs.exists() {
            let failed = |error: std::io::Error| format!("{}: {error}", initramfs.display());
            let mut own = cpio::Archive::default();
            own.file("init", 0o755, INIT.as_bytes());
            let boards = fs::read(image.join("initramfs.cpio")).map_err(failed)?;
            fs::write(&initramfs, [boards, own.finish()].concat()).map_err(failed)?;
        }
        let vms = (0..2).map(|number| {
            let path = switch.sockets.paths.get(number).ok_or("the switch has no such port")?;
            let listen = if switch.sockets.front_end_listens { ",server=on,wait=off" } else { "" };
            if switch.sockets.front_end_listens {
                let _ = fs::remove_file(path);
            }
            let mut command = emulator(image);
            command.args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
                "-serial",
                "stdio",
            ]);
            command.args([
                "-accel",
                "tcg",
                "-cpu",
                "max",
                "-m",
                "256M",
                "-machine",
                "q35,memory-backend=memory",
            ]);
            command.args(["-object", "memory-backend-memfd,id=memory,size=256M,share=on"]);
            command.arg("-kernel").arg(image.join("vmlinuz")).arg("-initrd").arg(&initramfs);
            command.arg("-append").arg(format!(
                "console=ttyS0 quiet loglevel=0 rcupdate.rcu_cpu_stall_suppress=1 panic=-1 no_timer_check mitigations=off penstock.address=192.0.2.{}/24",
                number + 1
            ));
            let disk = image.join("root.squashfs");
            command.arg("-drive").arg(format!("file={},if=virtio,format=raw,readonly=on", disk.display()));
            command.arg("-chardev").arg(format!("socket,id=switch,path={}{listen}", path.display()));
            command.args(["-netdev", "vhost-user,id=net,chardev=switch"]);
            command.args(["-device", &format!("virtio-net-pci,netdev=net,mac={},romfile=", mac(number))]);
            let log = fs::File::create(path.with_extension("log")).map_err(|error| error.to_string())?;
            Prompt::start(command.stderr(Stdio::from(log)), PROMPT)
        });
        Ok(Lane { vms: vms.collect::<Result<_, String>>()?, switch })
    }

    /// Waits until both can reach each other, and freezes them.
    fn wait(&mut self) -> Result<(), String> {
        for vm in &self.vms {
            vm.answer("its start", START)?;
        }
        self.ask(0, "while :; do iperf3 -s -1 >/tmp/server 2>&1; sleep 0.1; done &")?;
        self.ask(1, "for try in 1 2 3 4 5 6 7 8 9; do ping -c 1 -W 1 192.0.2.1 >/dev/null && break; done")?;
        self.freeze();
        Ok(())
    }

    fn ask(&mut self, vm: usize, line: &str) -> Result<String, String> {
        self.vms.get_mut(vm).ok_or("no such VM")?.ask(line, TIMEOUT)
    }

    fn freeze(&self) {
        self.vms.iter().for_each(|vm| vm.program.freeze());
        self.switch.program.freeze();
    }

    /// Gbit/s from the second VM to the first.
    fn run(&mut self) -> Result<f64, String> {
        self.switch.program.thaw();
        self.vms.iter().for_each(|vm| vm.program.thaw());
        let text = self.ask(
            1,
            &format!(
                "for try in 1 2 3 4 5; do told=$(iperf3 -c 192.0.2.1 -t {RUN} -O 1 -J) && break; sleep 0.5; done; echo \"$told\""
            ),
        );
        self.freeze();
        let text = text?;
        let told: Option<Value> = text
            .find('{')
            .zip(text.rfind('}'))
            .and_then(|(first, last)| serde_json::from_str(text.get(first..=last)?).ok());
        let rate = told.as_ref().and_then(|told| told["end"]["sum_received"]["bits_per_second"].as_f64());
        match rate {
            Some(rate) if rate > 0.0 => Ok(rate / 1e9),
            _ => Err(format!("iperf3 told no rate: {}", text.trim())),
        }
    }
}

fn compare(pairs: usize, workshop: &Workshop, report: &mut Report) -> Result<(), String> {
    let image = image()?;
    let kinds = [Kind::Ours { ports: 2 }, Kind::Peer { segments: true }, Kind::Peer { segments: false }];
    let mut lanes = Vec::new();
    for kind in kinds {
        // One after the other: a polling switch and two VMs that start have no CPU to spare.
        let mut lane = Lane::start(kind, &image, workshop)?;
        lane.wait().map_err(|failed| format!("{}: {failed}", kind.name()))?;
        lanes.push((kind, lane));
    }
    let mut samples: Vec<Vec<f64>> = Vec::new();
    for turn in 0..pairs {
        let each = lanes
            .iter_mut()
            .map(|(kind, lane)| lane.run().map_err(|failed| format!("{}: {failed}", kind.name())));
        let sample = each.collect::<Result<Vec<f64>, String>>()?;
        report.progress(&format!("TCP between VMs, {}: {sample:.3?} Gbit/s", turn + 1));
        samples.push(sample);
    }
    let at = |sample: &Vec<f64>, index: usize| sample.get(index).copied().unwrap_or(f64::NAN);
    let of = |part: &dyn Fn(&Vec<f64>) -> f64| Spread::of(samples.iter().map(part));
    for (index, what) in [(1, "TSO on"), (2, "TSO off")] {
        report.add(Row {
            what: format!("TCP between two emulated VMs, CPUs {GUESTS} and {SWITCH} shared, {what}"),
            ours: format!("{:.2} Gbit/s", of(&|sample| at(sample, 0)).median),
            other: format!("OVS {:.2} Gbit/s", of(&|sample| at(sample, index)).median),
            value: of(&|sample| at(sample, 0) / at(sample, index)),
            bar: Bar::AtLeast(2.0),
            samples: samples
                .iter()
                .map(|sample| json!({"ours": at(sample, 0), "peer": at(sample, index)}))
                .collect(),
        });
    }
    Ok(())
}
