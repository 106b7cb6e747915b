//! Tests that say what they need: those that cannot run on a machine are ignored, and why is on standard error, a line for each. Where
//! the install step has run, a program that is lacking is no reason: such a test fails.

use std::{
    error::Error,
    process::ExitCode,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Trial};
use penstock_host::chain;

use crate::needs::{self, Lack};

/// What stands before the name of a test that is ignored and the reason, on a line of standard error.
pub const SKIPPED: &str = "skipped ";

/// A test that takes longer says how long.
const WORTH_TELLING: Duration = Duration::from_secs(5);

/// Why a test failed; it is told with its causes.
pub type Failed = Box<dyn Error + Send + Sync>;

/// How a test ends that can fail without a panic.
pub type Outcome = Result<(), Failed>;

/// A test that can fail without a panic.
pub type Test = fn() -> Outcome;

/// What a test gives back.
pub trait Ending {
    /// Whether it passed.
    ///
    /// # Errors
    ///
    /// What went wrong, for a test that ended with an error.
    fn outcome(self) -> Outcome;
}

impl Ending for () {
    fn outcome(self) -> Outcome {
        Ok(())
    }
}

impl Ending for Outcome {
    fn outcome(self) -> Outcome {
        self
    }
}

/// Runs the tests of a program that all need a board, or says why they cannot run here.
pub fn on_boards(tests: &[(&'static str, Test)]) -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("boards", needs::board);
    trials.add(&missing, tests.iter().copied());
    trials.run()
}

/// The tests of one program, for a `[[test]]` with `harness = false`.
pub struct Trials {
    arguments: Arguments,
    trials: Vec<Trial>,
}

impl Trials {
    /// None yet; the arguments are those of the program.
    pub fn from_arguments() -> Trials {
        Trials { arguments: Arguments::from_args(), trials: Vec::new() }
    }

    /// Runs one test after the other.
    pub fn one_at_a_time(&mut self) {
        self.arguments.test_threads = Some(1);
    }

    /// Runs this many tests side by side, unless the user says how many: for tests that wait more than they work.
    pub fn side_by_side(&mut self, tests: usize) {
        self.arguments.test_threads.get_or_insert(tests);
    }

    /// Why tests of `what` cannot run here, if so. `None` when they are only listed: then nothing is looked at.
    pub fn lacking<L: Into<Lack>>(&self, what: &str, look: impl FnOnce() -> Option<L>) -> Option<Lack> {
        let why = if self.arguments.list { None } else { look().map(Into::into) };
        why.map(|lack| match lack {
            Lack::Installable(why) => Lack::Installable(format!("{what} cannot be tested here: {why}")),
            Lack::Machine(why) => Lack::Machine(format!("{what} cannot be tested here: {why}")),
        })
    }

    /// Whether the tests are run, not only listed.
    pub fn run_at_all(&self) -> bool {
        !self.arguments.list
    }

    /// Adds tests. When something is `lacking` they are ignored, and each is named with the reason; where the install step should have
    /// brought it, they fail.
    pub fn add<E: Ending, T: FnOnce() -> E + Send + 'static>(
        &mut self,
        lacking: &Option<Lack>,
        tests: impl IntoIterator<Item = (&'static str, T)>,
    ) {
        let trials = tests.into_iter().map(|(name, test)| match lacking.clone() {
            Some(lack) if lack.fails() => {
                let why = format!("{lack}, although the install step has run");
                Trial::test(name, move || Err(why.into()))
            }
            Some(lack) => {
                eprintln!("{SKIPPED}{name}: {lack}");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
            None => Trial::test(name, move || {
                let began = Instant::now();
                let outcome = test().outcome().map_err(|why| chain(&*why).into());
                let took = began.elapsed();
                if took > WORTH_TELLING {
                    eprintln!("{name} took {:.1} s", took.as_secs_f64());
                }
                outcome
            }),
        });
        self.trials.extend(trials);
    }

    /// Runs them, and says how that ended.
    pub fn run(self) -> ExitCode {
        libtest_mimic::run(&self.arguments, self.trials).exit_code()
    }
}
