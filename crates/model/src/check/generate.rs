//! Files that are made for a guest.

use std::collections::{HashMap, HashSet};

use super::Subject;
use crate::{
    Generate, GuestName, Template,
    decode::nearest,
    diagnostic::{Diagnostic, Path},
    document::GenerateDocument,
    text::plain_path,
};

/// The templates that are built in.
const BUILT_IN: [&str; 3] = ["c-header", "networkd", "json"];

/// Two guests whose files would go to one place. `places` is where each entry stands.
pub(super) fn check(places: &[Path], subject: &mut Subject<'_>) {
    let mut first: HashMap<String, (&GuestName, &Path)> = HashMap::new();
    let all = subject
        .model
        .guests
        .iter()
        .flat_map(|(name, guest)| guest.generate.iter().map(move |one| (name, one)));
    for ((name, generate), place) in all.zip(places) {
        if super::full(subject.messages) {
            return;
        }
        let to = plain_path(&generate.to);
        match first.get(&to) {
            Some((other, there)) => subject.messages.push(
                Diagnostic::error(
                    place.join("to"),
                    format!(
                        "files for {other} and for {name} would both go to {}",
                        crate::tree::shown(&generate.to)
                    ),
                )
                .with_related(there.join("to"), "first given here")
                .with_hint("give each a place of its own, like generated/GUEST/..."),
            ),
            None => {
                first.insert(to, (name, place));
            }
        }
    }
}

/// The files of one guest; where each entry stands is added to `places`.
pub(super) fn build(
    documents: Vec<GenerateDocument>,
    path: &Path,
    places: &mut Vec<Path>,
    messages: &mut Vec<Diagnostic>,
) -> Vec<Generate> {
    let mut all: Vec<Generate> = Vec::new();
    let mut taken: HashSet<String> = HashSet::new();
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
        let plain = plain_path(&to);
        // Files for networkd have names of their own, and `.` is the model's directory.
        let named = match template {
            Template::Networkd => !to.is_empty() && plain != "/",
            Template::CHeader | Template::Json | Template::File { .. } => !matches!(plain.as_str(), "" | "/"),
        };
        if !named || to.contains(char::is_control) || to.split('/').any(|part| part == "..") {
            let text = format!("{} is no place for a file", crate::tree::shown(&to));
            messages.push(
                Diagnostic::error(path.join("to"), text)
                    .with_hint("write a path below the model's directory, or an absolute one, without `..`"),
            );
            continue;
        }
        if !taken.insert(plain) {
            let text = format!("two files would go to {}", crate::tree::shown(&to));
            messages.push(Diagnostic::error(path.join("to"), text).with_hint("give each a place of its own"));
            continue;
        }
        all.push(Generate { template, to });
        places.push(path);
    }
    all
}
