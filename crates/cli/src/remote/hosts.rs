//! The machines that a verb is for, as the user names them.

use std::{fmt, path::Path, str::FromStr};

use indexmap::IndexSet;
use penstock_host::files;

use crate::{
    arguments::Machines,
    failure::{Failure, Status},
    model_file::named,
};

/// The largest list of machines that is read.
const LIST_LIMIT: usize = 1 << 20;

/// No name of a machine is longer: a user, and a domain name (RFC 1035, 2.3.4).
const LONGEST: usize = 320;

/// A machine as `ssh` knows it: `machine`, `user@machine`, `ssh://user@machine:port` or an alias of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(String);

impl Host {
    /// Its name, which is no option and nothing that a shell would take apart.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        // Commands in a configuration are given the name (`%h`, `%r`), and are run by a shell.
        let harmless = |c: char| c.is_ascii_alphanumeric() || "._-@:/[]%+~=".contains(c);
        if text.is_empty() {
            return Err("a machine has a name".to_owned());
        }
        if text.len() > LONGEST {
            return Err(format!("the name of a machine has at most {LONGEST} characters"));
        }
        if text.starts_with('-') || text.contains("@-") || text.contains("//-") {
            return Err("a name that begins with `-` would be taken for an option of ssh".to_owned());
        }
        if let Some(other) = text.chars().find(|c| !harmless(*c)) {
            return Err(format!("the name of a machine has no {other:?} in it: write user@machine"));
        }
        if text.starts_with('@') || text.ends_with('@') {
            return Err("write user@machine, or the machine alone".to_owned());
        }
        Ok(Host(text.to_owned()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Machines {
    /// Whether it is for another machine than this one, or would be if the command line were right.
    pub fn any(&self) -> bool {
        let Machines { hosts, hosts_from, sudo, at_most, stop_on_failure, ssh_config } = self;
        let how = *sudo || at_most.is_some() || *stop_on_failure || ssh_config.is_some();
        !hosts.is_empty() || hosts_from.is_some() || how
    }

    /// The machines, each once, in the order in which they are named.
    ///
    /// # Errors
    ///
    /// `Status::BadInput` when the file of machines cannot be read or is wrong, or no machine is named at all.
    pub fn named(&self) -> Result<Vec<Host>, Failure> {
        let mut hosts: IndexSet<Host> = self.hosts.iter().cloned().collect();
        if let Some(path) = &self.hosts_from {
            hosts.extend(read(path)?);
        }
        if hosts.is_empty() {
            let text = match &self.hosts_from {
                Some(path) => format!("{} names no machine", path.display()),
                None => "--sudo, --at-most, --stop-on-failure and --ssh-config are for other machines, and none is \
                         named"
                    .to_owned(),
            };
            return Err(Failure::new(Status::BadInput, text).hint("name one: --host user@machine"));
        }
        Ok(hosts.into_iter().collect())
    }
}

fn read(path: &Path) -> Result<Vec<Host>, Failure> {
    let (bytes, more) = named(files::read_named_by_user(path, LIST_LIMIT))?;
    let name = path.display();
    if more {
        return Err(Failure::new(Status::BadInput, format!("{name} is too large for a list of machines")));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::new(Status::BadInput, format!("{name} is not UTF-8 text")))?;
    list(&text).map_err(|(line, why)| Failure::new(Status::BadInput, format!("{name}:{line}: {why}")))
}

/// The machines of a list, or the number of a line and what is wrong with it.
fn list(text: &str) -> Result<Vec<Host>, (usize, String)> {
    let mut hosts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            hosts.push(line.parse().map_err(|why| (at + 1, why))?);
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_ssh_knows_are_taken() {
        for name in ["a", "root@node-7.example.org", "ssh://root@node:2222", "u@[fe80::1%eth0]", "dom+user@h"]
        {
            assert_eq!(name.parse::<Host>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn names_that_would_be_options_or_shell_are_not() {
        let long = "a".repeat(400);
        let bad = [
            "",
            "-oProxyCommand=x",
            "root@-oProxyCommand=x",
            "ssh://-x",
            "a b",
            "a;b",
            "$(a)",
            "a`b`",
            "a|b",
            "a\nb",
            "ä",
            "@a",
            "a@",
            "a'b",
            "a\\b",
            &long,
        ];
        for name in bad {
            assert!(name.parse::<Host>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_list_has_comments_and_its_errors_a_line() {
        let hosts = list("# the rack\nroot@a\n\n  b # spare\r\n").unwrap();
        assert_eq!(hosts.iter().map(Host::as_str).collect::<Vec<_>>(), ["root@a", "b"]);
        assert_eq!(list("a\n-x\n").unwrap_err().0, 2);
    }

    #[test]
    fn a_machine_is_named_once() {
        let hosts = ["a", "b", "a"].map(|name| name.parse().unwrap()).into();
        let machines = Machines { hosts, ..Machines::default() };
        assert_eq!(machines.named().unwrap().len(), 2);
        let machines = Machines { sudo: true, ..Machines::default() };
        assert!(machines.any());
        assert_eq!(machines.named().unwrap_err().status, Status::BadInput);
    }
}
