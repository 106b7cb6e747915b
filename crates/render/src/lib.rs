//! What a guest is told: files that are made for it from the model, so that its own table is never typed twice.
//!
//! Rendering is pure and repeatable to the byte: the same model, and the same machine or none, give the same text. No
//! clock, no file, no version goes into it. What templates can name is in `docs/templates.md`.

mod budget;
mod context;
mod engine;
mod error;
mod networkd;
mod verdicts;

use std::collections::HashMap;

use indexmap::IndexMap;
use penstock_model::{
    Bdf, Diagnostic, Diagnostics, Generate, Guest, GuestName, Inventory, Model, NicName, Path, Template,
    digest::sha256, text::path_parts,
};

use self::{
    context::{Contexts, Known},
    engine::Engine,
};
pub use self::{
    error::{GenerateError, TemplateError},
    verdicts::{FoundFile, verdicts},
};

/// The largest file that a template may make, in bytes.
pub const MOST_BYTES: usize = 1 << 20;

/// A machine that was looked at, and where on it the model's NICs are (`penstock_plan::resolve`).
#[derive(Clone, Copy, Debug)]
pub struct FoundMachine<'a> {
    /// What a scan found on the machine.
    pub inventory: &'a Inventory,
    /// Each NIC's PF.
    pub nics: &'a IndexMap<NicName, Bdf>,
}

/// A file that was made for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// The guest that the file is made for.
    pub guest: GuestName,
    /// Where it goes: the model's `to`, for `networkd` with the name of a unit behind it.
    pub path: String,
    /// The whole content of the file.
    pub text: String,
}

impl GeneratedFile {
    /// SHA-256 of its text in lower-case hexadecimal.
    pub fn digest(&self) -> String {
        sha256(&self.text)
    }
}

/// Makes all files that the model asks for, guest by guest in the file's order. Without a machine, every MAC address must
/// be known from the model: given as `mac`, or derived from a NIC's `match: {mac}`. PCI addresses are known only with one.
///
/// # Errors
///
/// [`GenerateError::Unknown`]: a MAC address that is not known. [`GenerateError::Model`]: two files in one place, or a name
/// that systemd does not take. [`GenerateError::Template`]: a template of the user's that does not parse, names what there is not, does not end, takes too much
/// memory, or makes too large a file.
pub fn render(model: &Model, found: Option<FoundMachine<'_>>) -> Result<Vec<GeneratedFile>, GenerateError> {
    if model.guests.values().all(|guest| guest.generate.is_empty()) {
        return Ok(Vec::new());
    }
    let planned = planned_files(model);
    apart(&planned)?;
    let known = Known::of(model, found)?;
    let contexts = Contexts::new(model, &known);
    let engine = Engine::new();
    let mut files = Vec::with_capacity(planned.len());
    for file in planned {
        let PlannedFile { name, guest, position, function, path } = file;
        let context = contexts.of(name, guest, function);
        let wanted = &guest.generate[position];
        if let Some(function) = function {
            nameable(name, guest, function)?;
        }
        let text = match &wanted.template {
            Template::File { path, text } => engine::render_within(path.clone(), text.clone(), context)
                .map_err(|error| error.of_template(name, path, text))?,
            _ => engine
                .render(&source(wanted, &path), context)
                .map_err(|error| error.of_model(at(name, position)))?,
        };
        files.push(GeneratedFile { guest: name.clone(), path, text });
    }
    Ok(files)
}

/// Where the files go that [`render`] makes, in the same order; for this no MAC address need be known.
pub fn paths(model: &Model) -> Vec<String> {
    planned_files(model).into_iter().map(|file| file.path).collect()
}

/// Where the files go that one entry of a guest's `generate` makes.
pub fn paths_of(guest: &Guest, wanted: &Generate) -> Vec<String> {
    match wanted.template {
        Template::Networkd => {
            guest.functions.iter().flat_map(|function| networkd::units(&wanted.to, function)).collect()
        }
        _ => vec![wanted.to.clone()],
    }
}

/// A file that is to be made.
struct PlannedFile<'a> {
    name: &'a GuestName,
    guest: &'a Guest,
    /// Which entry of `generate`.
    position: usize,
    /// Which function it is about; `None` when it is about all.
    function: Option<usize>,
    path: String,
}

fn planned_files(model: &Model) -> Vec<PlannedFile<'_>> {
    let mut planned = Vec::new();
    for (name, guest) in &model.guests {
        for (position, wanted) in guest.generate.iter().enumerate() {
            let per_function = matches!(wanted.template, Template::Networkd);
            let of = |(at, path)| PlannedFile {
                name,
                guest,
                position,
                function: per_function.then_some(at / networkd::UNITS),
                path,
            };
            planned.extend(paths_of(guest, wanted).into_iter().enumerate().map(of));
        }
    }
    planned
}

/// Each file has a place of its own, and none lies where another one needs a directory.
fn apart(planned: &[PlannedFile<'_>]) -> Result<(), GenerateError> {
    let mut messages = Vec::new();
    let mut taken: HashMap<Vec<&str>, &PlannedFile<'_>> = HashMap::new();
    for file in planned {
        let own = at(file.name, file.position).join("to");
        if let Some(other) = taken.insert(path_parts(&file.path), file) {
            let text = format!("{} is to be written for {} and for {}", file.path, other.name, file.name);
            messages.push(
                Diagnostic::error(own, text)
                    .with_related(at(other.name, other.position).join("to"), "for the first time here"),
            );
        }
    }
    for file in planned {
        let parts = path_parts(&file.path);
        let above = (1..parts.len()).find_map(|length| taken.get(&parts[..length]));
        if let Some(other) = above {
            let text = format!("{} is to lie below {}, which is to be a file", file.path, other.path);
            messages.push(
                Diagnostic::error(at(file.name, file.position).join("to"), text)
                    .with_related(at(other.name, other.position).join("to"), "made by this"),
            );
        }
    }
    if messages.is_empty() { Ok(()) } else { Err(GenerateError::Model(Diagnostics(messages))) }
}

/// Whether systemd-networkd takes the name of a function's interface.
fn nameable(name: &GuestName, guest: &Guest, position: usize) -> Result<(), GenerateError> {
    let interface = &guest.functions[position].interface;
    let Some(why) = networkd::refuses(interface) else { return Ok(()) };
    let path = Path::of(["guests", name.as_str(), "functions"]).join(position);
    let text = format!("systemd does not take {interface} for an interface's name: {why}");
    Err(GenerateError::Model(Diagnostic::error(path, text).with_hint("give it another `interface`").into()))
}

/// Where an entry of a guest's `generate` is in the model.
fn at(guest: &GuestName, position: usize) -> Path {
    Path::of(["guests", guest.as_str(), "generate"]).join(position)
}

/// The template's name, for messages, and its text.
fn source<'a>(wanted: &'a Generate, path: &str) -> engine::Named<'a> {
    let (name, text) = match &wanted.template {
        Template::CHeader => ("c-header", include_str!("templates/nic_table.h.j2")),
        Template::Networkd if path.ends_with(".link") => {
            ("networkd", include_str!("templates/networkd.link.j2"))
        }
        Template::Networkd => ("networkd", include_str!("templates/networkd.network.j2")),
        Template::Json => ("json", include_str!("templates/functions.json.j2")),
        Template::File { path, text } => (path.as_str(), text.as_str()),
    };
    engine::Named { name, text }
}
