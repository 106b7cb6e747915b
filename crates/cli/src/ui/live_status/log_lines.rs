//! The last lines of a log that grows, each with a number that it keeps. Pure.

/// The last lines, as they were seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLines {
    /// The number of the first of them.
    first: u64,
    lines: Vec<String>,
}

impl LogLines {
    /// Takes in the lines that are the last now. Those that were seen before keep their numbers. The last may have grown meanwhile; where a
    /// line before it, or the beginning, tells which it is, it may have been written over as well.
    pub fn take(&mut self, fresh: Vec<String>) {
        let whole = self.lines.split_last().map_or(&[][..], |(_, whole)| whole);
        let goes_on = |gone: usize, loosely: bool| {
            let kept = whole.get(gone..).unwrap_or_default();
            let last = self.lines.last().zip(fresh.get(kept.len()));
            let is_last = last.is_some_and(|(before, now)| now.starts_with(before.as_str()));
            let may_be = loosely && last.is_some() && (gone == 0 || !kept.is_empty());
            fresh.starts_with(kept) && (is_last || may_be)
        };
        let count = self.lines.len();
        let exactly = (0..count).find(|gone| goes_on(*gone, false));
        let gone = exactly.or_else(|| (0..count).find(|gone| goes_on(*gone, true))).unwrap_or(count);
        self.first += gone as u64;
        self.lines = fresh;
    }

    /// Each with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, &str)> {
        (self.first..).zip(self.lines.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(log: &mut LogLines, lines: &[&str]) -> Vec<(u64, String)> {
        log.take(lines.iter().map(|line| (*line).to_owned()).collect());
        log.numbered().map(|(number, line)| (number, line.to_owned())).collect()
    }

    fn numbers(from: u64, lines: &[&str]) -> Vec<(u64, String)> {
        (from..).zip(lines.iter().map(|line| (*line).to_owned())).collect()
    }

    #[test]
    fn of_lines_that_are_alike_the_new_one_is_told() {
        let mut log = LogLines::default();
        taken(&mut log, &["r", "r", "r"]);
        assert_eq!(taken(&mut log, &["r", "r", "ok"]), numbers(1, &["r", "r", "ok"]));
    }

    #[test]
    fn a_line_keeps_its_number_as_the_log_grows() {
        let mut log = LogLines::default();
        assert_eq!(taken(&mut log, &[]), []);
        assert_eq!(taken(&mut log, &["a", "b", "log"]), numbers(0, &["a", "b", "log"]));
        assert_eq!(taken(&mut log, &["a", "b", "log"]), numbers(0, &["a", "b", "log"]));
        let grown = ["b", "login: mara", "c"];
        assert_eq!(taken(&mut log, &grown), numbers(1, &grown), "the last line was not whole");
        assert_eq!(taken(&mut log, &["c", "d", "e"]), numbers(3, &["c", "d", "e"]));
        assert_eq!(taken(&mut log, &["x", "y"]), numbers(6, &["x", "y"]), "it was missed what stood between");
    }

    #[test]
    fn a_last_line_that_is_written_over_stays_the_same_one() {
        let mut log = LogLines::default();
        assert_eq!(taken(&mut log, &["9 %"]), numbers(0, &["9 %"]));
        assert_eq!(taken(&mut log, &["10 %"]), numbers(0, &["10 %"]));
        assert_eq!(taken(&mut log, &["done", "1 %"]), numbers(0, &["done", "1 %"]));
        assert_eq!(taken(&mut log, &["done", "2 %"]), numbers(0, &["done", "2 %"]));
        let next = ["done", "as well", "c"];
        assert_eq!(taken(&mut log, &next), numbers(0, &next));
    }
}
