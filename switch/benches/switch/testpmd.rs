//! The guests: `dpdk-testpmd` with two virtio-user ports, spoken to as one does on its prompt.

use std::{
    fs::File,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{
    format::Format,
    processes::{GUESTS, SWITCH, Thread},
    prompt::Prompt,
    supervisor::Workshop,
};

const PROMPT: &str = "testpmd> ";
/// Within which it has to answer, its start and its switch's coming included.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What testpmd is told of the format of its guests' rings.
fn options(format: Format) -> &'static str {
    match format {
        Format::Split => "mrg_rxbuf=1,packed_vq=0,in_order=0",
        Format::Packed => "mrg_rxbuf=1,packed_vq=1,in_order=1",
        Format::PackedSingle => "mrg_rxbuf=0,packed_vq=1,in_order=1,vectorized=1",
    }
}

/// The MAC address of guest `number`.
pub fn mac(number: usize) -> String {
    format!("02:00:00:00:{:02x}:{:02x}", number / 256, number % 256)
}

/// Where guests find their switch.
pub struct Sockets {
    /// One for each guest.
    pub paths: Vec<PathBuf>,
    /// The front end makes them, and the switch comes.
    pub front_end_listens: bool,
}

/// Two guests that send each other what they get.
pub struct Guests {
    /// The process.
    pub prompt: Prompt,
    /// Its thread that sends and receives.
    pub polls: Thread,
}

impl Guests {
    /// Starts them, and waits until they are connected. `name` sets their memory apart from others'.
    pub fn start(
        workshop: &Workshop,
        name: &str,
        format: Format,
        sockets: &Sockets,
    ) -> Result<Guests, String> {
        let serve = if sockets.front_end_listens { ",server=1" } else { "" };
        // Its output is read line by line as it comes, though it is no terminal.
        let mut command = Command::new("stdbuf");
        // The thread with the prompt seldom has anything to do; but it polls for what the other does, and may not keep it
        // from its CPU meanwhile.
        command.args(["-oL", "dpdk-testpmd", "--lcores", &format!("0@{SWITCH},1@{GUESTS}")]);
        command.args(["--no-pci", "--in-memory", "--single-file-segments", "--no-telemetry"]);
        command.args(["--huge-dir", &workshop.huge_pages().to_string_lossy()]);
        command.args(["--force-max-simd-bitwidth=512", &format!("--file-prefix={name}")]);
        for (number, path) in sockets.paths.iter().take(2).enumerate() {
            if sockets.front_end_listens {
                // One that was there before would be in its way.
                let _ = std::fs::remove_file(path);
            }
            let (path, mac, options) = (path.display(), mac(number), options(format));
            command.args([
                "--vdev",
                &format!("net_virtio_user{number},path={path},mac={mac},queue_size=1024,{options}{serve}"),
            ]);
        }
        command.args([
            "--",
            "--interactive",
            "--forward-mode=mac",
            "--nb-cores=1",
            "--record-core-cycles",
            "--total-num-mbufs=16384",
        ]);
        command.args([format!("--eth-peer=0,{}", mac(1)), format!("--eth-peer=1,{}", mac(0))]);
        let path = workshop.path(&format!("{name}.log"));
        let log = File::create(&path).map_err(|error| error.to_string())?;
        let prompt = Prompt::start(command.stderr(log), PROMPT)?;
        prompt.answer("its start", TIMEOUT).map_err(|failed| {
            // Why is on its standard error.
            let said = std::fs::read_to_string(&path).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join("; ");
            format!("{failed} (dpdk-testpmd said: {last})")
        })?;
        // DPDK 22.11, older ones, and 23.11 and newer (Debian 13) call it so.
        let polls = prompt.program.thread(&["rte-worker", "lcore-worker", "dpdk-worker"])?;
        let guests = Guests { prompt, polls };
        guests.prompt.program.first_thread().before_polls();
        Ok(guests)
    }

    /// A switch may take a while until it serves who has come.
    ///
    /// # Errors
    /// When no frames go round within `time`.
    pub fn wait_until_served(&mut self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        loop {
            self.go(64)?;
            let before = self.counted()?.received;
            thread::sleep(Duration::from_millis(20));
            let after = self.counted()?.received;
            self.stop()?;
            if before.iter().zip(&after).all(|(before, after)| after > before) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("no frames go round; the guests have got {after:?} so far"));
            }
            // While nobody sends, its other threads have a CPU.
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn ask(&mut self, line: &str) -> Result<String, String> {
        self.prompt.ask(line, TIMEOUT)
    }

    /// Fills the rings with frames of `size` bytes, which go round from now on.
    pub fn go(&mut self, size: usize) -> Result<(), String> {
        self.ask(&format!("set txpkts {size}"))?;
        // The first burst tells the switch who is where; what it could not deliver is missing then.
        self.ask("start tx_first 32")?;
        thread::sleep(Duration::from_millis(50));
        self.ask("stop")?;
        self.ask("start tx_first 32").map(drop)
    }

    /// Has them send no more.
    pub fn stop(&mut self) -> Result<(), String> {
        self.ask("stop").map(drop)
    }

    /// What was counted so far.
    pub fn counted(&mut self) -> Result<Counted, String> {
        let text = self.ask("show port stats all")?;
        let when = Instant::now();
        let number = |text: &str| text.split_whitespace().next()?.trim_end_matches('/').parse().ok();
        let lines = text.lines().map(str::trim);
        let received: Vec<u64> =
            lines.filter_map(|line| line.strip_prefix("RX-packets:").and_then(number)).collect();
        if received.len() != 2 {
            return Err(format!("testpmd has lost a port; it has {} of 2", received.len()));
        }
        // It says nothing of cycles before the first frame.
        let text = self.ask("show fwd stats all")?;
        let cycles = text.split_once("total cycles=").and_then(|(_, rest)| number(rest)).unwrap_or(0);
        Ok(Counted { received, cycles, when })
    }
}

/// What was counted up to some moment.
pub struct Counted {
    /// Frames that each guest has got.
    pub received: Vec<u64>,
    /// Cycles that the guests' CPU has spent on frames since they last began; not those that it looked for some in vain.
    pub cycles: u64,
    /// The moment.
    pub when: Instant,
}
