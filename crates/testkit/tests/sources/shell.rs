//! What a shell script calls.

use std::collections::BTreeSet;

/// What a shell has itself.
pub const BUILTINS: [&str; 45] = [
    "!", "[", "[[", ":", ".", "{", "}", "alias", "break", "case", "cd", "command", "continue", "do", "done",
    "echo", "elif", "else", "esac", "eval", "exec", "exit", "export", "false", "fi", "for", "function", "if",
    "in", "kill", "local", "printf", "pwd", "read", "return", "set", "shift", "test", "then", "time", "trap",
    "true", "ulimit", "umask", "unset",
];

/// The commands of a script, as far as they are plain words: what stands at the beginning of a line, or behind what ends a command or
/// begins a list of them. What is quoted is no command, but for what `$(...)` has in it.
pub fn commands(script: &str) -> BTreeSet<String> {
    let mut text = String::new();
    let mut until: Option<String> = None;
    for line in script.lines() {
        if let Some(end) = &until {
            if line.trim() == end {
                until = None;
            }
            continue;
        }
        let line = line.trim();
        if let Some((_, end)) = line.split_once("<<") {
            until = Some(end.trim_matches(|c| "-'\"".contains(c)).to_owned());
        }
        match line.strip_suffix('\\') {
            Some(part) => text += part,
            None => text += &format!("{line}\n"),
        }
    }
    let (mut plain, mut quote, mut depth, mut before) = (String::new(), None, Vec::new(), '\n');
    let (mut comment, mut braces) = (false, Vec::new());
    for c in text.chars() {
        let begins_word = before.is_whitespace();
        match (quote, c) {
            _ if comment => comment = c != '\n',
            (None, '#') if begins_word => comment = true,
            // `${1:?what to say}` is a value.
            (None | Some('"'), '{') if before == '$' => braces.push(quote.replace('}')),
            (Some('}'), '}') => quote = braces.pop().flatten(),
            // In the place of a command what is quoted is one that this cannot know.
            (None, '\'' | '"') => {
                quote = Some(c);
                plain.push('?');
            }
            (Some('\''), '\'') => quote = None,
            (Some('"'), '"') => quote = None,
            (Some('"'), '(') if before == '$' => {
                depth.push(quote.take());
                plain.push_str(" $(");
            }
            (None, '(') => {
                depth.push(None);
                plain.push('(');
            }
            (None, ')') if !depth.is_empty() => {
                quote = depth.pop().flatten();
                plain.push_str(" ) ");
            }
            // What a `case` chooses by stands before it.
            (None, ')') => plain.push_str(" \u{2} "),
            (None, c) => plain.push(c),
            _ => {}
        }
        if comment && c == '\n' {
            plain.push('\n');
        }
        before = if c == '\n' { '\n' } else { c };
    }
    let marks = ["&&", "||", "|", ";", "\n", "(", ")"];
    let spaced = marks.iter().fold(plain, |text, mark| text.replace(mark, " \u{1} "));
    let leads = ["then", "do", "else", "elif", "if", "while", "until", "!", "{", "exec", "command", "\u{1}"];
    let (mut found, mut begins) = (BTreeSet::new(), true);
    let words: Vec<&str> = spaced.split_whitespace().filter(|word| *word != "in").collect();
    for (at, word) in words.iter().copied().enumerate() {
        // `a|b)`: up to the parenthesis nothing is a command.
        let rest = words[at..].iter().position(|word| *word == "\u{2}");
        let chooses = rest.is_some_and(|end| {
            words[at..at + end].chunks(2).all(|pair| pair.len() == 1 || pair[1] == "\u{1}")
        });
        let variable = word.split_once('=').is_some_and(|(name, _)| !name.is_empty());
        if word == "\u{1}" || word == "\u{2}" {
            begins = true;
        } else if !begins || leads.contains(&word) || variable || chooses {
            // No command, or one comes behind it.
        } else {
            let name = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_+.".contains(c));
            if name && word.starts_with(|c: char| c.is_ascii_lowercase()) {
                found.insert(word.to_owned());
            }
            begins = false;
        }
    }
    found
}
