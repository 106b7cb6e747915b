//! Where a part of a value stands in the file: quotes and escapes are in the file and not in the value.

use std::ops::Range;

/// The bytes of `raw`, a scalar as the file has it, that the bytes `part` of its value come from. `None` when `raw` is
/// not plainly `value`: a block, an alias, several lines.
pub(super) fn part(raw: &str, value: &str, part: &Range<usize>) -> Option<Range<usize>> {
    let places = places(raw, value)?;
    let start = *places.get(part.start)?;
    let end = match part.end {
        end if end <= part.start => start,
        end if end < value.len() => *places.get(end)?,
        // Not to the closing quote.
        _ => *places.last()?,
    };
    Some(start..end)
}

/// The part of `span` that ends with the closing quote of the scalar that begins there, after an anchor and a tag.
pub(super) fn quoted(text: &str, span: Range<usize>) -> Range<usize> {
    let raw = &text[span.clone()];
    let Some((open, quote)) = raw.char_indices().find(|(_, c)| matches!(c, '"' | '\'')) else { return span };
    let mut rest = raw[open + 1..].char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match c {
            '\\' if quote == '"' => drop(rest.next()),
            '\'' if quote == '\'' && rest.next_if(|(_, next)| *next == '\'').is_some() => {}
            c if c == quote => return span.start..span.start + open + 1 + at + 1,
            _ => {}
        }
    }
    span
}

/// For each byte of `value` and for its end the byte of `raw` that it comes from.
fn places(raw: &str, value: &str) -> Option<Vec<usize>> {
    let quote = raw.chars().next().filter(|c| matches!(c, '"' | '\''));
    let (body, start) = match quote {
        Some(quote) => (raw.strip_prefix(quote)?.strip_suffix(quote)?, 1),
        None => (raw, 0),
    };
    let mut places = Vec::with_capacity(value.len() + 1);
    let mut seen = String::with_capacity(value.len());
    let mut rest = body.char_indices();
    while let Some((at, c)) = rest.next() {
        let read = match (quote, c) {
            (_, '\n' | '\r') => return None,
            // YAML 1.2.2, section 7.3.2: the one escape between single quotes.
            (Some('\''), '\'') => rest.next().filter(|(_, c)| *c == '\'')?.1,
            (Some('"'), '\\') => escaped(&mut rest)?,
            _ => c,
        };
        seen.push(read);
        places.extend(std::iter::repeat_n(start + at, read.len_utf8()));
    }
    places.push(start + body.len());
    (seen == value).then_some(places)
}

/// The character that an escape between double quotes stands for (YAML 1.2.2, section 5.7), the backslash being read.
fn escaped(rest: &mut std::str::CharIndices<'_>) -> Option<char> {
    let digits = match rest.next()?.1 {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        't' | '\t' => return Some('\t'),
        'n' => return Some('\n'),
        'r' => return Some('\r'),
        '0' => return Some('\0'),
        'a' => return Some('\u{7}'),
        'b' => return Some('\u{8}'),
        'v' => return Some('\u{b}'),
        'f' => return Some('\u{c}'),
        'e' => return Some('\u{1b}'),
        'N' => return Some('\u{85}'),
        '_' => return Some('\u{a0}'),
        'L' => return Some('\u{2028}'),
        'P' => return Some('\u{2029}'),
        c @ (' ' | '"' | '/' | '\\') => return Some(c),
        _ => return None,
    };
    let mut code = 0u32;
    for _ in 0..digits {
        code = code.checked_mul(16)? + rest.next()?.1.to_digit(16)?;
    }
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown<'a>(raw: &'a str, value: &str, word: &str) -> Option<&'a str> {
        let at = value.find(word).unwrap();
        part(raw, value, &(at..at + word.len())).map(|bytes| &raw[bytes])
    }

    #[test]
    fn a_word_is_found_behind_quotes_and_escapes() {
        assert_eq!(shown("pf-pf > 1", "pf-pf > 1", ">"), Some(">"));
        assert_eq!(shown("'it''s pf-fp'", "it's pf-fp", "pf-fp"), Some("pf-fp"));
        assert_eq!(shown(r#""a\u00b5 \"pf-fp\"""#, "a\u{b5} \"pf-fp\"", "pf-fp"), Some("pf-fp"));
        assert_eq!(shown("\"p\u{b5} x\"", "p\u{b5} x", "\u{b5}"), Some("\u{b5}"));
        assert_eq!(shown(r#""\u00b5s""#, "\u{b5}s", "\u{b5}"), Some(r"\u00b5"));
    }

    #[test]
    fn a_quoted_scalar_ends_with_its_quote() {
        for (raw, wanted) in [
            ("\"a\" # b \"c\"", "\"a\""),
            ("'it''s' # 'c'", "'it''s'"),
            ("&x \"a \\\" b\" #", "&x \"a \\\" b\""),
            ("\"open", "\"open"),
        ] {
            assert_eq!(&raw[quoted(raw, 0..raw.len())], wanted);
        }
    }

    #[test]
    fn what_is_not_plainly_the_value_has_no_parts() {
        for raw in ["*alias", ">-\n  a b", "a\n  b", "'a b", "\"a b", "\"\\q\"", "'a'b'", "\"", "'", ""] {
            assert_eq!(part(raw, "a b", &(0..1)), None, "{raw}");
        }
        assert_eq!(part("abc", "abc", &(7..9)), None);
    }

    proptest! {
        #[test]
        fn a_part_is_inside_and_between_characters(
            raw in "['\"]?[a-z \\\\'\"nux0-9\u{b5}]{0,12}['\"]?", value in "[a-z '\"\u{b5}]{0,12}", a in 0usize..14, b in 0usize..14,
        ) {
            for value in [value.as_str(), raw.trim_matches(['\'', '"'])] {
                if let Some(bytes) = part(&raw, value, &(a..b)) {
                    prop_assert!(raw.get(bytes.clone()).is_some(), "{:?} of {}", bytes, raw);
                }
            }
        }
    }
}
