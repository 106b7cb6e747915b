//! What an audit advises, as data: the text that people read is made of it, and so is what a test carries out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One change of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Change {
    /// Writes a value to a file of the running kernel, until the next start.
    Write {
        /// The file's path.
        path: String,
        /// What is written, without the line feed.
        value: String,
    },
    /// Changes words of the boot command line, from the next start on.
    BootLine {
        /// Words that are to be there. One takes the place of those with the same key.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        add: Vec<String>,
        /// Words that are to go: `key` with whichever value, or `key=value`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remove: Vec<String>,
    },
    /// Sets an option that a module takes when it is loaded, and loads it anew.
    ModuleOption {
        /// The module whose parameter it is.
        module: String,
        /// The option's name.
        option: String,
        /// The value to set.
        value: String,
    },
    /// Sets a variable in the settings of a service, and starts the service anew.
    Setting {
        /// The settings' path.
        path: String,
        /// The variable's name.
        name: String,
        /// Its value; empty takes it back.
        value: String,
        /// The service that reads it; empty where only a new start of the machine does.
        service: String,
    },
    /// Stops services and timers, now and from the next start on.
    Disable {
        /// The units of systemd.
        units: Vec<String>,
    },
    /// Says something in the model; `penstock apply` does the rest.
    Model {
        /// What: keys of the model, or `as it is` when applying it is all that is missing.
        says: String,
    },
    /// Something that no command does: a setting of firmware, another slot.
    ByHand {
        /// What, in words.
        what: String,
    },
}

/// One way to put something right: all of its changes, and no others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Remedy {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// What this may break or end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beware: Option<String>,
}

/// What a sysctl is called, by its file.
fn sysctl(path: &str) -> Option<String> {
    Some(path.strip_prefix("/proc/sys/")?.replace('/', "."))
}

/// A path with its last number that differs from that of `other` cut out: what is before it, the two numbers, what is after it.
fn but_for_a_number<'a>(path: &'a str, other: &'a str) -> Option<(&'a str, &'a str, &'a str, &'a str)> {
    let same = path.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let start = path[..same].trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (one, two) = (&path[start..], &other[start..]);
    let (first, second) = (digits(one), digits(two));
    let fits = first > 0 && second > 0 && one[first..] == two[second..];
    fits.then(|| (&path[..start], &one[..first], &two[..second], &one[first..]))
}

/// Writes of one value to files whose paths differ in one number: `tee` takes them all at once.
fn together(changes: &[Change]) -> Option<(String, &str, usize)> {
    let [Change::Write { path, value }, rest @ ..] = changes else { return None };
    let mut numbers: Vec<&str> = Vec::new();
    let mut around = None;
    for change in rest {
        let Change::Write { path: other, value: another } = change else { break };
        if another != value {
            break;
        }
        let Some((before, one, two, after)) = but_for_a_number(path, other) else { break };
        if *around.get_or_insert((before, after)) != (before, after) {
            break;
        }
        if numbers.is_empty() {
            numbers.push(one);
        }
        numbers.push(two);
    }
    let (before, after) = around?;
    Some((format!("{before}{{{}}}{after}", numbers.join(",")), value, numbers.len()))
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Write { path, value } => match sysctl(path) {
                Some(name) if !value.contains(char::is_whitespace) => write!(f, "sysctl -w {name}={value}"),
                _ if value.contains(|c: char| c.is_whitespace() || "*;=&|<>()$#'\"".contains(c)) => {
                    write!(f, "echo '{value}' > {path}")
                }
                _ => write!(f, "echo {value} > {path}"),
            },
            Change::BootLine { add, remove } => {
                f.write_str("boot command line:")?;
                let (add, remove) = (add.join(" "), remove.join(" "));
                if !add.is_empty() {
                    write!(f, " {add}")?;
                }
                match (add.is_empty(), remove.is_empty()) {
                    (_, true) => Ok(()),
                    (true, false) => write!(f, " without {remove}"),
                    (false, false) => write!(f, ", without {remove}"),
                }
            }
            Change::ModuleOption { module, option, value } => write!(
                f,
                "echo 'options {module} {option}={value}' > /etc/modprobe.d/penstock-{module}-{option}.conf, and load {module} anew (no VM may run)"
            ),
            Change::Setting { path, name, value, service } if service.is_empty() => {
                write!(f, "{name}={value} in {path}, and start the machine anew")
            }
            Change::Setting { path, name, value, service } => {
                write!(f, "{name}={value} in {path}; systemctl restart {service}")
            }
            Change::Disable { units } => write!(f, "systemctl disable --now {}", units.join(" ")),
            Change::Model { says } if says.is_empty() => f.write_str("penstock apply MODEL"),
            Change::Model { says } => write!(f, "in the model: {says}"),
            Change::ByHand { what } => f.write_str(what),
        }
    }
}

impl fmt::Display for Remedy {
    /// The changes in one line each, and then what to beware of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.changes.as_slice();
        let mut first = true;
        while let [change, after @ ..] = rest {
            if !std::mem::take(&mut first) {
                f.write_str("\n")?;
            }
            if let Some((paths, value, count)) = together(rest) {
                write!(f, "echo {value} | tee {paths}")?;
                rest = &rest[count..];
            } else {
                write!(f, "{change}")?;
                rest = after;
            }
        }
        match &self.beware {
            Some(beware) => write!(f, "\n# beware: {beware}"),
            None => Ok(()),
        }
    }
}

/// All ways as people read them: a line each change, `# or:` between two ways.
pub fn text(ways: &[Remedy]) -> Option<String> {
    let ways: Vec<String> = ways.iter().map(ToString::to_string).collect();
    (!ways.is_empty()).then(|| ways.join("\n# or:\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &str, value: &str) -> Change {
        Change::Write { path: path.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn changes_read_as_commands() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for (change, wanted) in [
            (write("/proc/sys/vm/stat_interval", "10"), "sysctl -w vm.stat_interval=10"),
            (write("/sys/kernel/mm/ksm/run", "2"), "echo 2 > /sys/kernel/mm/ksm/run"),
            (write("/sys/fs/resctrl/a/schemata", "L3:0=f"), "echo 'L3:0=f' > /sys/fs/resctrl/a/schemata"),
            (
                Change::BootLine { add: words(&["a=1", "b"]), remove: words(&["c"]) },
                "boot command line: a=1 b, without c",
            ),
            (Change::BootLine { add: vec![], remove: words(&["c"]) }, "boot command line: without c"),
            (Change::Model { says: String::new() }, "penstock apply MODEL"),
        ] {
            assert_eq!(change.to_string(), wanted);
        }
    }

    #[test]
    fn writes_that_differ_in_a_number_are_one_command() {
        let of_cpu = |cpu: u32| write(&format!("/sys/devices/system/cpu/cpu{cpu}/power/x"), "n/a");
        let way = Remedy {
            changes: vec![of_cpu(1), of_cpu(10), of_cpu(2), write("/a", "1"), write("/b", "1")],
            beware: Some("it ends something".to_owned()),
        };
        assert_eq!(
            way.to_string(),
            "echo n/a | tee /sys/devices/system/cpu/cpu{1,10,2}/power/x\necho 1 > /a\necho 1 > /b\n# beware: it ends something"
        );
        let alone = Remedy { changes: vec![of_cpu(3)], beware: None };
        assert_eq!(
            text(&[way, alone]).unwrap().lines().last(),
            Some("echo n/a > /sys/devices/system/cpu/cpu3/power/x")
        );
        assert_eq!(text(&[]), None);
    }

    #[test]
    fn a_change_is_data() {
        let change = Change::BootLine { add: vec!["a".to_owned()], remove: vec![] };
        assert_eq!(serde_json::to_string(&change).unwrap(), r#"{"kind":"boot_line","add":["a"]}"#);
    }
}
