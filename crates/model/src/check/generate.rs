//! Files that are made for a guest.

use crate::{
    Generate, Template,
    decode::nearest,
    diagnostic::{Diagnostic, Path},
    document::GenerateDocument,
};

/// The templates that are built in.
const BUILT_IN: [&str; 3] = ["c-header", "networkd", "json"];

pub(super) fn build(
    documents: Vec<GenerateDocument>,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) -> Vec<Generate> {
    let mut all: Vec<Generate> = Vec::new();
    for (position, document) in documents.into_iter().enumerate() {
        let path = path.join("generate").join(position);
        let (Some(template), Some(to)) = (document.template, document.to) else {
            messages.push(
                Diagnostic::error(path, "a file to be made needs its `template` and where `to` put it")
                    .with_hint("for example {template: c-header, to: nic_table.h}"),
            );
            continue;
        };
        let template = match template.as_str() {
            "c-header" => Template::CHeader,
            "networkd" => Template::Networkd,
            "json" => Template::Json,
            file if file.contains(['/', '.']) => Template::File { path: template, text: String::new() },
            other => {
                let hint = match nearest(other, BUILT_IN) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "built in are c-header, networkd and json; a file of yours has a `/` or a `.` in its path".to_owned(),
                };
                let text = format!("there is no template {}", crate::tree::shown(other));
                messages.push(Diagnostic::error(path.join("template"), text).with_hint(hint));
                continue;
            }
        };
        if to.is_empty() || to.contains(char::is_control) || to.split('/').any(|part| part == "..") {
            let text = format!("{} is no place for a file", crate::tree::shown(&to));
            messages.push(
                Diagnostic::error(path.join("to"), text)
                    .with_hint("write a path below the model's directory, or an absolute one, without `..`"),
            );
            continue;
        }
        if all.iter().any(|other| other.to == to) {
            let text = format!("two files would be written to {}", crate::tree::shown(&to));
            messages.push(Diagnostic::error(path.join("to"), text));
            continue;
        }
        all.push(Generate { template, to });
    }
    all
}
