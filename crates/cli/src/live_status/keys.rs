//! Keys, from the bytes that a terminal sends for them (ECMA-48, 5.4; xterm's `ctlseqs`).

/// A key that means something on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// One screenful up.
    PageUp,
    /// One screenful down.
    PageDown,
    /// To the first line.
    Home,
    /// To the last line.
    End,
    /// Return.
    Enter,
    /// Escape, by itself.
    Escape,
    /// A control character, by its letter: `c` for Ctrl-C.
    Control(char),
    /// A printable ASCII character.
    Char(char),
}

/// The keys that were pressed. What is none is left out: sequences of other keys, pasted text beyond ASCII, answers of the terminal.
pub fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            0x1b => match rest.split_first() {
                Some((b'[' | b'O', sequence)) => {
                    let end = sequence.iter().position(|byte| matches!(byte, 0x40..=0x7e));
                    let Some(end) = end else { return all };
                    all.extend(named(&sequence[..end], sequence[end]));
                    rest = &sequence[end + 1..];
                }
                // Another key with Alt.
                Some((_, after)) => rest = after,
                None => all.push(Key::Escape),
            },
            b'\r' | b'\n' => all.push(Key::Enter),
            byte @ 0x01..=0x1a => all.push(Key::Control((byte - 1 + b'a').into())),
            byte @ 0x20..=0x7e => all.push(Key::Char((*byte).into())),
            _ => {}
        }
    }
    all
}

/// The key of a control sequence.
fn named(parameters: &[u8], last: u8) -> Option<Key> {
    match (parameters, last) {
        (b"", b'A') => Some(Key::Up),
        (b"", b'B') => Some(Key::Down),
        (b"" | b"1", b'H') | (b"1" | b"7", b'~') => Some(Key::Home),
        (b"" | b"1", b'F') | (b"4" | b"8", b'~') => Some(Key::End),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_terminals_send_is_read_and_the_rest_is_left_out() {
        let cases: [(&[u8], &[Key]); 10] = [
            (b"jk?", &[Key::Char('j'), Key::Char('k'), Key::Char('?')]),
            (b"\x1b[A\x1bOB", &[Key::Up, Key::Down]),
            (b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]),
            (b"\x1b[H\x1b[4~\x1bOF", &[Key::Home, Key::End, Key::End]),
            (b"\x1b", &[Key::Escape]),
            (b"\r\x03\x1a", &[Key::Enter, Key::Control('c'), Key::Control('z')]),
            (b"\x1b[1;5A\x1b[15~q", &[Key::Char('q')]),
            ("\u{e9}q".as_bytes(), &[Key::Char('q')]),
            (b"\x1bxq", &[Key::Char('q')]),
            (b"q\x1b[12", &[Key::Char('q')]),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(keys(bytes), wanted, "{bytes:?}");
        }
        for length in 0..3 {
            for byte in 0..=255 {
                keys(&vec![byte; length]);
                keys(&[0x1b, b'[', byte]);
            }
        }
    }
}
