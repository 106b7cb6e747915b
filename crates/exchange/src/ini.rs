//! systemd's files (systemd.syntax(7)) as a tree in which each key and value knows its place. A key may come more than once.

use std::{collections::HashMap, ops::Range};

use penstock_model::{
    Diagnostic, Diagnostics, Path,
    yaml::{MAX_BYTES, YamlEntry, YamlNode, YamlValue, shown},
};

/// The sections of a file, each with its keys, in order. Those of one name are one, but for a section that is `repeated`.
///
/// # Errors
///
/// [`Diagnostics`] when the text is larger than [`MAX_BYTES`], has a control character, or a line that is neither a section nor a key with
/// its value.
pub fn sections(text: &str, repeated: &str) -> Result<YamlNode, Diagnostics> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, and at most {MAX_BYTES} are read", text.len());
        return Err(Diagnostic::error(Path::default(), message).into());
    }
    let mut sections: Vec<YamlEntry> = Vec::new();
    let mut known_at: HashMap<&str, usize> = HashMap::new();
    let mut current = 0;
    let mut wrong = Vec::new();
    let mut start = 0;
    for line in text.split('\n') {
        let bytes = place(text, start, line);
        start += line.len() + 1;
        let line = &text[bytes.clone()];
        let message = if let Some(c) = line.chars().find(|c| c.is_control() && *c != '\t') {
            format!("the character U+{:04X} stands in no such file", u32::from(c))
        } else if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        } else if line.ends_with('\\') {
            "a value over several lines is not read: write it on one".to_owned()
        } else if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let known = known_at.get(name).copied().filter(|_| name != repeated);
            current = known.unwrap_or(sections.len());
            known_at.insert(name, current);
            if known.is_none() {
                let value = YamlNode { span: bytes.clone(), value: YamlValue::Mapping(Vec::new()) };
                sections.push(YamlEntry { key: name.to_owned(), key_span: bytes, value });
            }
            continue;
        } else {
            match (line.split_once('='), sections.get_mut(current).map(|section| &mut section.value.value)) {
                (Some((key, value)), Some(YamlValue::Mapping(keys))) => {
                    let value_span = place(text, bytes.start + key.len() + 1, value);
                    // Nothing takes back what the key had before.
                    let value = match value_span.is_empty() {
                        true => YamlValue::Null,
                        false => YamlValue::Scalar(text[value_span.clone()].to_owned()),
                    };
                    let key_span = place(text, bytes.start, key);
                    keys.push(YamlEntry {
                        key: key.trim().to_owned(),
                        key_span,
                        value: YamlNode { span: value_span, value },
                    });
                    continue;
                }
                (Some(_), _) => format!("{} stands before any section", shown(line)),
                (None, _) => format!("{} is neither a section nor a key with its value", shown(line)),
            }
        };
        // One is enough of a file that is none of systemd's.
        wrong = vec![Diagnostic::error(Path::default(), message).at_bytes(bytes)];
        break;
    }
    match wrong.is_empty() {
        true => Ok(YamlNode { span: 0..text.len(), value: YamlValue::Mapping(sections) }),
        false => Err(Diagnostics(wrong)),
    }
}

/// Where `part`, which begins at this byte of `text`, is without white space around it.
fn place(text: &str, start: usize, part: &str) -> Range<usize> {
    let trimmed = part.trim_start();
    let begin = (start + part.len() - trimmed.len()).min(text.len());
    begin..begin + trimmed.trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_have_their_places_and_may_come_again() {
        let text = "# a\r\n[Match]\nMACAddress = 02:00:00:00:00:01 \n\n[SR-IOV]\nTrust=\n[SR-IOV]\n;b\nTrust=yes\nTrust=no\n[Match]\nA=b";
        let YamlValue::Mapping(sections) = sections(text, "SR-IOV").unwrap().value else { panic!() };
        let names: Vec<&str> = sections.iter().map(|section| section.key.as_str()).collect();
        assert_eq!(names, ["Match", "SR-IOV", "SR-IOV"]);
        let keys = |at: usize| match &sections[at].value.value {
            YamlValue::Mapping(keys) => keys
                .iter()
                .map(|entry| (&text[entry.key_span.clone()], &text[entry.value.span.clone()]))
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(keys(0), [("MACAddress", "02:00:00:00:00:01"), ("A", "b")]);
        assert_eq!(keys(1), [("Trust", "")]);
        assert_eq!(keys(2), [("Trust", "yes"), ("Trust", "no")]);
    }

    #[test]
    fn what_is_no_such_file_is_refused_at_its_line() {
        for (text, message) in [
            ("a: 1", "is neither"),
            ("Name=a\n[Link]", "before any section"),
            ("[Link]\nName=a\\\nb", "several lines"),
            ("[Link]\nName=\u{1b}[2J", "U+001B"),
            ("\0", "U+0000"),
        ] {
            let found = sections(text, "SR-IOV").unwrap_err();
            assert!(found.to_string().contains(message), "{text}: {found}");
        }
    }
}
