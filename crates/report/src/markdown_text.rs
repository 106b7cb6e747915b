//! Text from outside as Markdown shows it.

use crate::printable::one_line;

/// Text on one line that Markdown shows as it is: every character that could mean something is escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '&' => shown.push_str("&amp;"),
            // `#` and `-` mean something only at the start of a line, where text from outside never stands.
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '!' | '~' | '$' => {
                shown.push('\\');
                shown.push(c);
            }
            c => shown.push(c),
        }
    }
    shown
}
