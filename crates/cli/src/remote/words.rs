//! The command line as it is given to the Penstock on another machine: the user's own, without what is for this one.

/// Options of this side that have a value.
const VALUED: [&str; 5] = ["--host", "--hosts-from", "--at-most", "--ssh-config", "--color"];

/// Options of this side that have none.
const PLAIN: [&str; 2] = ["--sudo", "--stop-on-failure"];

/// The words of a command line that was understood, the program's name left out, as the other side needs them.
pub fn for_there(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut there = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        // What comes after it are no options.
        if word == "--" {
            there.push(word);
            there.extend(words);
            break;
        }
        if VALUED.contains(&word.as_str()) {
            words.next();
        } else if !PLAIN.contains(&word.as_str()) && !VALUED.iter().any(|name| is_with_value(&word, name)) {
            there.push(word);
        }
    }
    there
}

fn is_with_value(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_this_side_is_left_out() {
        let there = |line: &str| for_there(line.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(
            there("--json apply --host a,b m.yaml --host=c --sudo --allow ssh:eno1"),
            "--json apply m.yaml --allow ssh:eno1"
        );
        assert_eq!(there("scan --at-most 3 --hosts-from=f --stop-on-failure --ssh-config x"), "scan");
        assert_eq!(there("check --host a -- --host"), "check -- --host");
        assert_eq!(there("check --hostile"), "check --hostile");
    }
}
