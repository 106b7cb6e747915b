//! A switch with its guests, frozen while another has the CPUs.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{
    format::Format,
    prepared,
    processes::{self, Clock, GUESTS, SWITCH},
    supervisor::Workshop,
    switches::{self, Kind, Switch},
    testpmd,
};

/// Frames go round for so long before they are counted.
const WARM: Duration = Duration::from_millis(100);
/// And are counted for so long. All of it is less than what the kernel lets others wait for a CPU, which is 950 ms.
const COUNTED: Duration = Duration::from_millis(700);

/// And have to go round within this after the guests' start.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whose guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestKind {
    /// This program's, which a switch does not wait for.
    Prepared,
    /// `dpdk-testpmd`'s.
    Testpmd,
}

enum Guests {
    Prepared(Box<prepared::Guests>),
    Testpmd(testpmd::Guests),
}

/// A switch and two guests.
pub struct Lane {
    /// The switch.
    pub switch: Switch,
    guests: Guests,
}

/// How far the guests, not the switch, may have been what was measured.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestLoad {
    /// The part of the time that the guests' CPU had frames to work on: near 1, it is they who are slow.
    Busy(f64),
    /// The part of the guests' looks at which the switch had less than a batch of frames left.
    Short(f64),
}

impl GuestLoad {
    fn part(self) -> f64 {
        match self {
            GuestLoad::Busy(part) | GuestLoad::Short(part) => part,
        }
    }

    /// That of most of some runs with the same guests, in words.
    pub fn told(loads: &[GuestLoad]) -> String {
        let mut sorted = loads.to_vec();
        sorted.sort_by(|one, other| one.part().total_cmp(&other.part()));
        match sorted.get(sorted.len() / 2) {
            None => "no guests".to_owned(),
            Some(GuestLoad::Busy(part)) => format!("guests {:.0} % busy", part * 100.0),
            Some(GuestLoad::Short(part)) => format!("short of frames {:.1} % of the time", part * 100.0),
        }
    }
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
    /// What the guests' part in it is.
    pub guests: GuestLoad,
}

impl Sample {
    /// Frames in a second of the switch's CPU.
    pub fn rate(&self) -> f64 {
        self.frames / self.core_seconds
    }
}

/// What the switch's thread had of its CPU between two looks, and what was counted at both.
struct Between<T> {
    before: T,
    after: T,
    core_seconds: f64,
}

/// Looks twice.
fn between<T>(switch: &Switch, mut look: impl FnMut() -> Result<T, String>) -> Result<Between<T>, String> {
    thread::sleep(WARM);
    let before = look()?;
    let had = switch.polls.cpu_seconds();
    thread::sleep(COUNTED);
    let after = look()?;
    Ok(Between { before, after, core_seconds: switch.polls.cpu_seconds() - had })
}

impl Lane {
    /// Starts both, and freezes them.
    pub fn start(kind: Kind, guests: GuestKind, format: Format, workshop: &Workshop) -> Result<Lane, String> {
        let switch = switches::start(kind, workshop)?;
        let guests = match guests {
            GuestKind::Prepared => {
                let mut guests = prepared::Guests::start(format, &switch.sockets)?;
                guests.wait_until_served(TIMEOUT)?;
                Guests::Prepared(Box::new(guests))
            }
            GuestKind::Testpmd => {
                let name = format!("{}-{}", kind.name(), format.name()).replace(' ', "-");
                let mut guests = testpmd::Guests::start(workshop, &name, format, &switch.sockets)?;
                guests.wait_until_served(TIMEOUT)?;
                guests.polls.polls_on(GUESTS);
                Guests::Testpmd(guests)
            }
        };
        switch.polls.polls_on(SWITCH);
        let lane = Lane { switch, guests };
        lane.freeze();
        Ok(lane)
    }

    fn freeze(&self) {
        // Guests of this process only run when they are told to.
        if let Guests::Testpmd(guests) = &self.guests {
            guests.prompt.program.freeze();
        }
        self.switch.program.freeze();
    }

    /// Lets it run with frames of `size` bytes.
    pub fn run(&mut self, size: usize, clock: Clock) -> Result<Sample, String> {
        processes::let_others_run();
        self.switch.program.thaw();
        if let Guests::Testpmd(guests) = &self.guests {
            guests.prompt.program.thaw();
        }
        let sample = self.count(size, clock);
        self.freeze();
        sample
    }

    fn count(&mut self, size: usize, clock: Clock) -> Result<Sample, String> {
        let switch = &self.switch;
        let (received, when, core_seconds, guests) = match &mut self.guests {
            Guests::Prepared(guests) => {
                let Between { before, after, core_seconds } =
                    guests.run(size, |counts| between(switch, || Ok(counts.now())))?;
                let short = (after.short - before.short) as f64 / (after.looks - before.looks) as f64;
                let received = [before.received, after.received].map(Vec::from);
                (received, [before.when, after.when], core_seconds, GuestLoad::Short(short))
            }
            Guests::Testpmd(guests) => {
                guests.go(size)?;
                let Between { before, after, core_seconds } = between(switch, || guests.counted())?;
                guests.stop()?;
                let cycles = after.cycles.saturating_sub(before.cycles) as f64;
                let busy = cycles / (after.when - before.when).as_secs_f64() / clock.0;
                (
                    [before.received, after.received],
                    [before.when, after.when],
                    core_seconds,
                    GuestLoad::Busy(busy),
                )
            }
        };
        let [before, after] = received;
        let counts: Vec<u64> =
            before.iter().zip(&after).map(|(before, after)| after.saturating_sub(*before)).collect();
        if counts.iter().any(|count| *count < 1000) {
            return Err(format!("frames no longer go round: the guests got {counts:?} of {size} bytes"));
        }
        let frames = counts.iter().sum::<u64>() as f64;
        let [began, ended]: [Instant; 2] = when;
        Ok(Sample { frames, seconds: (ended - began).as_secs_f64(), core_seconds, guests })
    }
}
