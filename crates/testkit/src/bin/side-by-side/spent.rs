//! What programs took, as a table at the end of a run.

use std::fmt;

/// What one program took.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramUsage {
    /// As cargo names it.
    pub name: String,
    /// Seconds by the clock.
    pub elapsed: f64,
    /// Seconds of processor time, of the program and of everything that it started; `None` where it was ended by force.
    pub processors: Option<f64>,
}

impl fmt::Display for ProgramUsage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.1} s", self.elapsed)?;
        match self.processors {
            Some(processors) => write!(formatter, ", {processors:.1} s of processor time"),
            None => write!(formatter, ", and nobody knows how much processor time"),
        }
    }
}

/// Programs that took less are one row of the table.
const WORTH_A_ROW: f64 = 5.0;

/// What all programs took.
#[derive(Default)]
pub struct Spent(Vec<ProgramUsage>);

impl Spent {
    /// Adds a program that has ended.
    pub fn add(&mut self, taken: ProgramUsage) {
        self.0.push(taken);
    }

    /// Prints the table, the program that took most first.
    pub fn tell(&self) {
        self.rows().iter().for_each(|row| println!("{row}"));
    }

    fn rows(&self) -> Vec<String> {
        let processors = |taken: &ProgramUsage| taken.processors.unwrap_or(0.0);
        let mut sorted: Vec<&ProgramUsage> = self.0.iter().collect();
        sorted.sort_by(|one, other| processors(other).total_cmp(&processors(one)));
        let row = |seconds: Option<f64>, elapsed: f64, name: &str| {
            let seconds = seconds.map_or("?".to_owned(), |seconds| format!("{seconds:.1}"));
            format!("{seconds:>10} {elapsed:>9.1}  {name}")
        };
        // One of which nobody knows is told, whatever it took.
        let (large, small): (Vec<&ProgramUsage>, Vec<&ProgramUsage>) =
            sorted.iter().partition(|taken| taken.processors.is_none_or(|seconds| seconds >= WORTH_A_ROW));
        let sum = |all: &[&ProgramUsage]| -> (f64, f64) {
            all.iter().fold((0.0, 0.0), |sum, taken| (sum.0 + processors(taken), sum.1 + taken.elapsed))
        };
        let mut rows =
            vec![format!("\n{:>10} {:>9}", "processors", "clock"), format!("{:>10} {:>9}", "s", "s")];
        rows.extend(large.iter().map(|taken| row(taken.processors, taken.elapsed, &taken.name)));
        let (others, everything) = (sum(&small), sum(&sorted));
        rows.push(row(
            Some(others.0),
            others.1,
            &format!("{} others, of less than {WORTH_A_ROW} s", small.len()),
        ));
        rows.push(row(Some(everything.0), everything.1, "all programs"));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_that_took_most_comes_first_and_small_ones_are_one_row() {
        let taken =
            |name: &str, elapsed, processors| ProgramUsage { name: name.to_owned(), elapsed, processors };
        let mut spent = Spent::default();
        for one in [
            taken("killed", 1800.0, None),
            taken("golden", 1.5, Some(0.5)),
            taken("boards", 60.0, Some(80.25)),
            taken("files", 2.0, Some(1.0)),
            taken("rollout", 50.0, Some(7.0)),
        ] {
            spent.add(one);
        }
        let rows: Vec<String> =
            spent.rows().iter().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            rows,
            [
                "processors clock",
                "s s",
                "80.2 60.0 boards",
                "7.0 50.0 rollout",
                "? 1800.0 killed",
                "1.5 3.5 2 others, of less than 5 s",
                "88.8 1913.5 all programs",
            ]
        );
        assert_eq!(spent.0[2].to_string(), "60.0 s, 80.2 s of processor time");
    }
}
