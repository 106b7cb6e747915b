//! Why a program failed, for the end of a run: what it said stands far above, and a report of a run may show the end alone.

use std::fmt;

/// How many lines of what a program said are repeated.
const LINES: usize = 40;

/// How much of a line is, in characters.
const LINE: usize = 300;

/// What stands before the failures of a program of libtest or libtest-mimic.
const FAILURES: &str = "\nfailures:\n";

/// A program that failed.
pub struct Failure {
    /// As cargo names it.
    name: String,
    why: String,
}

impl Failure {
    /// Of all that the program said: the beginning of what it says of its failures, or its end where it says nothing of any.
    pub fn new(name: String, said: &str) -> Failure {
        let lines: Vec<&str> = match said.split_once(FAILURES) {
            Some((_, failures)) => {
                failures.lines().filter(|line| !line.trim().is_empty()).take(LINES).collect()
            }
            None => {
                let all: Vec<&str> = said.lines().collect();
                all[all.len().saturating_sub(LINES)..].to_vec()
            }
        };
        let why = lines.iter().map(|line| line.chars().take(LINE).collect::<String>()).collect::<Vec<_>>();
        Failure { name, why: why.join("\n") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    `{}`", self.name)?;
        self.why.lines().try_for_each(|line| write!(f, "\n        {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_the_failures_is_repeated() {
        let long = "x".repeat(LINE + 1);
        let many = "more\n".repeat(LINES);
        let said = format!(
            "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b ----\n{long}\n{many}\nfailures:\n    b\n"
        );
        let shown = Failure::new("-p one --lib".to_owned(), &said).to_string();
        assert!(shown.starts_with("    `-p one --lib`\n        ---- b ----\n        x"), "{shown}");
        assert_eq!(shown.lines().count(), LINES + 1);
        assert!(!shown.contains(&long), "{shown}");
    }

    #[test]
    fn the_end_of_what_was_said_is_repeated_where_nothing_is_said_of_failures() {
        let said = format!("begin\n{}killed", "more\n".repeat(LINES));
        let shown = Failure::new("b".to_owned(), &said).to_string();
        assert!(!shown.contains("begin") && shown.ends_with("\n        killed"), "{shown}");
        assert_eq!(Failure::new("b".to_owned(), "").to_string(), "    `b`");
    }
}
