//! Text from outside, made fit to be shown.

use std::borrow::Cow;

/// `text` without terminal escape sequences (ECMA-48, 5.4) and without control characters but newline and tab;
/// carriage returns at the end of lines go too.
pub fn printable(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| matches!(c, '\n' | '\t') || !is_hidden(c);
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.peek() {
                Some('[') => {
                    chars.next();
                    // Parameters and intermediates, then one final byte.
                    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                    chars.next_if(|c| matches!(c, '@'..='~'));
                }
                Some(']') => {
                    // An operating-system command: up to BEL or ST, never over the end of the line.
                    while chars.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}' | '\n')).is_some() {}
                    chars.next_if_eq(&'\u{7}');
                }
                // The two-character sequences, ST among them.
                Some('@'..='_') => {
                    chars.next();
                }
                _ => {}
            },
            '\n' | '\t' => shown.push(c),
            c if is_hidden(c) => {}
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// The same on one line: newlines and tabs become blanks.
pub fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// At most `most` characters of `text`; what is cut off is said with an ellipsis.
pub fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        let mut clipped: String = text.chars().take(most.saturating_sub(1)).collect();
        clipped.push('…');
        clipped
    }
}

/// Control characters, and those that turn the direction of the text around them (Unicode TR 36, 3.2).
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_control_characters_go() {
        assert_eq!(printable("\u{1b}[1;31mred\u{1b}[0m\r\nplain\tx\u{0}"), "red\nplain\tx");
        assert_eq!(printable("\u{1b}]0;title\u{7}after"), "after");
        assert_eq!(printable("\u{1b}]0;never ends\nafter"), "\nafter");
        assert_eq!(printable("a\u{202e}b"), "ab");
        assert_eq!(printable("\u{1b}"), "");
        assert_eq!(one_line("a\nb"), "a b");
    }

    #[test]
    fn clipping_counts_characters() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("äöüß", 3), "äö…");
    }
}
