//! From the words of the command line to [`Arguments`]: whether there are colours is known before clap says anything.

use std::{collections::BTreeSet, env, ffi::OsString, path::Path, process};

use anstream::ColorChoice;
use clap::{
    CommandFactory, Parser, ValueEnum,
    error::{ContextKind, ContextValue},
};
use penstock_model::text::one_line;

use super::{Arguments, Color, Common, Verb, peers};
use crate::{documents::Document, status::Status};

/// The name by which this program is `penstock cni`.
const PLUGIN: &str = "penstock-cni";

impl Arguments {
    /// What the user typed. Where that makes no sense, or help is asked for, it is said and the program ends.
    pub fn of_the_command_line() -> Arguments {
        let mut words: Vec<OsString> = env::args_os().collect();
        // A container runtime starts a plugin by its file's name and with no word more.
        if words
            .first()
            .is_some_and(|called| Path::new(called).file_name().is_some_and(|name| name == PLUGIN))
        {
            words.truncate(1);
            words.push("cni".into());
        }
        color(&words).write_global();
        if is_plugin_call(&words) {
            // Runtimes wait for each call: all the verbs and options of clap's need not be put together for it.
            return Arguments { verb: Verb::Cni, common: Common::default() };
        }
        Arguments::try_parse_from(&words).unwrap_or_else(|error| complain(&words, error))
    }
}

/// Whether these words are `penstock cni` and nothing more.
fn is_plugin_call(words: &[OsString]) -> bool {
    matches!(words, [_, verb] if verb == "cni")
}

/// Says what is wrong with the words, or the help that was asked for, and ends. clap repeats what was typed, which may have come
/// from anywhere, and among clap's own colours nobody can tell it: so that the same is said of words that are fit to be shown.
fn complain(words: &[OsString], mut error: clap::Error) -> ! {
    without_hidden(&mut error);
    let json = |word: &OsString| word == "--json" || word == "--format=json";
    if error.exit_code() != 0 && words.iter().take_while(|word| *word != "--").any(json) {
        // Who asked for JSON gets a document all the same.
        let text = one_line(error.render().to_string().trim());
        let mut document = Document::of(None);
        let hints: Vec<String> = peers::hint(&error).into_iter().collect();
        document.fail(&[text.strip_prefix("error: ").unwrap_or(&text).to_owned()], &hints);
        if let Ok(Some(text)) = document.end(Status::BadInput) {
            anstream::println!("{text}");
        }
    }
    let shown: Vec<String> = words.iter().map(|word| one_line(&word.to_string_lossy())).collect();
    if shown.iter().zip(words).all(|(shown, word)| shown.as_str() == word) {
        said(error);
    }
    match Arguments::try_parse_from(shown) {
        Err(mut same) if same.kind() == error.kind() => {
            without_hidden(&mut same);
            said(same)
        }
        _ => {
            anstream::eprintln!("{}", one_line(&error.to_string()));
            process::exit(error.exit_code());
        }
    }
}

/// Takes out of clap's suggestions what `--help` does not show: verbs and options of Penstock's own.
fn without_hidden(error: &mut clap::Error) {
    let mut shown = BTreeSet::new();
    names(&Arguments::command(), &mut shown);
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
        let left: Vec<String> = match error.get(kind) {
            Some(ContextValue::String(one)) => vec![one.clone()],
            Some(ContextValue::Strings(several)) => several.clone(),
            _ => continue,
        };
        let first = |text: &str| text.split([' ', '=']).next().unwrap_or_default().to_owned();
        let left: Vec<String> = left.into_iter().filter(|text| shown.contains(&first(text))).collect();
        match (&left[..], error.get(kind)) {
            ([], _) => drop(error.remove(kind)),
            ([one], Some(ContextValue::String(_))) => {
                drop(error.insert(kind, ContextValue::String(one.clone())))
            }
            _ => drop(error.insert(kind, ContextValue::Strings(left))),
        }
    }
}

/// The names of all verbs and options that `--help` shows, at any depth.
fn names(command: &clap::Command, all: &mut BTreeSet<String>) {
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        all.extend(argument.get_long().map(|long| format!("--{long}")));
    }
    // clap adds them when it parses.
    all.extend(["help", "--help", "--version"].map(str::to_owned));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        all.insert(below.get_name().to_owned());
        all.extend(below.get_visible_aliases().map(str::to_owned));
        names(below, all);
    }
}

/// Says what clap says, and what of ours a verb or option of others stands for; then ends.
fn said(mut error: clap::Error) -> ! {
    let hint = peers::hint(&error);
    if hint.is_some() {
        // What is merely spelled alike.
        for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::Suggested] {
            error.remove(kind);
        }
    }
    // A reader that went away is no reason to say more.
    let _ = error.print();
    if let Some(hint) = hint {
        anstream::eprintln!("\nhelp: {hint}");
    }
    process::exit(error.exit_code());
}

/// What `--color` asks for, as far as it can be understood.
fn color(words: &[OsString]) -> ColorChoice {
    let options = words.iter().skip(1).take_while(|word| *word != "--").filter_map(|word| word.to_str());
    let mut asked = Color::Auto;
    let mut is_value = false;
    for word in options {
        let value = if is_value { Some(word) } else { word.strip_prefix("--color=") };
        asked = value.and_then(|value| Color::from_str(value, false).ok()).unwrap_or(asked);
        is_value = word == "--color";
    }
    match asked {
        // What CLICOLOR or CI say of terminals in general cannot be true of this one.
        Color::Auto if is_dumb() && !is_forced() => ColorChoice::Never,
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    }
}

/// Whether the terminal takes no escape sequences (`TERM`, terminfo(5)).
fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

fn is_forced() -> bool {
    env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_help_does_not_show_is_not_suggested() {
        for (line, unwanted, wanted) in [
            ("foo", "follow", ""),
            ("forward", "forward-connection", "board"),
            ("embeded-switch", "embedded-switch", ""),
            ("gard", "guard", ""),
            ("plam", "guard", "plan"),
            ("board dwn", "guard", "down"),
            ("inside prob", "probe", ""),
            ("check m.yaml --warnd", "--warned", ""),
            ("check m.yaml --strct", "--warned", "--strict"),
        ] {
            let words = ["penstock"].into_iter().chain(line.split(' '));
            let mut error = Arguments::try_parse_from(words).unwrap_err();
            without_hidden(&mut error);
            let text = error.render().to_string();
            let tip = text.split_once("tip:").map_or("", |(_, tip)| tip.split("Usage").next().unwrap_or(""));
            assert!(!tip.contains(unwanted), "{line}: {text}");
            assert!(tip.contains(wanted), "{line}: {text}");
        }
    }

    #[test]
    fn the_choice_of_colours_is_found_where_clap_finds_it() {
        for (line, wanted) in [
            ("--color never scan", ColorChoice::Never),
            ("scan --color=always", ColorChoice::Always),
            ("--color never scan --color always", ColorChoice::Always),
            ("--color never scan --color blue", ColorChoice::Never),
            ("--color never check -- --color=always", ColorChoice::Never),
        ] {
            let words: Vec<OsString> =
                ["penstock"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
            assert_eq!(color(&words), wanted, "{line}");
        }
    }
}
