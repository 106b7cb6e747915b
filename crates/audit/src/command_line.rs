//! The kernel's command line, as words.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use penstock_model::CpuSet;

/// The words of `/proc/cmdline` up to `--`, behind which they are init's (`kernel/params.c`, `parse_args`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// Keys with `_` for every `-`, as the kernel takes both for the same, and their values; `None` for a word without one.
    words: Vec<(String, Option<String>)>,
    /// Whether anybody has asked for any of it since [`CommandLine::forget`]: what was asked of a line that could not be read is
    /// not known.
    asked: Cell<bool>,
}

impl CommandLine {
    pub(crate) fn new(text: &str) -> CommandLine {
        let mut words = Vec::new();
        for word in split(text) {
            if word == "--" {
                break;
            }
            let (key, value) = match word.split_once('=') {
                Some((key, value)) => (key, Some(value.trim_matches('"').to_owned())),
                None => (word.as_str(), None),
            };
            words.push((key.trim_matches('"').replace('-', "_"), value));
        }
        CommandLine { words, asked: Cell::new(false) }
    }

    /// The words in order.
    pub(crate) fn words(&self) -> &[(String, Option<String>)] {
        self.asked.set(true);
        &self.words
    }

    /// Nobody has asked.
    pub(crate) fn forget(&self) {
        self.asked.set(false);
    }

    /// Whether anybody has asked since.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.get()
    }

    /// Whether the word is there, with whichever value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.words().iter().any(|(name, _)| name == key)
    }

    /// The value of a key: the last one, which is what most of the kernel goes by.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.words().iter().rev().find(|(name, _)| name == key)?.1.as_deref()
    }

    /// Whether `key=value` is there, and in force.
    pub(crate) fn says(&self, key: &str, value: &str) -> bool {
        self.value(key) == Some(value)
    }

    /// The words of a key's value that commas separate; semicolons do as well, as the first attack vectors were written.
    pub(crate) fn parts(&self, key: &str) -> Vec<&str> {
        self.value(key).map(|value| value.split([',', ';']).collect()).unwrap_or_default()
    }

    /// Values by key, for keys that are there more than once with different ones.
    pub(crate) fn repeated(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (key, value) in self.words() {
            values.entry(key).or_default().push(value.as_deref().unwrap_or(""));
        }
        values.retain(|_, values| values.iter().any(|value| *value != values[0]));
        values
    }

    /// The CPUs that a key's value lists; flags in front (`managed_irq,domain,2-7`) are none. `None`: there is no such list, or the kernel
    /// does not take it.
    pub(crate) fn cpus(&self, key: &str, last: u32) -> Option<CpuSet> {
        let list: Vec<&str> = self.value(key)?.split(',').skip_while(|part| is_flag(part)).collect();
        let mut cpus = BTreeSet::new();
        for part in list.into_iter().filter(|part| !part.is_empty()) {
            cpus.extend(region(part, last)?);
        }
        (!cpus.is_empty()).then_some(CpuSet(cpus))
    }

    /// The flags in front of the list of `isolcpus` (`kernel/sched/isolation.c`); without one it is `domain`.
    pub(crate) fn isolcpus_flags(&self) -> Vec<&str> {
        let flags: Vec<&str> = self.parts("isolcpus").into_iter().take_while(|part| is_flag(part)).collect();
        if flags.is_empty() && self.has("isolcpus") { vec!["domain"] } else { flags }
    }
}

/// Whether a part of a list of CPUs is a flag in front of it.
fn is_flag(part: &str) -> bool {
    let name = part.split(':').next().unwrap_or(part);
    part.starts_with(|first: char| first.is_ascii_lowercase()) && name != "all"
}

/// More CPUs than any kernel knows (`NR_CPUS`).
const MOST_CPUS: u32 = 1 << 16;

/// One part of a list of CPUs, as `bitmap_parselist` takes it (`lib/bitmap-str.c`): `all`, `4`, `2-5`, where `N` stands for the `last` CPU; and
/// `2-15:1/4`, the first of every four.
fn region(part: &str, last: u32) -> Option<impl Iterator<Item = u32>> {
    let number = |text: &str| -> Option<u32> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().filter(|number| *number < MOST_CPUS)
    };
    let cpu = |text: &str| if text == "N" { Some(last) } else { number(text) };
    let (range, pattern) = part.split_once(':').map_or((part, None), |(range, rest)| (range, Some(rest)));
    let (first, end) = match range.split_once('-') {
        _ if range.eq_ignore_ascii_case("all") => (0, last),
        Some((first, end)) => (cpu(first)?, cpu(end)?),
        // A single CPU has no pattern.
        None if pattern.is_some() => return None,
        None => (cpu(range)?, cpu(range)?),
    };
    let (used, group) = match pattern {
        Some(pattern) => {
            let (used, group) = pattern.split_once('/')?;
            (number(used)?, number(group)?)
        }
        None => (1, 1),
    };
    let good = first <= end && group > 0 && used <= group;
    good.then(|| (first..=end).filter(move |cpu| (cpu - first) % group < used))
}

/// Words, with what quotes hold together in one.
fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for character in text.chars() {
        match character {
            '"' => {
                quoted = !quoted;
                word.push('"');
            }
            character if character.is_whitespace() && !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            character => word.push(character),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_the_kernel_reads_them() {
        let line = CommandLine::new(
            "ro quiet rcu-nocbs=2-N isolcpus=managed_irq,domain,2-3,6 dyndbg=\"file a.c +p\" tsc=a tsc=reliable -- nohz=off\n",
        );
        assert!(line.has("quiet") && !line.has("nohz"));
        assert_eq!(line.cpus("rcu_nocbs", 7), "2-7".parse().ok());
        assert_eq!(line.cpus("isolcpus", 7), "2-3,6".parse().ok());
        assert_eq!(line.isolcpus_flags(), ["managed_irq", "domain"]);
        assert_eq!(line.value("dyndbg"), Some("file a.c +p"));
        assert!(line.says("tsc", "reliable"));
        assert_eq!(line.repeated().get("tsc"), Some(&vec!["a", "reliable"]));
        assert_eq!(CommandLine::new("isolcpus=1").isolcpus_flags(), ["domain"]);
        assert_eq!(CommandLine::new("rcu_nocbs=all").cpus("rcu_nocbs", 1), "0-1".parse().ok());
        assert_eq!(CommandLine::new("nohz_full=x").cpus("nohz_full", 1), None);
    }

    /// The grammar of `Documentation/admin-guide/kernel-parameters.rst`, "CPU lists".
    #[test]
    fn lists_of_cpus_are_what_the_kernel_takes() {
        for (list, wanted) in [
            ("0-15:1/4", "0,4,8,12"),
            ("2-7:2/3,14", "2-3,5-6,14"),
            ("all", "0-15"),
            ("ALL", "0-15"),
            ("all:1/2", "0,2,4,6,8,10,12,14"),
            ("N", "15"),
            ("12-N:1/2", "12,14"),
            ("N-N", "15"),
            ("02,003-04", "2-4"),
            ("2,,5,", "2,5"),
            ("managed_irq,domain,8-N", "8-15"),
            ("nohz,all", "0-15"),
        ] {
            let line = CommandLine::new(&format!("isolcpus={list}"));
            assert_eq!(line.cpus("isolcpus", 15), wanted.parse().ok(), "{list}");
        }
        for odd in
            ["5-2", "0-7:1", "0-7:3/2", "0-7:1/0", "3:1/2", "1N", "0-9999999", "-3", "+1", "1.5", "domain"]
        {
            let line = CommandLine::new(&format!("isolcpus={odd}"));
            assert_eq!(line.cpus("isolcpus", 15), None, "{odd}");
        }
    }
}
