//! A recorded session in a terminal (`make recording`), and what is made of it for readers.
//!
//! - [`Recording`] reads the file, an [asciicast of version 2](https://docs.asciinema.org/manual/asciicast/v2/).
//! - [`timeline`] says which text stands where in the terminal, and from when until when.
//! - [`picture`] draws that as an animated SVG, which code hosts show too. [`player`] is the page of the site around it, where it can be paused.

pub mod picture;
pub mod player;
pub mod timeline;

use avt::Terminal;
use serde::Deserialize;

/// What a command stands behind in a recorded session.
const PROMPT: &str = "$ ";

/// What programs that fill the whole screen begin with.
const ALTERNATE: [&str; 3] = ["\x1b[?1049h", "\x1b[?1047h", "\x1b[?47h"];

/// A session in a terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// How many columns the terminal has.
    pub columns: usize,
    /// How many lines it shows at a time.
    pub rows: usize,
    /// What was written to it, in its order.
    pub outputs: Vec<TerminalOutput>,
}

/// Something that was written to the terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct TerminalOutput {
    /// Seconds from the beginning of the session.
    pub at: f64,
    /// The text, with its escape sequences.
    pub text: String,
}

/// Why a file is no recording that can be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// A line is no JSON of the kind that stands there in an asciicast of version 2.
    #[error("line {line} is not as an asciicast of version 2 has it: {why}")]
    Format {
        /// From 1.
        line: usize,
        /// What was expected there.
        why: String,
    },
    /// The terminal shows something that the picture has no way to draw.
    #[error(
        "at {at} s the terminal shows `{text}` {how}, which `crates/docs/src/recording` does not draw: add it there"
    )]
    Style {
        /// When, in seconds.
        at: String,
        /// What is shown so.
        text: String,
        /// How it is shown.
        how: &'static str,
    },
}

#[derive(Deserialize)]
struct Header {
    version: u8,
    width: usize,
    height: usize,
}

impl Recording {
    /// Reads the text of an asciicast.
    ///
    /// # Errors
    ///
    /// [`RecordingError::Format`] when it is none of version 2, has no size or changes it, changes to the terminal's other screen, or time
    /// runs backwards in it.
    pub fn read(text: &str) -> Result<Recording, RecordingError> {
        let wrong = |line: usize, why: String| RecordingError::Format { line, why };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let (_, first) = lines.next().ok_or_else(|| wrong(1, "the file is empty".to_owned()))?;
        let header: Header = serde_json::from_str(first).map_err(|error| wrong(1, error.to_string()))?;
        if header.version != 2 {
            return Err(wrong(1, format!("its version is {}", header.version)));
        }
        if header.width == 0 || header.height == 0 {
            return Err(wrong(
                1,
                format!("a terminal of {} by {} shows nothing", header.width, header.height),
            ));
        }
        let mut outputs: Vec<TerminalOutput> = Vec::new();
        for (line, text) in lines {
            let (at, kind, text): (f64, String, String) =
                serde_json::from_str(text).map_err(|error| wrong(line, error.to_string()))?;
            let before = outputs.last().map_or(0.0, |output| output.at);
            if !at.is_finite() || at < before {
                return Err(wrong(line, format!("{at} s comes after {before} s")));
            }
            match kind.as_str() {
                "o" if ALTERNATE.iter().any(|begin| text.contains(begin)) => {
                    let why = "it changes to the terminal's other screen, which is not drawn";
                    return Err(wrong(line, why.to_owned()));
                }
                "o" => outputs.push(TerminalOutput { at, text }),
                // What is typed, and marks, change nothing that is seen.
                "i" | "m" => {}
                "r" => {
                    return Err(wrong(
                        line,
                        format!(
                            "the terminal changes its size to {text}: record it in one that keeps its size"
                        ),
                    ));
                }
                _ => return Err(wrong(line, format!("an event of the kind `{kind}` is none that is known"))),
            }
        }
        Ok(Recording { columns: header.width, rows: header.height, outputs })
    }

    /// The terminal before anything is written to it; it forgets no line.
    fn terminal(&self) -> Option<Terminal> {
        Terminal::with_scrollback(self.columns, self.rows, None).ok()
    }

    /// All that stands in the terminal in the end, as text. A line that the terminal broke is one line; not so where it was filled up with
    /// blanks, as progress bars do with what they print above themselves.
    pub fn transcript(&self) -> String {
        let Some(mut terminal) = self.terminal() else { return String::new() };
        for output in &self.outputs {
            terminal.feed(output.text.as_str());
        }
        let mut text = String::new();
        for line in terminal.primary_screen().all_lines() {
            let row = line.text();
            if line.is_wrapped() && !row.ends_with("  ") {
                text += &row;
            } else {
                text += row.trim_end();
                text.push('\n');
            }
        }
        format!("{}\n", text.trim_end())
    }

    /// The commands that were typed, remarks left out.
    pub fn commands(&self) -> Vec<String> {
        let transcript = self.transcript();
        let typed = transcript.lines().filter_map(|line| line.strip_prefix(PROMPT));
        typed.filter(|command| !command.starts_with('#')).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Recording, RecordingError};

    fn read(text: &str) -> Result<Recording, RecordingError> {
        Recording::read(text)
    }

    #[test]
    fn the_transcript_is_what_stands_there_in_the_end() {
        let text = "{\"version\": 2, \"width\": 12, \"height\": 2}\n\
                    [0.1, \"o\", \"$ # why\\r\\n$ run\\r\\n1 of 2\"]\n[0.2, \"i\", \"x\"]\n\
                    [0.3, \"o\", \"\\r\\u001b[2K2 of 2\\r\\na line of more than twelve\\r\\n\"]\n";
        let recording = read(text).unwrap();
        assert_eq!(recording.transcript(), "$ # why\n$ run\n2 of 2\na line of more than twelve\n");
        assert_eq!(recording.commands(), ["run"]);
        assert_eq!(recording.outputs.len(), 2);
    }

    #[test]
    fn a_line_that_is_filled_up_with_blanks_ends_there() {
        let text =
            "{\"version\": 2, \"width\": 8, \"height\": 4}\n[0.1, \"o\", \"warning     done\\r\\nnext\"]\n";
        let filled = read(&text.replace("warning     ", "warned  ")).unwrap();
        assert_eq!(filled.transcript(), "warned\ndone\nnext\n");
        assert_eq!(read(text).unwrap().transcript(), "warning     done\nnext\n");
    }

    #[test]
    fn what_is_no_recording_is_told_with_its_line() {
        let header = "{\"version\": 2, \"width\": 80, \"height\": 24}\n";
        let told = |text: &str| read(text).unwrap_err().to_string();
        let begin = "is not as an asciicast of version 2 has it: ";
        assert_eq!(told(""), format!("line 1 {begin}the file is empty"));
        assert_eq!(
            told("{\"version\": 3, \"width\": 80, \"height\": 24}"),
            format!("line 1 {begin}its version is 3")
        );
        assert_eq!(
            told("{\"version\": 2, \"width\": 0, \"height\": 24}"),
            format!("line 1 {begin}a terminal of 0 by 24 shows nothing")
        );
        assert_eq!(
            told(&format!("{header}[2.0, \"o\", \"\"]\n[1.5, \"o\", \"\"]")),
            format!("line 3 {begin}1.5 s comes after 2 s")
        );
        assert!(told(&format!("{header}[1, 2]")).starts_with(&format!("line 2 {begin}")));
        assert_eq!(
            told(&format!("{header}[1.0, \"m\", \"\"]\n[1.5, \"r\", \"100x40\"]")),
            format!(
                "line 3 {begin}the terminal changes its size to 100x40: record it in one that keeps its size"
            )
        );
        assert_eq!(
            told(&format!("{header}[1.0, \"x\", \"0\"]")),
            format!("line 2 {begin}an event of the kind `x` is none that is known")
        );
        assert_eq!(
            told(&format!("{header}[1.0, \"o\", \"\\u001b[?1049hx\"]")),
            format!("line 2 {begin}it changes to the terminal's other screen, which is not drawn")
        );
    }
}
