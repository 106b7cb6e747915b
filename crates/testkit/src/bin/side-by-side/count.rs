//! What test programs say of their tests, added up.

use std::collections::BTreeMap;

use penstock_testkit::{
    skip::{PART, WHOLE},
    trials::SKIPPED,
};

use crate::BEGIN_UNTIL;

/// How many tests there were, and which were skipped.
#[derive(Default)]
pub struct Count {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were not run, and programs that were not begun.
    pub ignored: u64,
    /// By the reason: the tests, each with its program.
    pub skipped: BTreeMap<String, Vec<String>>,
}

impl Count {
    /// Adds what a program says, at its end and of tests that it skips.
    pub fn add(&mut self, program: &str, output: &str) {
        for (test, why) in output.lines().filter_map(skipped) {
            self.skipped.entry(why.to_owned()).or_default().push(format!("{program} {test}"));
        }
        self.add_results(output);
        // The built-in harness has counted them as passed.
        let whole = output.lines().filter(|line| line.starts_with(WHOLE)).count() as u64;
        self.passed = self.passed.saturating_sub(whole);
        self.ignored += whole;
    }

    /// Adds programs that were not begun.
    pub fn no_time_for(&mut self, programs: impl Iterator<Item = String>) {
        let why = format!("there was no time for all of it ({BEGIN_UNTIL})");
        for program in programs {
            self.skipped.entry(why.clone()).or_default().push(program);
            self.ignored += 1;
        }
    }

    /// Adds up the lines with which the tests of a program end.
    fn add_results(&mut self, output: &str) {
        for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            let number = |of: &str| -> u64 {
                let found = line.split([';', '.']).find_map(|part| part.trim().strip_suffix(of));
                found.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
            };
            self.passed += number("passed");
            self.failed += number("failed");
            self.ignored += number("ignored");
        }
    }
}

/// The test that a line of a program's output calls skipped, and why.
fn skipped(line: &str) -> Option<(&str, &str)> {
    let told = [SKIPPED, WHOLE, PART].iter().find_map(|start| line.strip_prefix(start));
    if let Some(told) = told {
        return told.split_once(": ");
    }
    // The built-in harness: "test NAME ... ignored, WHY".
    line.strip_prefix("test ")?.split_once(" ... ignored, ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_were_not_begun_are_named_and_counted() {
        let mut count = Count::default();
        count.no_time_for(std::iter::empty());
        assert_eq!((count.ignored, count.skipped.len()), (0, 0));
        count.no_time_for(["-p x --test y_in_board".to_owned()].into_iter());
        assert_eq!((count.ignored, count.skipped.len()), (1, 1));
    }

    #[test]
    fn skipped_tests_are_named_with_the_reason() {
        let mut count = Count::default();
        let output = "skipped a_bond: bonds cannot be tested here: this kernel has none\n\
                      skipped b: bonds cannot be tested here: this kernel has none\n\
                      test slow ... ignored, it is to be run under callgrind\ntest fine ... ok\ntest bare ... ignored\n\
                      test result: ok. 3 passed; 0 failed; 4 ignored; 0 measured; 0 filtered out\n";
        count.add("-p x --test y", output);
        assert_eq!((count.passed, count.ignored), (3, 4));
        let reasons: Vec<(&str, usize)> =
            count.skipped.iter().map(|(why, tests)| (why.as_str(), tests.len())).collect();
        let bonds = "bonds cannot be tested here: this kernel has none";
        assert_eq!(reasons, [(bonds, 2), ("it is to be run under callgrind", 1)]);
        assert_eq!(count.skipped[bonds][0], "-p x --test y a_bond");
    }

    #[test]
    fn a_test_that_finds_out_late_that_it_cannot_run_has_not_passed() {
        let mut count = Count::default();
        // With one thread the harness has begun a line by then.
        let output = "test server::a ... \ncould not run server::a: no userfaultfd\nok\nleft out of kept::b: needs root\n\
                      test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        count.add("-p x --lib", output);
        assert_eq!((count.passed, count.ignored), (2, 1));
        assert_eq!(count.skipped["no userfaultfd"], ["-p x --lib server::a"]);
        assert_eq!(count.skipped["needs root"], ["-p x --lib kept::b"]);
    }
}
