//! Every operation of a guard fails once, for a while, for ever, or is slow, in every course that a run can take.

use super::*;

const OPERATIONS: [&str; 12] = [
    "decision",
    "ended",
    "lives",
    "told",
    "lock",
    "lock held",
    "hold_decision",
    "decide",
    "successors",
    "take_back",
    "catch_up",
    "confirm's record",
];

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Its n-th call.
    Once(u32),
    /// In the first 10 minutes.
    ForAWhile,
    Always,
    /// It takes 20 s each time.
    Slow,
}

/// What becomes of a run that is to be confirmed within 60 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It ends after 5 s, and nobody comes.
    NobodyConfirms,
    /// It is confirmed 30 s after that.
    Confirmed,
    /// Somebody tries to confirm each second from the moment on at which it is too late.
    TooLate,
    /// It is killed after 5 s.
    CutOff,
    /// It hangs after 5 s.
    Hangs,
}

struct World {
    course: Course,
    fault: (&'static str, Fault),
    calls: u32,
    clock: Duration,
    changed: bool,
    killed: bool,
    locked: bool,
    holds_decision: bool,
    decided: Option<Confirmation>,
    /// What `confirm` told whoever called it.
    was_told_that_it_stays: bool,
    attempts: u32,
    /// What later runs there are after the first attempt, one look after the other; the last stays.
    successors: Vec<Successors>,
    said: Vec<String>,
}

const ENDS: Duration = Duration::from_secs(5);
const TERMS: Confirm = Confirm { within: 60_000, at_most: 180_000 };

impl World {
    fn new(course: Course, operation: &'static str, fault: Fault) -> World {
        World {
            course,
            fault: (operation, fault),
            calls: 0,
            clock: Duration::ZERO,
            changed: true,
            killed: false,
            locked: false,
            holds_decision: false,
            decided: None,
            was_told_that_it_stays: false,
            attempts: 0,
            successors: vec![Successors::None],
            said: Vec::new(),
        }
    }

    fn fails(&mut self, operation: &str) -> Result<(), String> {
        // Somebody else's confirmation comes between any two operations.
        self.clock += Duration::from_millis(1);
        self.confirm();
        if operation != self.fault.0 {
            return Ok(());
        }
        self.calls += 1;
        let fails = match self.fault.1 {
            Fault::None => false,
            Fault::Once(n) => self.calls == n,
            Fault::ForAWhile => self.clock < Duration::from_secs(600),
            Fault::Always => true,
            Fault::Slow => {
                self.clock += Duration::from_secs(20);
                false
            }
        };
        if fails { Err("No space left on device (os error 28)".to_owned()) } else { Ok(()) }
    }

    /// What `penstock confirm` does.
    fn confirm(&mut self) {
        let at = match self.course {
            Course::Confirmed => ENDS + Duration::from_secs(30),
            Course::TooLate => ENDS + Duration::from_secs(60),
            _ => return,
        };
        let cannot_record = self.fault == ("confirm's record", Fault::Always);
        if self.clock >= at && !self.holds_decision && self.decided.is_none() && !cannot_record {
            self.decided = Some(Confirmation::Confirmed);
            self.was_told_that_it_stays = true;
        }
    }
}

impl Guarded for World {
    fn decision(&mut self) -> Result<Option<Confirmation>, String> {
        self.fails("decision").map(|()| self.decided)
    }
    fn ended(&mut self) -> Result<Option<RunEnd>, String> {
        self.fails("ended")?;
        let ends = !matches!(self.course, Course::CutOff | Course::Hangs);
        Ok((ends && self.clock >= ENDS).then_some(RunEnd::At(ENDS.as_millis() as u64)))
    }
    fn lives(&mut self) -> bool {
        let lives = !self.killed && (self.clock < ENDS || self.course == Course::Hangs);
        self.fails("lives").is_ok() && lives
    }
    fn activity(&mut self) -> Result<u64, String> {
        self.fails("told").map(|()| self.clock.min(ENDS).as_millis() as u64)
    }
    fn kill(&mut self) {
        self.killed = true;
    }
    fn lock(&mut self) -> Result<(), NoLock> {
        self.fails("lock").map_err(NoLock::Failed)?;
        self.fails("lock held").map_err(NoLock::Held)?;
        // The run itself has it until its end.
        let held = !self.killed && (self.clock < ENDS || self.course == Course::Hangs);
        if held {
            return Err(NoLock::Held("the run".to_owned()));
        }
        self.locked = true;
        Ok(())
    }
    fn unlock(&mut self) {
        self.locked = false;
    }
    fn hold_decision(&mut self) -> Result<(), NoLock> {
        self.fails("hold_decision").map_err(NoLock::Held)?;
        self.holds_decision = true;
        Ok(())
    }
    fn let_decide(&mut self) {
        self.holds_decision = false;
    }
    fn decide(&mut self, verdict: Confirmation) -> Result<Confirmation, String> {
        self.fails("decide")?;
        Ok(*self.decided.get_or_insert(verdict))
    }
    fn successors(&mut self) -> Result<Successors, String> {
        self.fails("successors")?;
        if self.attempts == 0 {
            return Ok(Successors::None);
        }
        Ok(if self.successors.len() > 1 { self.successors.remove(0) } else { self.successors[0] })
    }
    fn take_back(&mut self) -> Result<(), String> {
        self.attempts += 1;
        assert!(self.locked || self.fault.0 == "lock", "without the lock");
        self.fails("take_back")?;
        self.changed = false;
        Ok(())
    }
    fn catch_up(&mut self) -> Result<(), String> {
        if self.fault == ("catch_up", Fault::Always)
            && self.attempts > 0
            && self.clock > Duration::from_secs(7200)
        {
            return Ok(());
        }
        self.fails("catch_up")
    }
    fn now(&mut self) -> Duration {
        self.clock
    }
    fn sleep(&mut self, time: Duration) {
        self.clock += time;
        assert!(self.clock < Duration::from_secs(8000), "{:?} {:?}: it never ends", self.course, self.fault);
    }
    fn tell(&mut self, what: &str) {
        self.said.push(what.to_owned());
    }
}

fn watch(course: Course, operation: &'static str, fault: Fault) -> (Ended, World) {
    watched(World::new(course, operation, fault))
}

fn watched(mut world: World) -> (Ended, World) {
    let ended = guard(&mut world, TERMS);
    (ended, world)
}

const COURSES: [Course; 5] =
    [Course::NobodyConfirms, Course::Confirmed, Course::TooLate, Course::CutOff, Course::Hangs];

#[test]
fn whatever_fails_the_machine_is_as_before_or_confirmed() {
    let faults =
        (1..=120).map(Fault::Once).chain([Fault::None, Fault::ForAWhile, Fault::Always, Fault::Slow]);
    let mut tried = 0;
    for fault in faults {
        for operation in OPERATIONS {
            // What always fails here can be done by nobody.
            if fault == Fault::Always && ["take_back", "lock held"].contains(&operation) {
                continue;
            }
            for course in COURSES {
                let (ended, world) = watch(course, operation, fault);
                let what = format!("{course:?}, {operation}: {fault:?}: {ended:?}, {:?}", world.said);
                tried += 1;
                assert_eq!(world.changed, ended == Ended::Confirmed, "{what}");
                assert!(!world.locked, "{what}");
                if ended == Ended::Confirmed {
                    assert_eq!(world.decided, Some(Confirmation::Confirmed), "{what}");
                    assert!(matches!(course, Course::Confirmed | Course::TooLate), "{what}");
                }
                if matches!(course, Course::NobodyConfirms | Course::CutOff | Course::Hangs) {
                    assert_eq!(ended, Ended::TakenBack, "{what}");
                }
                // Nobody is told that a run stays which does not, but where confirmations can be read or kept off by nobody.
                if !["decision", "hold_decision"].contains(&operation) && world.was_told_that_it_stays {
                    assert_eq!(ended, Ended::Confirmed, "{what}");
                }
                // One that was confirmed in time stays.
                let readable = !(operation == "decision" && fault == Fault::Always);
                if course == Course::Confirmed
                    && readable
                    && operation != "confirm's record"
                    && operation != "lives"
                {
                    assert_eq!(ended, Ended::Confirmed, "{what}");
                }
            }
        }
    }
    assert!(tried > 7000, "{tried}");
}

#[test]
fn what_cannot_be_taken_back_now_is_tried_until_it_can() {
    let (ended, world) = watch(Course::NobodyConfirms, "take_back", Fault::ForAWhile);
    assert_eq!((ended, world.changed), (Ended::TakenBack, false));
    assert!(world.attempts > 5 && world.attempts < 30, "{}", world.attempts);
    assert_eq!(world.said.len(), 1, "the same is said once: {:?}", world.said);
}

#[test]
fn while_somebody_else_changes_the_machine_it_is_waited_for_and_told() {
    let (ended, world) = watch(Course::NobodyConfirms, "lock held", Fault::ForAWhile);
    assert_eq!(ended, Ended::TakenBack);
    assert!(
        world.clock > Duration::from_secs(600) && world.said[0].contains("as soon as nobody else changes")
    );
}

#[test]
fn a_run_that_goes_on_is_not_taken_for_one_that_hangs() {
    let (ended, world) = watch(Course::Hangs, "", Fault::None);
    assert_eq!((ended, world.killed), (Ended::TakenBack, true));
    assert!(world.clock >= Duration::from_secs(185), "{:?}", world.clock);
    assert!(!watch(Course::NobodyConfirms, "lives", Fault::Once(3)).1.killed);
}

#[test]
fn a_later_run_that_goes_on_from_what_is_left_ends_the_guard_and_is_told() {
    let successors = vec![Successors::Stand];
    let world = World { successors, ..World::new(Course::NobodyConfirms, "take_back", Fault::Always) };
    let (ended, world) = watched(world);
    assert_eq!((ended, world.changed, world.locked, world.attempts), (Ended::BuiltUpon, true, false, 1));
    let told = world.said.last().unwrap();
    assert!(
        told.contains("a later run goes on from what is left; `penstock undo` takes both back"),
        "{told}"
    );
}

#[test]
fn a_later_run_that_waits_to_be_confirmed_is_waited_for() {
    for (then, ended) in [(Successors::None, Ended::TakenBack), (Successors::Stand, Ended::BuiltUpon)] {
        let successors = vec![Successors::Undecided, Successors::Undecided, Successors::Undecided, then];
        let world = World { successors, ..World::new(Course::NobodyConfirms, "take_back", Fault::Once(1)) };
        let (came, world) = watched(world);
        assert_eq!(came, ended);
        assert_eq!(
            world.attempts,
            if ended == Ended::TakenBack { 2 } else { 1 },
            "nothing is taken from below it"
        );
        assert!(world.said.iter().any(|said| said.contains("waits to be confirmed")), "{:?}", world.said);
    }
}
