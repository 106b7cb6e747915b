//! How a guard goes on whatever fails: what it does, apart from how it is done.
//!
//! Each operation of a [`Guarded`] may fail, once or for ever, and may be slow. The guard ends only when the run is confirmed, when
//! the machine is as it was before, or when somebody has built on it since. A decision or a record that cannot be written keeps it
//! from nothing: it is written when it can be.

use std::time::Duration;

use penstock_apply::{
    history::{Confirm, Confirmation, succession::Successors},
    journal::says_the_same,
};

/// How often the guard looks.
pub const PAUSE: Duration = Duration::from_millis(100);
/// The longest time between two attempts to take the run back, or to record that it was.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// So long a lock may be refused, other than by whoever holds it, before the guard goes on without it: nobody else gets it either.
const REFUSED: Duration = Duration::from_secs(30);

/// Why a lock was not had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLock {
    /// Somebody else holds it, and who that is.
    Held(String),
    /// It could not be taken, and why.
    Failed(String),
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// At this time, in milliseconds of [`Guarded::now`]'s clock, and something of it is there.
    At(u64),
    /// All that it had done was taken back.
    NothingIsLeft,
}

/// A run, its machine and the clock. Errors are texts for people.
pub trait Guarded {
    /// What was decided of the run, if anything.
    ///
    /// # Errors
    ///
    /// When what was decided cannot be read.
    fn decision(&mut self) -> Result<Option<Confirmation>, String>;
    /// How the run came to its end by itself; `None` while it has not.
    ///
    /// # Errors
    ///
    /// When how the run came out cannot be read.
    fn ended(&mut self) -> Result<Option<RunEnd>, String>;
    /// Whether whoever carries the run out lives.
    fn lives(&mut self) -> bool;
    /// What is another number whenever the run has told something new.
    ///
    /// # Errors
    ///
    /// When the run's journal cannot be looked at. One that is not there yet has told nothing.
    fn activity(&mut self) -> Result<u64, String>;
    /// Ends whoever carries the run out.
    fn kill(&mut self);
    /// Takes the machine's lock; had already is success.
    ///
    /// # Errors
    ///
    /// [`NoLock::Held`] while another has it, [`NoLock::Failed`] when it cannot be taken.
    fn lock(&mut self) -> Result<(), NoLock>;
    /// Gives it back.
    fn unlock(&mut self);
    /// Keeps everybody else from deciding until the guard ends; kept already is success.
    ///
    /// # Errors
    ///
    /// [`NoLock::Held`] while another decides, [`NoLock::Failed`] when nobody can be kept from it.
    fn hold_decision(&mut self) -> Result<(), NoLock>;
    /// Gives that back.
    fn let_decide(&mut self);
    /// Writes a decision down, unless there is one; gives the one that counts.
    ///
    /// # Errors
    ///
    /// When it cannot be written: [`Guarded::catch_up`] writes it later.
    fn decide(&mut self, verdict: Confirmation) -> Result<Confirmation, String>;
    /// Whether later runs have gone on from what is there, and have not come to nothing.
    ///
    /// # Errors
    ///
    /// When the runs cannot be listed.
    fn successors(&mut self) -> Result<Successors, String>;
    /// Takes the run back, or finds that nothing is left of it.
    ///
    /// # Errors
    ///
    /// When the machine cannot be looked at, there is no way back, or a step of it fails: an attempt may come to more another time.
    fn take_back(&mut self) -> Result<(), String>;
    /// Writes down what could not be written before.
    ///
    /// # Errors
    ///
    /// The first of it that still cannot be written.
    fn catch_up(&mut self) -> Result<(), String>;
    /// The kernel's own clock, which nobody sets.
    fn now(&mut self) -> Duration;
    /// Waits this long.
    fn sleep(&mut self, time: Duration);
    /// Tells whoever may read it.
    fn tell(&mut self, what: &str);
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The run stays.
    Confirmed,
    /// The machine is as it was before.
    TakenBack,
    /// A later run goes on from what is there, and takes both back when it is taken back.
    BuiltUpon,
}

/// Watches a run until it is confirmed, else takes it back.
pub fn guard(world: &mut dyn Guarded, terms: Confirm) -> Ended {
    let mut guard = Guard { told: None, since: world.now(), dead_since: None, terms, said: String::new() };
    let verdict = loop {
        let Some(verdict) = guard.judge(world) else {
            world.sleep(PAUSE);
            continue;
        };
        if verdict == Confirmation::Confirmed {
            return Ended::Confirmed;
        }
        // The lock first: nobody may begin to build on the run once it is decided that it does not stay.
        if !guard.seize(world) {
            return Ended::Confirmed;
        }
        // Whoever held it may have been the run itself, which has come to its end meanwhile.
        match guard.judge(world) {
            Some(Confirmation::Confirmed) => return Ended::Confirmed,
            Some(verdict) => break verdict,
            None => world.unlock(),
        }
    };
    if !guard.decide(world, verdict) {
        return Ended::Confirmed;
    }
    let ended = guard.take_back(world);
    world.unlock();
    let mut pause = PAUSE;
    while let Err(why) = world.catch_up() {
        guard.tell_once(world, format!("what was done is not recorded yet, and is tried again: {why}"));
        world.sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    ended
}

struct Guard {
    /// What the run told last, and since when.
    told: Option<u64>,
    since: Duration,
    /// Since when nobody carries the run out.
    dead_since: Option<Duration>,
    terms: Confirm,
    said: String,
}

impl Guard {
    /// What is to become of the run; `None` while nothing is.
    fn judge(&mut self, world: &mut dyn Guarded) -> Option<Confirmation> {
        let now = world.now();
        self.listen(world);
        // Whether it lives first: what it wrote last was written before it ended.
        if world.lives() {
            self.dead_since = None;
        } else {
            self.dead_since.get_or_insert(now);
        }
        // One that cannot be read now is read again before anything is done.
        if let Ok(Some(verdict)) = world.decision() {
            return Some(verdict);
        }
        let within = Duration::from_millis(self.terms.within);
        match (world.ended(), self.dead_since) {
            (Ok(Some(RunEnd::NothingIsLeft)), _) => Some(Confirmation::Failed),
            (Ok(Some(RunEnd::At(ended))), _) => {
                (now >= Duration::from_millis(ended) + within).then_some(Confirmation::Expired)
            }
            // Nobody sees when it ended: since it was seen to be dead at the latest.
            (Err(_), Some(dead)) => (now >= dead + within).then_some(Confirmation::Expired),
            // Once more, since what says that it lives may have been unreadable.
            (Ok(None), Some(dead)) => (now > dead).then_some(Confirmation::Failed),
            (_, None) => self.is_silent(now).then(|| world.kill()).map(|()| Confirmation::Failed),
        }
    }

    /// Notes whether the run has told something new.
    fn listen(&mut self, world: &mut dyn Guarded) {
        if let Ok(told) = world.activity()
            && self.told != Some(told)
        {
            (self.told, self.since) = (Some(told), world.now());
        }
    }

    /// Whether the run has told nothing for so long that it hangs.
    fn is_silent(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= Duration::from_millis(self.terms.at_most)
    }

    /// Takes the machine's lock, or finds that nobody can. `false` when the run was confirmed meanwhile.
    fn seize(&mut self, world: &mut dyn Guarded) -> bool {
        let mut refused: Option<Duration> = None;
        loop {
            match world.lock() {
                Ok(()) => return true,
                Err(NoLock::Held(who)) => {
                    if world.decision() == Ok(Some(Confirmation::Confirmed)) {
                        return false;
                    }
                    refused = None;
                    // It may be the run itself, which was taken for dead because nobody could see that it lives.
                    self.listen(world);
                    if self.is_silent(world.now()) {
                        world.kill();
                    }
                    self.tell_once(
                        world,
                        format!("the run is taken back as soon as nobody else changes this machine: {who}"),
                    );
                }
                Err(NoLock::Failed(why)) => {
                    let now = world.now();
                    let since = *refused.get_or_insert(now);
                    if now.saturating_sub(since) >= REFUSED {
                        self.tell_once(
                            world,
                            format!("the run is taken back without the machine's lock: {why}"),
                        );
                        return true;
                    }
                }
            }
            world.sleep(PAUSE);
        }
    }

    /// Decides that the run does not stay. `false` when somebody has decided that it does. Where nothing can be written the
    /// decision is that the guard keeps everybody else from deciding.
    fn decide(&mut self, world: &mut dyn Guarded, verdict: Confirmation) -> bool {
        let began = world.now();
        while let Err(no_lock) = world.hold_decision() {
            if world.now().saturating_sub(began) >= REFUSED {
                let (NoLock::Held(why) | NoLock::Failed(why)) = no_lock;
                self.tell_once(
                    world,
                    format!("somebody else may still confirm the run while it is taken back: {why}"),
                );
                break;
            }
            world.sleep(PAUSE);
        }
        let began = world.now();
        loop {
            let why = match (world.decide(verdict), world.decision()) {
                (Ok(Confirmation::Confirmed), _) | (Err(_), Ok(Some(Confirmation::Confirmed))) => {
                    world.let_decide();
                    world.unlock();
                    return false;
                }
                (Ok(_), _) | (Err(_), Ok(Some(_))) => return true,
                (Err(why), Ok(None)) => {
                    self.tell_once(
                        world,
                        format!("the run is taken back, which cannot be recorded now: {why}"),
                    );
                    return true;
                }
                (Err(_), Err(why)) => why,
            };
            if world.now().saturating_sub(began) >= REFUSED {
                self.tell_once(
                    world,
                    format!("the run is taken back; whether it was confirmed cannot be read: {why}"),
                );
                return true;
            }
            world.sleep(PAUSE);
        }
    }

    /// Takes the run back, however often that fails.
    fn take_back(&mut self, world: &mut dyn Guarded) -> Ended {
        let mut pause = Duration::from_secs(1);
        loop {
            match world.successors() {
                Ok(Successors::Stand) => {
                    let text = "a later run goes on from what is left; `penstock undo` takes both back";
                    self.tell_once(world, text.to_owned());
                    return Ended::BuiltUpon;
                }
                Ok(Successors::Undecided) => {
                    let text = "a later run goes on from what is left, and waits to be confirmed: if it is not, both are taken back";
                    self.tell_once(world, text.to_owned());
                }
                // What cannot be read is no reason to leave the machine as it is.
                Ok(Successors::None) | Err(_) => {
                    let Err(why) = world.take_back() else { return Ended::TakenBack };
                    self.tell_once(
                        world,
                        format!("the run is not taken back yet, and is tried again: {why}"),
                    );
                }
            }
            // Whoever wants to help gets at it meanwhile.
            world.unlock();
            world.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.seize(world);
        }
    }

    /// Says something unless it was what was said last, but for how long something took.
    fn tell_once(&mut self, world: &mut dyn Guarded, what: String) {
        if !says_the_same(&self.said, &what) {
            world.tell(&what);
            self.said = what;
        }
    }
}

#[cfg(test)]
mod tests;
