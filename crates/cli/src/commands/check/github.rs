//! Annotations of a GitHub workflow: a command a line on standard output.
//!
//! Source: "Workflow commands for GitHub Actions", and `command.ts` of actions/toolkit for what is escaped how.

use super::{Checked, Checks};

/// A line for each message.
pub fn annotations(checks: &Checks) -> String {
    checks.files.iter().flat_map(of_file).collect()
}

fn of_file(checked: &Checked) -> Vec<String> {
    let mut lines = Vec::new();
    for found in &checked.diagnostics {
        let mut properties = format!("file={}", property(&found.file));
        if found.line > 0 {
            properties += &format!(",line={},endLine={}", found.line, found.end_line);
            // Columns of several lines are refused.
            if found.line == found.end_line {
                properties += &format!(",col={},endColumn={}", found.column, found.end_column);
            }
        }
        let text = match &found.help {
            Some(help) => format!("{}\nhelp: {help}", found.message),
            None => found.message.clone(),
        };
        properties += &format!(",title={}", property(&found.code));
        lines.push(format!("::{} {properties}::{}\n", found.severity, data(&text)));
    }
    for error in &checked.errors {
        let text: Vec<&str> =
            std::iter::once(&error.message).chain(&error.causes).map(String::as_str).collect();
        lines.push(format!("::error file={}::{}\n", property(&checked.file), data(&text.join(": "))));
    }
    lines
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_command_or_begin_another_is_escaped() {
        assert_eq!(data("50 %\r\n::error::x"), "50 %25%0D%0A::error::x");
        assert_eq!(property("a,line=1:b%"), "a%2Cline=1%3Ab%25");
    }
}
