//! Where programs come from: the rows of `scripts/programs`, which the install steps and the tests go by too.

/// The list itself; its head says what its columns are.
const LIST: &str = include_str!("../../../scripts/programs");

/// A program of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name; with a leading `/` a file.
    pub program: &'static str,
    /// The Debian package that has it; `rustup` or `image` for what no package has.
    pub package: &'static str,
    /// Who calls it, separated by commas.
    who: &'static str,
    /// What it is called for, in the words of the list's last column.
    pub purpose: &'static str,
}

impl Row {
    /// Whether the install step of this target of make brings it, for root or for others.
    pub fn is_for(&self, target: &str, root: bool) -> bool {
        let mut who = self.who.split(',');
        who.any(|one| one == target) && !(root && self.who.split(',').any(|one| one == "user"))
    }

    /// Whether scripts that Penstock runs on the machine call it by its name, so that it is looked for on `PATH`.
    pub fn is_of_scripts(&self) -> bool {
        self.is_for("script", false)
    }

    /// Whether `apt-get` can install it.
    pub fn is_packaged(&self) -> bool {
        !["rustup", "image"].contains(&self.package)
    }
}

/// All rows, in the list's order.
pub fn rows() -> impl Iterator<Item = Row> {
    LIST.lines().filter_map(row_of)
}

/// The row of a program.
pub fn row(program: &str) -> Option<Row> {
    rows().find(|row| row.program == program)
}

fn row_of(line: &'static str) -> Option<Row> {
    if line.starts_with('#') {
        return None;
    }
    let (program, rest) = line.trim().split_once(char::is_whitespace)?;
    let (package, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let (who, purpose) = rest.trim_start().split_once(char::is_whitespace)?;
    Some(Row { program, package, who, purpose: purpose.trim() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_row_and_no_program_has_two() {
        let written = LIST.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).count();
        let mut programs: Vec<&str> = rows().map(|row| row.program).collect();
        assert_eq!(programs.len(), written);
        programs.sort_unstable();
        let twice: Vec<_> = programs.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
        let targets = [
            "build",
            "docs",
            "test",
            "bench",
            "bench-switch",
            "recording",
            "fuzz",
            "sanitize",
            "packages",
            "packages-aarch64",
            "user",
            "place",
            "script",
            "other",
        ];
        for row in rows() {
            assert!(row.who.split(',').all(|who| targets.contains(&who)), "{row:?}");
            assert!(!row.purpose.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn what_only_users_need_is_not_for_root() {
        let row = row("newuidmap").unwrap();
        assert!(row.is_for("build", false) && !row.is_for("build", true) && !row.is_for("fuzz", false));
        assert!(row.is_packaged());
    }
}
