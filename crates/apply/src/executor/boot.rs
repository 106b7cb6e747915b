//! What happens when the machine is started: units of systemd, and the kernel's command line.

use std::{path::Path, time::Duration};

use penstock_host::{
    Root,
    boot::{entries, tool},
    files,
};
use penstock_model::inventory::BootLoader;
use penstock_plan::{
    ExecuteError,
    action::{BootArguments, has_words},
    boot::{entries_have, is_there},
    persist::{UNIT_DIRECTORY, WANTED_BY},
};

use super::{facts, failed};

/// `update-grub` looks for other systems on every disk, and `kernel-install` makes an initramfs for each kernel.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What is seen of a fact: so, or what is so instead.
type Seen = Result<(), String>;

/// The link that `systemctl enable` makes for `WantedBy=` (systemd.unit(5), "[Install]").
fn wanted(root: &Root, unit: &str) -> std::path::PathBuf {
    root.path(format!("{UNIT_DIRECTORY}/{WANTED_BY}.wants/{unit}"))
}

/// Has a unit started at boot, or no longer.
///
/// # Errors
///
/// When the link cannot be made or removed.
pub fn enable(root: &Root, unit: &str, on: bool) -> Result<(), ExecuteError> {
    let link = wanted(root, unit);
    let done = if on {
        let directory = link.parent().unwrap_or(Path::new("/"));
        files::create_dir_all(directory).and_then(|()| files::link(format!("{UNIT_DIRECTORY}/{unit}"), &link))
    } else {
        files::remove_file(&link)
    };
    // systemd need not be told: it counts at the next boot, and a unit that systemd has not loaded is read when it is asked for.
    done.map_err(|error| failed(&format!("{unit} is not as it should be at boot"), error))
}

/// Whether a unit is started at boot.
pub fn is_enabled(root: &Root, unit: &str, on: bool) -> Seen {
    match files::read_link(wanted(root, unit)).is_ok() == on {
        true => Ok(()),
        false => Err(format!("it is {}", if on { "not" } else { "still" })),
    }
}

/// Writes what the boot loader's tool reads, and runs the tool.
///
/// # Errors
///
/// When the file cannot be read or written, or the boot loader's tool is missing, fails, or does not end in time.
pub fn set_arguments(root: &Root, arguments: &BootArguments, deadline: Duration) -> Result<(), ExecuteError> {
    if let Some(file) = &arguments.file {
        let path = root.path(&file.path);
        let directory = path.parent().unwrap_or(Path::new("/"));
        let present = present(root, &file.path)?;
        // As a file's step does: neither what a reset takes nor half of a file is left behind.
        let done = files::remove_parts(&path).and_then(|()| match arguments.text_over(present.as_deref()) {
            Some(text) if present.as_ref() == Some(&text) => Ok(()),
            Some(text) => files::create_dir_all(directory).and_then(|()| files::write_durable(&path, text)),
            None => files::remove_durable(&path),
        });
        done.map_err(|error| failed(&format!("{} was not changed", file.path), error))?;
    }
    let mut commands = arguments.commands();
    if arguments.loader == BootLoader::KernelInstall {
        commands = kernels(root);
    }
    for command in commands {
        run(root, &command, deadline.max(TIMEOUT))?;
    }
    Ok(())
}

/// The text of a file that a tool reads; `None` where there is none. One that cannot be read is not written over.
fn present(root: &Root, path: &str) -> Result<Option<String>, ExecuteError> {
    match files::read_to_string(root.path(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(failed(&format!("{path} was not changed"), error)),
    }
}

/// A call of `kernel-install` for each kernel that is installed.
fn kernels(root: &Root) -> Vec<Vec<String>> {
    let versions = files::list(root.path("/lib/modules")).unwrap_or_default();
    let of = |version: String| {
        let images = [format!("/boot/vmlinuz-{version}"), format!("/lib/modules/{version}/vmlinuz")];
        let image = images.into_iter().find(|image| files::exists(root.path(image)))?;
        Some(vec!["kernel-install".to_owned(), "add".to_owned(), version, image])
    };
    versions.into_iter().filter_map(of).collect()
}

fn run(root: &Root, words: &[String], deadline: Duration) -> Result<String, ExecuteError> {
    let [program, arguments @ ..] = words else { return Ok(String::new()) };
    let what = format!("`{}` failed: the boot loader's configuration is not made anew", words.join(" "));
    let output = tool(root, program).args(arguments).deadline(deadline).succeed();
    Ok(output.map_err(|error| failed(&what, error))?.text())
}

/// Whether the boot loader's own configuration has the words, and those no longer that are gone.
///
/// # Errors
///
/// When the file or the boot loader's entries cannot be read.
pub fn are_set(root: &Root, arguments: &BootArguments) -> Result<Seen, ExecuteError> {
    if let Some(file) = &arguments.file {
        let seen = present(root, &file.path)?;
        if seen != arguments.text_over(seen.as_deref()) {
            return Ok(Err(match seen {
                Some(_) => format!("{} has another text", file.path),
                None => format!("there is no {}", file.path),
            }));
        }
        if let Err(seen) = facts::no_parts(root, &file.path) {
            return Ok(Err(format!("{}: {seen}", file.path)));
        }
    }
    let lines = entries(root, &arguments.loader)
        .map_err(|error| failed("the boot loader's entries could not be looked at", error))?;
    // Unified kernel images have their command line inside: there the tool's own answer is all that there is.
    if lines.is_empty() {
        return Ok(Ok(()));
    }
    if let Some(words) = lacking(arguments, &lines) {
        return Ok(Err(match arguments.loader {
            BootLoader::Grubby => format!("an entry of the boot loader lacks {words}"),
            _ => format!("no entry of the boot loader has {words}"),
        }));
    }
    let gone = arguments.before.iter().filter(|words| !arguments.words.contains(words));
    let mut still = gone.filter(|words| lines.iter().any(|line| has_words(line, words))).peekable();
    if still.peek().is_some() {
        let elsewhere = elsewhere(root, arguments);
        if let Some(words) = still.find(|words| !elsewhere.iter().any(|line| has_words(line, words))) {
            return Ok(Err(format!("an entry of the boot loader still has {words}")));
        }
    }
    Ok(Ok(()))
}

/// What somebody else has written where the boot loader's tool reads it, by lines without quotes: words there stay, whoever else wanted
/// them.
fn elsewhere(root: &Root, arguments: &BootArguments) -> Vec<String> {
    let mut paths: Vec<String> = vec!["/etc/default/grub".to_owned()];
    let drop_ins = files::list(root.path("/etc/default/grub.d")).unwrap_or_default();
    paths.extend(drop_ins.into_iter().map(|name| format!("/etc/default/grub.d/{name}")));
    let mut text = String::new();
    if let Some(file) = &arguments.file {
        paths.retain(|path| *path != file.path);
        text.push_str(file.text.as_deref().unwrap_or_default());
    }
    for path in paths {
        text.push('\n');
        text.push_str(&files::read_to_string(root.path(path)).unwrap_or_default());
    }
    text.lines().map(|line| line.replace(['"', '\''], " ")).collect()
}

/// The first of the words that the entries do not have as the loader's tool was to give them. What was there before it is not told again: it
/// stays where it is, be it in one entry of several.
fn lacking<'a>(arguments: &'a BootArguments, entries: &[String]) -> Option<&'a String> {
    let there = |words: &&String| match arguments.before.contains(words) {
        true => entries.iter().any(|entry| is_there(entry, words)),
        false => entries_have(&arguments.loader, entries, words),
    };
    arguments.words.iter().find(|words| !there(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_stay_are_where_they_were_and_new_ones_in_every_entry_of_grubby() {
        let arguments = |words: &[&str], before: &[&str]| BootArguments {
            loader: BootLoader::Grubby,
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            before: before.iter().map(|word| (*word).to_owned()).collect(),
            file: None,
        };
        let entries = ["ro iommu=pt".to_owned(), "ro".to_owned()];
        // The way back of a run that was cut off before grubby was told.
        let back = arguments(&["iommu=pt"], &["intel_iommu=on", "iommu=pt"]);
        assert_eq!(lacking(&back, &entries), None);
        let forth = arguments(&["iommu=pt"], &[]);
        assert_eq!(lacking(&forth, &entries).map(String::as_str), Some("iommu=pt"));
        let lost = arguments(&["intel_iommu=on"], &["intel_iommu=on"]);
        assert_eq!(lacking(&lost, &entries).map(String::as_str), Some("intel_iommu=on"));
    }
}
