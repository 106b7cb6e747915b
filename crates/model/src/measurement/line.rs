//! What all lines of `expect` have in common, whatever they are about: their length, their words, one comparison, factors.

use std::ops::Range;

use super::Relation;

/// A longer line is none.
const LONGEST: usize = 400;

/// Bytes of a line that cannot be read, and why.
pub(super) type Wrong = (Range<usize>, String);

/// A word and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl Word<'_> {
    pub fn range(&self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }
}

/// The words of a part of a line that begins at the byte `at`.
pub(super) fn words(text: &str, at: usize) -> Vec<Word<'_>> {
    let start = text.as_ptr() as usize;
    text.split_whitespace().map(|word| Word { text: word, at: at + word.as_ptr() as usize - start }).collect()
}

/// # Errors
/// When the line is too long.
pub(super) fn length(text: &str) -> Result<(), Wrong> {
    if text.len() > LONGEST {
        return Err((0..text.len(), format!("it is longer than {LONGEST} bytes")));
    }
    Ok(())
}

/// The one comparison of a line.
pub(super) struct Sign {
    pub text: &'static str,
    /// Its bytes.
    pub range: Range<usize>,
}

impl Sign {
    /// The first of these `signs` after the byte `from`, of two at one place the longer; `None` without any.
    ///
    /// # Errors
    /// When there is a second one.
    pub fn find(text: &str, from: usize, signs: &[&'static str]) -> Result<Option<Sign>, Wrong> {
        let found = signs.iter().filter_map(|sign| text[from..].find(sign).map(|at| (from + at, *sign)));
        let Some((at, sign)) = found.min_by_key(|(at, sign)| (*at, std::cmp::Reverse(sign.len()))) else {
            return Ok(None);
        };
        let end = at + sign.len();
        match text[end..].find(['<', '>', '=', '≥', '≤']) {
            None => Ok(Some(Sign { text: sign, range: at..end })),
            Some(second) => {
                let second = end + second;
                let length = text[second..].chars().next().map_or(0, char::len_utf8);
                let why = "there is a second comparison; one line makes one claim";
                Err((second..second + length, why.into()))
            }
        }
    }

    /// Which way it goes; `None` for `<` and `>`.
    pub fn relation(&self) -> Option<Relation> {
        match self.text {
            ">=" | "≥" => Some(Relation::AtLeast),
            "<=" | "≤" => Some(Relation::AtMost),
            _ => None,
        }
    }
}

/// A factor and the words after it: `0.8 x REST` or `0.8x REST`; `None` where the words begin otherwise. `like`: an example for
/// the message.
///
/// # Errors
/// When the number before the `x` is none above 0.
pub(super) fn factor<'a, 'b>(
    words: &'b [Word<'a>],
    like: &str,
) -> Result<Option<(f64, &'b [Word<'a>])>, Wrong> {
    let [first, rest @ ..] = words else { return Ok(None) };
    let (number, rest) = match rest {
        [second, rest @ ..] if ["x", "×", "*"].contains(&second.text) => (first.text, rest),
        _ => match first.text.strip_suffix(['x', '×', '*']) {
            Some(number) => (number, rest),
            None => return Ok(None),
        },
    };
    match number.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(Some((factor, rest))),
        _ => Err((first.range(), format!("{number:?} is no factor above 0, like {like}"))),
    }
}

/// The one of these words that was meant by this one.
pub(super) fn near(text: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    known
        .map(|word| (strsim::damerau_levenshtein(word, text), word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .min()
        .map(|(_, word)| word)
}
