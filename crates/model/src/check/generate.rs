//! Files that are made for a guest.

use std::collections::HashMap;

use super::Subject;
use crate::{
    Generate, GuestName, Template,
    decode::nearest,
    diagnostic::{Diagnostic, Path},
    document::GenerateDocument,
};

/// The templates that are built in.
const BUILT_IN: [&str; 3] = ["c-header", "networkd", "json"];

/// Two guests whose files would go to one place.
pub(super) fn check(subject: &mut Subject<'_>) {
    let mut first: HashMap<String, (&GuestName, usize)> = HashMap::new();
    for (name, guest) in &subject.model.guests {
        for (position, generate) in guest.generate.iter().enumerate() {
            if super::full(subject.messages) {
                return;
            }
            let at = |name: &GuestName, position: usize| {
                Path::of(["guests", name.as_str(), "generate"]).join(position).join("to")
            };
            match first.get(&plain(&generate.to)) {
                Some((other, there)) => subject.messages.push(
                    Diagnostic::error(
                        at(name, position),
                        format!(
                            "files for {other} and for {name} would both go to {}",
                            crate::tree::shown(&generate.to)
                        ),
                    )
                    .with_related(at(other, *there), "first given here")
                    .with_hint("give each a place of its own, like generated/GUEST/..."),
                ),
                None => {
                    first.insert(plain(&generate.to), (name, position));
                }
            }
        }
    }
}

/// A path without the parts that say nothing.
fn plain(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

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
        let names_a_file = !matches!(plain(&to).as_str(), "" | "/");
        if !names_a_file || to.contains(char::is_control) || to.split('/').any(|part| part == "..") {
            let text = format!("{} is no place for a file", crate::tree::shown(&to));
            messages.push(
                Diagnostic::error(path.join("to"), text)
                    .with_hint("write a path below the model's directory, or an absolute one, without `..`"),
            );
            continue;
        }
        if all.iter().any(|other| plain(&other.to) == plain(&to)) {
            let text = format!("two files would go to {}", crate::tree::shown(&to));
            messages.push(Diagnostic::error(path.join("to"), text).with_hint("give each a place of its own"));
            continue;
        }
        all.push(Generate { template, to });
    }
    all
}
