//! Reading the user's model and inventory files.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use penstock_host::{files, interrupt};
use penstock_model::{
    Against, Diagnostic, Diagnostics, GuestName, Inventory, Model, NicMatch, NicName, Parsed, Path as Place,
    Source, Template, TenantNic, inventory::INVENTORY_VERSION,
};
use penstock_render::GenerateError;

use crate::{
    arguments::{NicAt, Strict, Subject},
    failure::{Failure, Fault, OrBadInput, Status},
    remote::{
        hosts::Host,
        protocol::{Payload, TemplateFile},
    },
    runtime::machine::Machine,
    settings::Settings,
    ui::printer::Printer,
};

/// The largest model file that is read. A machine with 510 VFs and 64 guests needs 60 KiB.
const MODEL_LIMIT: usize = 1 << 20;

/// What the model is called that comes on standard input, as `-`.
pub const STANDARD_INPUT: &str = "<stdin>";

/// The largest template that is read.
const TEMPLATE_LIMIT: usize = 256 << 10;

/// The largest inventory that is read.
const INVENTORY_LIMIT: usize = 64 << 20;

/// A model with its text, so that later messages can point into it.
pub struct ModelFile {
    /// The file's name and text; the name is [`STANDARD_INPUT`] for standard input.
    pub source: Source,
    /// What it says. Its templates have been read, and the paths of `generate` are absolute.
    pub model: Model,
    /// What its author should know. [`read`] has printed it.
    pub warnings: Diagnostics,
    /// The templates of the user's that it names, each once.
    pub templates: Vec<TemplateFile>,
    /// Where its generated files go that it places relative to its own directory, as it has them.
    pub generated: Vec<String>,
    /// Its directory; empty when it generates nothing.
    pub directory: PathBuf,
}

/// The model of `file`, with every file that it refers to, for another machine.
///
/// # Errors
///
/// The model places generated files relative to itself: they would be made beside a model that is not there.
pub fn payload(file: &ModelFile, printer: &mut Printer) -> Result<Payload, Failure> {
    let written = parse(file.source.clone()).map_err(|rejected| rejected.explain(printer))?.model;
    let mut messages = Vec::new();
    for (guest, owner) in &written.guests {
        for (position, wanted) in owner.generate.iter().enumerate() {
            if !Path::new(&wanted.to).is_absolute() {
                let place = Place::of(["guests", guest.as_str(), "generate"]).join(position).join("to");
                let why =
                    "this path is relative to the model's directory, which another machine does not have";
                messages.push(Diagnostic::error(place, why).with_hint("write an absolute path for --host"));
            }
        }
    }
    if !messages.is_empty() {
        return Err(explain(&Diagnostics(messages), &file.source, printer));
    }
    Ok(Payload {
        name: file.source.name.clone(),
        text: file.source.text.clone(),
        directory: file.directory.clone(),
        templates: file.templates.clone(),
    })
}

/// Guests' own NICs that would have one address on each of several machines, and may meet there in one network: a warning.
pub fn same_on_each(model: &Model, hosts: &[Host]) -> Option<Diagnostic> {
    /// More names say no more.
    const SHOWN: usize = 5;
    let mut found = model.tenant_nics().filter(|(.., nic)| nic.uplink.is_some());
    let named = |(guest, name, _): (&GuestName, &NicName, &TenantNic)| format!("{guest}/{name}");
    let first = found.next().filter(|_| hosts.len() > 1)?;
    let place = Place::of(["guests", first.0.as_str(), "nics", first.1.as_str()]);
    let mut names: Vec<String> =
        std::iter::once(first).chain(found.by_ref().take(SHOWN - 1)).map(named).collect();
    names.extend(found.next().map(|_| "others".to_owned()));
    let has = if names.len() == 1 { "has" } else { "have" };
    let text = format!(
        "{} {has} the same MAC addresses on each of the {} machines, and an uplink by which they may meet in one network",
        names.join(", "),
        hosts.len()
    );
    let hint = "apply a model of its own on each machine, with another `machine`, from which addresses are derived, or another `mac`";
    Some(Diagnostic::warning(place, text).at_key().with_hint(hint))
}

/// Checks a payload and puts its model together again. Its warnings have been printed where it comes from.
///
/// # Errors
///
/// What is wrong in the model, with its place; a template that was not sent along.
pub fn unpack(payload: &Payload) -> Result<ModelFile, Rejected> {
    let mut file = parse(Source::new(&payload.name, &payload.text))?;
    file.directory = payload.directory.clone();
    let among = |path: &str| {
        let known = payload.templates.iter().find(|known| known.path == path);
        known.map(|known| known.text.clone()).ok_or_else(|| format!("the template {path} was not sent along"))
    };
    settle(&mut file, &among)?;
    Ok(file)
}

/// Whose model it is that is read: what is wrong with it can then be told with what is there.
#[derive(Clone, Copy)]
pub enum For<'a> {
    /// Of a machine that is not known.
    Any,
    /// Of the machine that Penstock runs on.
    Here(&'a Settings),
    /// Of machines that are reached over SSH, as the user names them. Nobody logs in anywhere for a model that is wrong.
    There(&'a [Host]),
    /// Of the machine whose inventory is in this file.
    Inventory(&'a Path),
}

impl<'a> For<'a> {
    /// The machine of an inventory where one is given, else the one that Penstock runs on where `here`.
    pub fn of(inventory: Option<&'a Path>, here: bool, settings: &'a Settings) -> For<'a> {
        match (inventory, here) {
            (Some(path), _) => For::Inventory(path),
            (None, true) => For::Here(settings),
            (None, false) => For::Any,
        }
    }

    /// Adds what this machine has to say to what is wrong with a model.
    fn explain(self, rejected: Rejected) -> Rejected {
        let Rejected::Wrong { mut found, source } = rejected else { return rejected };
        if found.select_by_name() {
            let inventory = match self {
                // The message says how it can be found out.
                For::Any => None,
                For::There(hosts) => {
                    let names: Vec<&str> = hosts.iter().map(Host::as_str).collect();
                    let names = names.join(",");
                    let why = format!("which PF of {names} has the name now was not looked up there");
                    found.tell_that_names_are_unknown(&why, &format!("`penstock scan --host {names}`"));
                    None
                }
                For::Here(settings) => Some(Machine::here(settings).functions()),
                For::Inventory(path) => Some(read_inventory(path)),
            };
            match inventory {
                None => {}
                Some(Ok(inventory)) => found.tell_who_has_the_names(&source, &inventory),
                Some(Err(failure)) => {
                    let why =
                        format!("which PF has the name now could not be seen: {}", failure.in_one_line());
                    found.tell_that_names_are_unknown(&why, "`penstock scan`");
                }
            }
        }
        Rejected::Wrong { found, source }
    }
}

/// Why a model cannot be used.
#[derive(Debug)]
pub enum Rejected {
    /// It could not be read at all.
    Failure(Failure),
    /// It is wrong.
    Wrong {
        /// What is wrong, and the warnings.
        found: Diagnostics,
        /// The text that `found` points into; empty where it is no text.
        source: Source,
    },
}

impl From<Failure> for Rejected {
    fn from(failure: Failure) -> Rejected {
        Rejected::Failure(failure)
    }
}

impl Rejected {
    fn wrong(found: Diagnostics, source: &Source) -> Rejected {
        Rejected::Wrong { found, source: source.clone() }
    }

    /// Prints what is wrong.
    pub fn explain(self, printer: &mut Printer) -> Failure {
        match self {
            Rejected::Failure(failure) => failure,
            Rejected::Wrong { found, source } => explain(&found, &source, printer),
        }
    }
}

/// Reads and checks a model; prints what is wrong with it, and its warnings. With `strict` these are errors.
///
/// # Errors
///
/// `Status::BadInput` when the file cannot be read or is wrong; what is wrong has been printed. With `strict` also when it has
/// warnings. `Status::Interrupted` when an interrupt comes while the file is waited for.
pub fn read(
    path: &Path,
    strict: Strict,
    machine: For<'_>,
    printer: &mut Printer,
) -> Result<ModelFile, Failure> {
    let file = load(path).map_err(|rejected| machine.explain(rejected).explain(printer))?;
    warn(&file.warnings, &file.source, strict, printer)?;
    Ok(file)
}

/// Prints the warnings about a good model, or with `strict` refuses it for them.
///
/// # Errors
///
/// With `strict`, `Status::BadInput` when there are any.
pub fn warn(
    warnings: &Diagnostics,
    source: &Source,
    strict: Strict,
    printer: &mut Printer,
) -> Result<(), Failure> {
    if warnings.0.is_empty() {
        return Ok(());
    }
    if strict.strict {
        let explained = explain(&warnings.clone().into_errors(), source, printer);
        return Err(explained.hint("`--strict` takes warnings for errors; without it this is a good model"));
    }
    if !printer.warned() {
        printer.diagnose(warnings, source, Against::Model);
    }
    Ok(())
}

/// Reads and checks a model, and prints nothing: what it warns of is in [`ModelFile::warnings`].
///
/// # Errors
///
/// Why the file, or a template that it names, cannot be read; what is wrong in it, with its place.
pub fn load(path: &Path) -> Result<ModelFile, Rejected> {
    let source = read_source(path, "a model")?;
    let mut file = parse(source)?;
    if file.model.guests.values().any(|guest| !guest.generate.is_empty()) {
        let directory = directory_of(path)?;
        file.directory = directory.clone();
        settle(&mut file, &|path| template(&directory, path))?;
    }
    Ok(file)
}

/// The text of a file that the user names, or of standard input for `-`. `what` is what it should be: `a model`.
///
/// # Errors
///
/// When the file cannot be read, is too large, or is not UTF-8.
pub fn read_source(path: &Path, what: &str) -> Result<Source, Rejected> {
    let (name, (bytes, more)) = match path == Path::new("-") {
        true => (STANDARD_INPUT.to_owned(), named(files::read_standard_input(MODEL_LIMIT))?),
        false => (path.display().to_string(), named(files::read_named_by_user(path, MODEL_LIMIT))?),
    };
    if more {
        let text = format!("{name} is larger than {} KiB, the most that {what} may have", MODEL_LIMIT >> 10);
        return Err(Failure::new(Status::BadInput, text).hint("is this the file that you meant?").into());
    }
    Source::from_bytes(&name, &bytes).map_err(|found| Rejected::wrong(found, &Source::new(&name, "")))
}

/// What came of reading a file that the user names: an interrupt while it is waited for is one, and anything else wrong input.
///
/// # Errors
///
/// `Status::Interrupted` when an interrupt came meanwhile, else `Status::BadInput`.
pub fn named<T>(read: files::Result<T>) -> Result<T, Failure> {
    match read {
        Err(error) if interrupt::pending() => Err(Failure::new(
            Status::Interrupted,
            format!("interrupted while {} was read", error.path.display()),
        )),
        Err(error) if error.source.kind() == ErrorKind::IsADirectory => {
            let hint = format!("name a file in it, like {}/FILE", error.path.display());
            Err(Failure::new(Status::BadInput, error).hint(hint))
        }
        read => read.or_bad_input(),
    }
}

/// What a model says, before anything that it refers to is read.
fn parse(source: Source) -> Result<ModelFile, Rejected> {
    let Parsed { model, warnings } =
        penstock_model::parse(&source).map_err(|found| Rejected::wrong(found, &source))?;
    Ok(ModelFile {
        source,
        model,
        warnings,
        templates: Vec::new(),
        generated: Vec::new(),
        directory: PathBuf::new(),
    })
}

/// The directory that a model's relative paths start from.
fn directory_of(model: &Path) -> Result<PathBuf, Failure> {
    let parent = model.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = files::canonical(parent).or_bad_input()?;
    if directory.to_str().is_none() {
        let text =
            format!("the path of {} is not UTF-8, and files are to be made beside it", model.display());
        return Err(Failure::new(Status::BadInput, text));
    }
    Ok(directory)
}

/// Makes the paths of `generate` absolute, and has each template read once.
fn settle(file: &mut ModelFile, read: &dyn Fn(&str) -> Result<String, String>) -> Result<(), Rejected> {
    let relative = |path: &String| !Path::new(path).is_absolute();
    file.generated = penstock_render::paths(&file.model).into_iter().filter(relative).collect();
    let mut messages = Vec::new();
    for (guest, owner) in &mut file.model.guests {
        for (position, wanted) in owner.generate.iter_mut().enumerate() {
            if let Template::File { path, text } = &mut wanted.template {
                let place = Place::of(["guests", guest.as_str(), "generate"]).join(position).join("template");
                let known = file.templates.iter().find(|known| known.path == *path);
                match known.map_or_else(|| read(path), |known| Ok(known.text.clone())) {
                    Ok(read) => {
                        if known.is_none() {
                            file.templates.push(TemplateFile { path: path.clone(), text: read.clone() });
                        }
                        *text = read;
                    }
                    Err(why) => messages.push(
                        Diagnostic::error(place, why)
                            .with_hint("the path is relative to the model's directory, or absolute"),
                    ),
                }
                *path = absolute(&file.directory, path);
            }
            wanted.to = absolute(&file.directory, &wanted.to);
        }
    }
    if messages.is_empty() {
        return Ok(());
    }
    messages.extend(file.warnings.0.iter().cloned());
    Err(Rejected::wrong(Diagnostics(messages), &file.source))
}

/// The text of a template.
fn template(directory: &Path, path: &str) -> Result<String, String> {
    let place = absolute(directory, path);
    let failed = |error: files::FileError| format!("the template {path} cannot be read: {}", error.source);
    let bytes = files::read_in_root("/", &place, TEMPLATE_LIMIT + 1).map_err(failed)?;
    if bytes.len() > TEMPLATE_LIMIT {
        return Err(format!("the template {path} is larger than {} KiB", TEMPLATE_LIMIT >> 10));
    }
    String::from_utf8(bytes).map_err(|_| format!("the template {path} is not UTF-8 text"))
}

/// `path` as seen from `directory`, whose path is text.
fn absolute(directory: &Path, path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    directory.join(path).to_string_lossy().into_owned()
}

/// Reads and checks the model that a verb is about, with its NICs where the command line has them.
///
/// # Errors
///
/// As [`read`], and `Status::BadInput` when `--nic` names one that the model does not have.
pub fn read_subject(
    subject: &Subject,
    machine: For<'_>,
    printer: &mut Printer,
) -> Result<ModelFile, Failure> {
    let mut file = match &subject.payload {
        Some(payload) => unpack(payload).map_err(|rejected| rejected.explain(printer))?,
        None => read(&subject.model, subject.strict, machine, printer)?,
    };
    for NicAt { name, mac } in &subject.nics {
        let Some(nic) = file.model.nics.get_mut(name) else {
            let known: Vec<&str> = file.model.nics.keys().map(NicName::as_str).collect();
            let text = format!("--nic names {name}, and {} has no such NIC", file.source.name);
            return Err(
                Failure::new(Status::BadInput, text).hint(format!("its NICs are {}", known.join(", ")))
            );
        };
        nic.matching = NicMatch { mac: Some(*mac), ..NicMatch::default() };
    }
    Ok(file)
}

/// Prints diagnostics with their place in the file.
pub fn explain(found: &Diagnostics, source: &Source, printer: &mut Printer) -> Failure {
    printer.diagnose(found, source, Against::Model);
    Failure::explained(Status::BadInput)
}

/// Prints why a good model is not for this machine, with the places in the file.
pub fn does_not_fit(found: &Diagnostics, source: &Source, printer: &mut Printer) -> Failure {
    printer.diagnose(found, source, Against::Machine);
    Failure::explained(Status::DoesNotFit)
}

/// Prints why files cannot be made, with the place in the model or in the template.
pub fn explain_generate(error: &GenerateError, source: &Source, printer: &mut Printer) -> Failure {
    match error {
        GenerateError::Model(found) => printer.diagnose(found, source, Against::Model),
        GenerateError::Unknown(found) => printer.diagnose(found, source, Against::Machine),
        GenerateError::Template(error) => {
            printer.diagnose(&error.found, &Source::new(&error.path, &error.text), Against::Template);
        }
    }
    Failure::explained(error.status())
}

/// Reads an inventory that `scan --json` printed.
///
/// # Errors
///
/// `Status::BadInput` when the file cannot be read, is too large, is no inventory, or is of a newer version; `Status::Interrupted` when an
/// interrupt comes while it is waited for.
pub fn read_inventory(path: &Path) -> Result<Inventory, Failure> {
    let how = "make one with `penstock scan --json > inventory.json` on the machine";
    let read = named(files::read_named_by_user(path, INVENTORY_LIMIT));
    let (bytes, more) = read.map_err(|failure| match failure.status {
        Status::BadInput => failure.hint(how),
        _ => failure,
    })?;
    if more {
        return Err(Failure::new(Status::BadInput, format!("{} is too large", path.display())).hint(how));
    }
    let inventory: Inventory = serde_json::from_slice(&bytes).map_err(|error| {
        let why = match bytes.trim_ascii_start().first() {
            Some(b'{') => error.to_string(),
            _ => "it is no JSON document; is it a model?".to_owned(),
        };
        Failure::new(Status::BadInput, format!("{} is no inventory: {why}", path.display())).hint(how)
    })?;
    if inventory.version > INVENTORY_VERSION {
        let text = format!(
            "{} has version {}, and this penstock reads up to {INVENTORY_VERSION}",
            path.display(),
            inventory.version
        );
        return Err(
            Failure::new(Status::BadInput, text).hint("use the penstock that made it, or a newer one")
        );
    }
    Ok(inventory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arguments::Common, settings::Settings};

    fn written(to: &str) -> (tempfile::TempDir, ModelFile, Printer) {
        let common = Common { quiet: true, ..Common::default() };
        let mut printer = Printer::new(&Settings::resolve(&common));
        let directory = tempfile::tempdir().unwrap();
        let model = format!(
            "nics: {{NET0: {{vfs: 1}}}}\nguests: {{a: {{functions: [NET0#0], generate: [{{template: ./t.txt, to: {to}}}]}}}}\n"
        );
        files::write_atomic(directory.path().join("m.yaml"), model).unwrap();
        files::write_atomic(directory.path().join("t.txt"), "for {{ guest }}").unwrap();
        let file = read(&directory.path().join("m.yaml"), Strict::default(), For::Any, &mut printer).unwrap();
        (directory, file, printer)
    }

    #[test]
    fn a_model_travels_with_its_templates() {
        let (directory, file, mut printer) = written("/etc/a.txt");
        let line = serde_json::to_string(&payload(&file, &mut printer).unwrap()).unwrap();
        drop(directory);
        let sent: Payload = serde_json::from_str(&line).unwrap();
        let arrived = unpack(&sent).unwrap();
        assert_eq!((&arrived.source.name, &arrived.source.text), (&file.source.name, &file.source.text));
        assert_eq!(arrived.model, file.model);
        assert_eq!(arrived.templates.len(), 1);
        let lost = Payload { templates: Vec::new(), ..sent };
        assert_eq!(unpack(&lost).err().unwrap().explain(&mut printer).status, Status::BadInput);
    }

    #[test]
    fn addresses_that_several_machines_would_have_are_warned_of() {
        let text = "nics: {P: {vfs: 0}}\nguests:\n  a: {kind: vm, nics: {n: {vfs: 1, uplink: P}, alone: {vfs: 1}}}\n  \
                    b: {nics: {n: {uplink: br0, mac: 02:00:00:00:00:01}}}\n";
        let model = parse(Source::new("m.yaml", text)).unwrap().model;
        let hosts: Vec<Host> = ["web-1", "web-2"].map(|host| host.parse().unwrap()).into();
        assert_eq!(same_on_each(&model, &hosts[..1]), None, "one machine has each address once");
        let found = same_on_each(&model, &hosts).unwrap();
        assert_eq!(found.path.to_string(), "guests.a.nics.n");
        assert!(
            found.message.starts_with("a/n, b/n have the same MAC addresses on each of the 2 machines"),
            "{found}"
        );
        assert!(found.hint.as_ref().is_some_and(|hint| hint.contains("`machine`") && hint.contains("`mac`")));
        let mut printer = Printer::new(&Settings::resolve(&Common { quiet: true, ..Common::default() }));
        let mut told = |strict| {
            let found = found.clone().into();
            warn(&found, &Source::new("m.yaml", text), Strict { strict }, &mut printer).err()
        };
        assert!(told(false).is_none());
        assert!(told(true).is_some_and(|failure| failure.hints.join("").contains("`--strict`")));
    }

    #[test]
    fn a_file_beside_the_model_is_made_here_alone() {
        let (_directory, file, mut printer) = written("beside.txt");
        assert_eq!(payload(&file, &mut printer).err().unwrap().status, Status::BadInput);
    }
}
