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

/// No control sequence that a terminal sends is longer.
const LONGEST: usize = 32;

/// Reads keys. A sequence whose end has not come is kept until it comes.
#[derive(Debug, Default)]
pub struct KeyReader {
    unfinished: Vec<u8>,
}

impl KeyReader {
    /// The keys that were pressed; with `more` the next bytes are there already, so that an Escape at the end may begin a sequence. What
    /// is no key is left out: sequences of other keys, pasted text beyond ASCII, answers of the terminal.
    pub fn keys(&mut self, bytes: &[u8], more: bool) -> Vec<Key> {
        let mut all = Vec::new();
        let bytes = [std::mem::take(&mut self.unfinished).as_slice(), bytes].concat();
        let mut rest = bytes.as_slice();
        while let Some((first, after)) = rest.split_first() {
            let whole = rest;
            rest = after;
            match first {
                0x1b => match rest.split_first() {
                    Some((b'[' | b'O', sequence)) => {
                        let end = sequence.iter().take(LONGEST).position(|byte| matches!(byte, 0x40..=0x7e));
                        match end {
                            Some(end) => {
                                all.extend(named(&sequence[..end], sequence[end]));
                                rest = &sequence[end + 1..];
                            }
                            None if sequence.len() < LONGEST => {
                                self.unfinished = whole.to_vec();
                                return all;
                            }
                            None => rest = sequence,
                        }
                    }
                    // Another key with Alt.
                    Some((_, after)) => rest = after,
                    None if more => self.unfinished = whole.to_vec(),
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

    /// What was pressed that no more bytes have come after: an Escape; of a sequence that has no end, nothing.
    pub fn rest(&mut self) -> Vec<Key> {
        match std::mem::take(&mut self.unfinished).as_slice() {
            [0x1b] => vec![Key::Escape],
            _ => Vec::new(),
        }
    }
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
            assert_eq!(KeyReader::default().keys(bytes, false), wanted, "{bytes:?}");
        }
        for length in 0..3 {
            for byte in 0..=255 {
                KeyReader::default().keys(&vec![byte; length], false);
                KeyReader::default().keys(&[0x1b, b'[', byte], false);
            }
        }
    }

    #[test]
    fn a_backlog_of_arrows_is_arrows_wherever_it_is_cut() {
        let typed = b"\x1b[A".repeat(200);
        for size in 1..typed.len() {
            let mut reader = KeyReader::default();
            let mut all = Vec::new();
            for part in typed.chunks(size) {
                all.extend(reader.keys(part, part.len() == size));
            }
            all.extend(reader.rest());
            assert_eq!(all, [Key::Up; 200], "in parts of {size}");
        }
        let mut reader = KeyReader::default();
        assert_eq!(reader.keys(b"k\x1b", true), [Key::Char('k')]);
        assert_eq!(reader.rest(), [Key::Escape], "nothing has come after it");
        assert_eq!(reader.keys(b"\x1b[1", false), []);
        assert_eq!(reader.rest(), []);
        assert_eq!(reader.keys(b"q", false), [Key::Char('q')]);
        let endless = [b"\x1b[".as_slice(), &[b'1'; 1000]].concat();
        assert!(reader.keys(&endless, true).len() >= 900 && reader.rest().is_empty());
    }
}
