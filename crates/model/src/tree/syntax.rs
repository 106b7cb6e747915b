//! What is wrong with text that is no YAML, and what to do: the scanner tells at what it stopped.

use std::ops::Range;

use super::{shown, too_deep, wrong};
use crate::diagnostic::{Diagnostic, Path, PathTarget, Related};

/// The message for text at whose byte `at` the scanner stopped with `said`, in collections that begin at the bytes `open`, the innermost last.
pub(super) fn explain(text: &str, said: &str, at: usize, open: &[usize]) -> Diagnostic {
    let rest = text.get(at..).unwrap_or_default();
    let place = at..at;
    match said {
        "recursion limit exceeded" => too_deep(place),
        said if said.starts_with("tab") => {
            not_yaml(place, "a tab stands where YAML takes spaces").with_hint("indent with spaces")
        }
        "while parsing node, found unknown anchor" => {
            let name = rest.strip_prefix('*').unwrap_or(rest);
            let name =
                name.split(|c: char| c.is_whitespace() || ",[]{}".contains(c)).next().unwrap_or_default();
            not_yaml(place, format!("no anchor above is called {}", shown(name))).with_hint(format!(
                "`*{name}` stands for what `&{name}` was written before; text that begins with `*` needs quotes"
            ))
        }
        "while scanning a quoted scalar, found unexpected end of stream" => {
            not_yaml(place, "the text in quotes that begins here is not closed").with_hint("close its quote")
        }
        "invalid indentation in quoted scalar" => {
            not_yaml(place, "the text in quotes that begins here is not closed before a line that is indented less")
                .with_hint("close its quote, or indent the lines in which it goes on")
        }
        "mapping values are not allowed in this context" => {
            not_yaml(place, "no value can stand behind this `:`").with_hint(
                "write each key on a line of its own, with a `:` behind the one above, and put text with a `: ` in it between quotes",
            )
        }
        "block sequence entries are not allowed in this context" => not_yaml(place, "no list can begin here")
            .with_hint("begin it on a line of its own, below its key"),
        "invalid indentation in flow construct"
        | "while parsing a flow mapping, did not find expected ',' or '}'"
        | "while parsing a flow sequence, expected ',' or ']'"
        | "while parsing a node, did not find expected node content" => {
            if rest.starts_with(',') {
                return not_yaml(place, "two commas follow one another").with_hint("remove one");
            }
            unclosed(text, place.clone(), open).unwrap_or_else(|| not_yaml(place, said))
        }
        "while parsing a block mapping, did not find expected key"
        | "while parsing a block collection, did not find expected '-' indicator"
        | "invalid indentation" => {
            misplaced(text, place.clone(), open).unwrap_or_else(|| not_yaml(place, said))
        }
        _ => not_yaml(place, said),
    }
}

fn not_yaml(place: Range<usize>, what: impl AsRef<str>) -> Diagnostic {
    wrong(place, format!("this is not YAML: {}", what.as_ref()))
}

/// Of the innermost bracket that is open, that it is not closed; `None` when none is.
fn unclosed(text: &str, place: Range<usize>, open: &[usize]) -> Option<Diagnostic> {
    let (start, opening, closing) =
        open.iter().rev().find_map(|start| match text.as_bytes().get(*start)? {
            b'{' => Some((*start, '{', '}')),
            b'[' => Some((*start, '[', ']')),
            _ => None,
        })?;
    let mut found = not_yaml(
        place,
        format!("before this a `,` is missing, or the `{closing}` that closes a `{opening}`"),
    );
    found.related = Some(Box::new(Related {
        path: Path::default(),
        place: PathTarget::Bytes(start..start + 1),
        label: "opened here".to_owned(),
    }));
    Some(found)
}

/// Of a line that is indented otherwise than the collection that it stands in, how far it is; `None` when that is not what is wrong.
fn misplaced(text: &str, place: Range<usize>, open: &[usize]) -> Option<Diagnostic> {
    let indented = |at: usize| {
        let line = text.get(..at)?.rsplit('\n').next()?;
        line.bytes().all(|byte| matches!(byte, b' ' | b'-')).then_some(line.len())
    };
    let here = indented(place.start)?;
    (here != indented(*open.last()?)?).then(|| {
        let spaces = crate::text::counted(here, "space");
        not_yaml(
            place,
            format!("this line is indented by {spaces}, and none above that it could stand with is"),
        )
        .with_hint("keys of one mapping begin in one column, and so do the items of one list")
    })
}

#[cfg(test)]
mod tests {
    use crate::{Source, parse};

    /// The first message, and what to do.
    fn told(text: &str) -> (String, Option<String>) {
        let found = parse(&Source::new("m.yaml", text)).unwrap_err().0.remove(0);
        (found.message, found.hint)
    }

    #[test]
    fn what_is_no_yaml_is_told_in_words_of_who_wrote_it() {
        for (text, message, hint) in [
            (
                "nics: {NET0: {vfs: 2}\nguests:\n",
                "before this a `,` is missing, or the `}` that closes a `{`",
                "",
            ),
            ("nics: {NET0: {vfs: 2}}\nguests: {a: {after: [b}}\n", "or the `]` that closes a `[`", ""),
            ("nics:\n\tNET0:\n", "a tab stands where YAML takes spaces", "indent with spaces"),
            ("nics: {NET0: *zz}\n", "no anchor above is called `zz`", "`&zz`"),
            ("functions: [NET0#0,, NET0#1]\n", "two commas follow one another", "remove one"),
            ("machine: \"m\n", "the text in quotes that begins here is not closed", "close its quote"),
            (
                "machine: \"m\nnics: {NET0: }\n",
                "the text in quotes that begins here is not closed",
                "close its quote",
            ),
            (
                "nics: {NET0: }\n guests: {}\n",
                "this line is indented by 1 space, and none above",
                "one column",
            ),
            ("machine: a: b\n", "no value can stand behind this `:`", "between quotes"),
            ("nics: - NET0\n", "no list can begin here", "below its key"),
        ] {
            let (said, advice) = told(text);
            assert!(said.starts_with("this is not YAML: ") && said.contains(message), "{text}: {said}");
            assert!(advice.unwrap_or_default().contains(hint), "{text}: {said}");
        }
        let (deep, _) = told(&"[".repeat(100_000));
        assert_eq!(deep, "this is nested more than 32 levels deep");
    }
}
