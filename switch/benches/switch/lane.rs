//! A switch with its guests, frozen while another has the CPUs.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    processes::{self, Clock, GUESTS, SWITCH},
    supervisor::Workshop,
    switches::{self, Kind, Switch},
    testpmd::{Guests, Ring},
};

/// Frames go round for so long before they are counted.
const WARM: Duration = Duration::from_millis(100);
/// And are counted for so long. All of it is less than what the kernel lets others wait for a CPU, which is 950 ms.
const COUNTED: Duration = Duration::from_millis(700);

/// And have to go round within this after the guests' start.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A switch and two guests.
pub struct Lane {
    /// The switch.
    pub switch: Switch,
    guests: Guests,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Frames that arrived, both directions together.
    pub frames: f64,
    /// For so long.
    pub seconds: f64,
    /// What the switch's thread had of its CPU then.
    pub core_seconds: f64,
    /// What the guests' CPU spent on a frame, in cycles.
    pub guest_cycles: f64,
}

impl Sample {
    /// Frames in a second of the switch's CPU.
    pub fn rate(&self) -> f64 {
        self.frames / self.core_seconds
    }

    /// The part of the time that the guests' CPU had frames to work on: near 1, it is they who are slow.
    pub fn guests_busy(&self, clock: Clock) -> f64 {
        self.guest_cycles * self.frames / self.seconds / clock.0
    }
}

impl Lane {
    /// Starts both, and freezes them.
    pub fn start(kind: Kind, ring: Ring, workshop: &Workshop) -> Result<Lane, String> {
        let switch = switches::start(kind, workshop)?;
        let name = format!("{}-{}", kind.name(), ring.name()).replace(' ', "-");
        let guests = Guests::start(workshop, &name, ring, &switch.sockets)?;
        let mut lane = Lane { switch, guests };
        lane.wait_until_served()?;
        lane.switch.polls.polls_on(SWITCH);
        lane.guests.polls.polls_on(GUESTS);
        lane.freeze();
        Ok(lane)
    }

    /// A switch may take a while until it serves who has come.
    fn wait_until_served(&mut self) -> Result<(), String> {
        let until = Instant::now() + TIMEOUT;
        loop {
            self.guests.go(64)?;
            let before = self.guests.counted()?.received;
            thread::sleep(Duration::from_millis(20));
            let after = self.guests.counted()?.received;
            self.guests.stop()?;
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

    fn freeze(&self) {
        self.guests.prompt.program.freeze();
        self.switch.program.freeze();
    }

    /// Lets it run with frames of `size` bytes.
    pub fn run(&mut self, size: usize) -> Result<Sample, String> {
        processes::let_others_run();
        self.switch.program.thaw();
        self.guests.prompt.program.thaw();
        let sample = self.count(size);
        self.freeze();
        sample
    }

    fn count(&mut self, size: usize) -> Result<Sample, String> {
        self.guests.go(size)?;
        thread::sleep(WARM);
        let before = self.guests.counted()?;
        let had = self.switch.polls.cpu_seconds();
        thread::sleep(COUNTED);
        let after = self.guests.counted()?;
        let core_seconds = self.switch.polls.cpu_seconds() - had;
        self.guests.stop()?;
        let counts: Vec<u64> = before
            .received
            .iter()
            .zip(&after.received)
            .map(|(before, after)| after.saturating_sub(*before))
            .collect();
        if counts.iter().any(|count| *count < 1000) {
            return Err(format!("frames no longer go round: the guests got {counts:?} of {size} bytes"));
        }
        let frames = counts.iter().sum::<u64>() as f64;
        let seconds = (after.when - before.when).as_secs_f64();
        let cycles = after.cycles.saturating_sub(before.cycles) as f64;
        Ok(Sample { frames, seconds, core_seconds, guest_cycles: cycles / frames })
    }
}
