//! XML as a tree in which each element and attribute knows its place.

use std::ops::Range;

use penstock_model::{
    Diagnostic, Diagnostics, Path,
    yaml::{MAX_BYTES, MAX_DEPTH, MAX_NODES, YamlEntry, YamlNode, YamlValue},
};
use roxmltree::{Document, Node, ParsingOptions};

/// The key of an element's text, where it has attributes or elements, too.
pub const TEXT: &str = "text";

/// The most attributes of one element. The reader compares each with each.
const MAX_ATTRIBUTES: usize = 1000;

/// A document: a mapping with its root, by name. An element is a mapping of its attributes and then its elements, by name, of which some
/// may come again; one that has neither is its text, and nothing where that is white space. Namespaces are passed over.
///
/// # Errors
///
/// [`Diagnostics`] when the text is larger than [`MAX_BYTES`], has more than [`MAX_NODES`] parts, an element of more than [`MAX_ATTRIBUTES`]
/// attributes, or a document type, is nested more than [`MAX_DEPTH`] deep, or is no XML.
pub fn document(text: &str) -> Result<YamlNode, Diagnostics> {
    let wrong = |message: String, bytes: Range<usize>| {
        Err(Diagnostic::error(Path::default(), message).at_bytes(bytes).into())
    };
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, and at most {MAX_BYTES} are read", text.len());
        return Err(Diagnostic::error(Path::default(), message).into());
    }
    if let Some(at) = crowded(text) {
        return wrong(format!("more than {MAX_ATTRIBUTES} attributes of an element are not read"), at..at);
    }
    // Without a document type there are no entities that could expand.
    let options = ParsingOptions { nodes_limit: MAX_NODES as u32, ..ParsingOptions::default() };
    match Document::parse_with_options(text, options) {
        Ok(read) => {
            let root = read.root_element();
            match entry(root, 0) {
                Ok(entry) => Ok(YamlNode { span: root.range(), value: YamlValue::Mapping(vec![entry]) }),
                Err(deep) => wrong(format!("this is nested more than {MAX_DEPTH} levels deep"), deep),
            }
        }
        Err(error) => {
            let at = byte_of(text, error.pos());
            let what = match error {
                roxmltree::Error::NodesLimitReached => format!("the file has more than {MAX_NODES} parts"),
                roxmltree::Error::DtdDetected => "a document type is not read".to_owned(),
                error => format!("this is no XML: {error}"),
            };
            wrong(what, at..at)
        }
    }
}

/// Where an element begins that has too many attributes. Whatever looks like one is counted.
fn crowded(text: &str) -> Option<usize> {
    let mut begin = 0;
    text.split_inclusive('<').find_map(|part| {
        let at = begin;
        begin += part.len();
        let is_value = |rest: &&str| rest.trim_start().starts_with(['"', '\'']);
        (part.split('=').skip(1).filter(is_value).count() > MAX_ATTRIBUTES).then_some(at)
    })
}

/// An element by its name, or where one is nested too deeply.
fn entry(element: Node<'_, '_>, depth: usize) -> Result<YamlEntry, Range<usize>> {
    let name = element.tag_name().name();
    let begin = element.range().start + 1;
    let key_span = begin..begin + name.len();
    if depth > MAX_DEPTH {
        return Err(key_span);
    }
    let mut inside: Vec<YamlEntry> = element
        .attributes()
        .map(|attribute| YamlEntry {
            key: attribute.name().to_owned(),
            key_span: attribute.range(),
            value: scalar(attribute.value(), attribute.range_value()),
        })
        .collect();
    for child in element.children().filter(Node::is_element) {
        inside.push(entry(child, depth + 1)?);
    }
    let text: String = element.children().filter(Node::is_text).filter_map(|node| node.text()).collect();
    let said = scalar(text.trim(), key_span.clone());
    let value = match inside.is_empty() {
        true => said,
        false => {
            if !matches!(said.value, YamlValue::Null) {
                inside.push(YamlEntry { key: TEXT.to_owned(), key_span: key_span.clone(), value: said });
            }
            YamlNode { span: element.range(), value: YamlValue::Mapping(inside) }
        }
    };
    Ok(YamlEntry { key: name.to_owned(), key_span, value })
}

fn scalar(text: &str, span: Range<usize>) -> YamlNode {
    let value = match text.is_empty() {
        true => YamlValue::Null,
        false => YamlValue::Scalar(text.to_owned()),
    };
    YamlNode { span, value }
}

/// The byte of a place that is counted in rows and characters, from 1.
fn byte_of(text: &str, place: roxmltree::TextPos) -> usize {
    let before: usize =
        text.split_inclusive('\n').take((place.row as usize).saturating_sub(1)).map(str::len).sum();
    let row = text.get(before..).unwrap_or_default();
    let column = (place.col as usize).saturating_sub(1);
    before + row.char_indices().nth(column).map_or(row.len(), |(byte, _)| byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(node: &YamlNode) -> Vec<&str> {
        match &node.value {
            YamlValue::Mapping(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn attributes_elements_and_text_have_their_places() {
        let text = "<?xml version='1.0'?>\n<!-- c --><a x:y='1' xmlns:x='u'>\n <b unit='KiB'> 7 </b><b/><c>&lt;d</c></a>";
        let root = document(text).unwrap();
        assert_eq!(keys(&root), ["a"]);
        let YamlValue::Mapping(roots) = &root.value else { panic!() };
        assert_eq!(&text[roots[0].key_span.clone()], "a");
        assert_eq!(keys(&roots[0].value), ["y", "b", "b", "c"]);
        let YamlValue::Mapping(inside) = &roots[0].value.value else { panic!() };
        assert_eq!(&text[inside[0].value.span.clone()], "1");
        assert_eq!(keys(&inside[1].value), ["unit", TEXT]);
        assert!(matches!(inside[2].value.value, YamlValue::Null));
        assert!(matches!(&inside[3].value.value, YamlValue::Scalar(text) if text == "<d"));
    }

    #[test]
    fn what_is_no_xml_is_refused_at_its_place() {
        for (text, message) in [
            ("", "no XML"),
            ("a: 1", "no XML"),
            ("<a>\n <b></a>", "no XML"),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "a document type is not read"),
            ("<a>&b;</a>", "no XML"),
            ("<a b='\u{1b}[2J'/>", "no XML"),
        ] {
            let found = document(text).unwrap_err();
            assert!(found.to_string().contains(message), "{text}: {found}");
        }
        let deep = |levels: usize| format!("{}{}", "<a>".repeat(levels), "</a>".repeat(levels));
        assert!(document(&deep(MAX_DEPTH)).is_ok());
        assert!(document(&deep(50_000)).unwrap_err().to_string().contains("levels deep"));
        let many = format!("<a>{}</a>", "<b/>".repeat(MAX_NODES));
        assert!(document(&many).unwrap_err().to_string().contains("parts"));
        let attributes =
            |count: usize| (0..count).map(|number| format!(" a{number} = ''")).collect::<String>();
        let of_many = |count: usize| document(&format!("<a>\n<b{}/></a>", attributes(count)));
        assert!(of_many(MAX_ATTRIBUTES).is_ok());
        let found = of_many(MAX_ATTRIBUTES + 1).unwrap_err();
        assert!(found.to_string().contains("attributes of an element are not read"), "{found}");
    }
}
