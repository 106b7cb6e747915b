//! The inside of a running container.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use penstock_host::{
    Command, InterfaceReport, Netlink, Output, Place, PlaceError, Root, chain, files, running::Running,
};
use penstock_model::GuestName;

use super::lxc;
use crate::{incus, state::State};

/// How long a command without a deadline of its own may run inside: a hostile container can stop whatever runs there.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The inside of a container, for as long as it runs.
#[derive(Clone, Debug)]
pub struct ContainerPlace {
    root: Root,
    entrance: Entrance,
    guest: GuestName,
    init: Running,
}

/// How a command gets in.
#[derive(Clone, Debug)]
enum Entrance {
    /// By LXC, which runs the container for Penstock.
    Lxc(State),
    /// By Incus, which runs it for itself.
    Incus,
}

impl ContainerPlace {
    pub(crate) fn new(root: Root, state: State, guest: GuestName, init: Running) -> ContainerPlace {
        ContainerPlace { root, entrance: Entrance::Lxc(state), guest, init }
    }

    /// The inside of an instance of Incus.
    pub(crate) fn of_incus(root: Root, guest: GuestName, init: Running) -> ContainerPlace {
        ContainerPlace { root, entrance: Entrance::Incus, guest, init }
    }

    /// The name of the container.
    pub fn guest(&self) -> &GuestName {
        &self.guest
    }

    /// Its first process, as the host numbers it.
    pub fn pid(&self) -> u32 {
        self.init.id
    }

    /// Fails when the container has stopped: what was asked of it is then about nothing, or about another process that
    /// has the number now.
    fn still_runs(&self) -> Result<(), PlaceError> {
        if self.init.is_alive_below(&self.root) {
            return Ok(());
        }
        Err(PlaceError::Gone {
            place: self.describe(),
            why: "the container does not run any more".to_owned(),
        })
    }

    /// The command that runs `command` inside.
    fn attached(&self, command: &Command) -> Command {
        let (mut attach, option) = match &self.entrance {
            Entrance::Lxc(state) => {
                (lxc::command("lxc-attach", state, &self.guest).arg("--clear-env"), "--set-var=")
            }
            Entrance::Incus => (incus::exec(&self.guest), "--env="),
        };
        for (name, value) in command.environment() {
            let mut variable = OsString::from(option);
            variable.push(name);
            variable.push("=");
            variable.push(value);
            attach = attach.arg(variable);
        }
        attach = attach.arg("--");
        if let Some(directory) = command.directory() {
            // The shell is given everything as arguments, so that nothing has to be quoted.
            attach = attach.args(["/bin/sh", "-c", "cd -- \"$0\" && exec \"$@\""]).arg(directory);
        }
        attach
            .arg(command.program())
            .args(command.arguments())
            .input(command.standard_input())
            .deadline(command.time_allowed().unwrap_or(TIMEOUT))
    }
}

impl Place for ContainerPlace {
    fn describe(&self) -> String {
        format!("inside {}", self.guest)
    }

    fn run(&self, command: &Command) -> Result<Output, PlaceError> {
        self.still_runs()?;
        let output = self.attached(command).run();
        // Its status means nothing when there was nowhere to run it.
        self.still_runs()?;
        output.map_err(|source| PlaceError::Process { place: self.describe(), source })
    }

    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, PlaceError> {
        let inside = PathBuf::from(format!("/proc/{}/root", self.init.id));
        let bytes = files::read_in_root(self.root.path(inside), path, limit);
        self.still_runs()?;
        bytes.map_err(|error| PlaceError::File {
            place: self.describe(),
            path: path.to_owned(),
            why: error.source.to_string(),
        })
    }

    fn interfaces(&self) -> Result<Vec<InterfaceReport>, PlaceError> {
        let reports =
            Netlink::in_namespace_of(self.init.id).and_then(|mut netlink| netlink.routed_interfaces());
        self.still_runs()?;
        reports.map_err(|error| PlaceError::Gone { place: self.describe(), why: chain(&error) })
    }

    fn namespace(&self) -> Result<Option<u32>, PlaceError> {
        self.still_runs()?;
        Ok(Some(self.init.id))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn arguments_arrive_as_they_are() {
        let place = ContainerPlace::new(
            Root::system(),
            State::new("/run/x".into()),
            "a".parse().unwrap(),
            Running { id: 1, started: 1 },
        );
        let command =
            Command::new("printf").args(["%s", "-n", "a b'c"]).env("LC_ALL", "C x").current_dir("/tmp/d e");
        let attached = place.attached(&command);
        let words: Vec<&OsStr> = attached.arguments().iter().map(OsString::as_os_str).collect();
        let wanted = [
            "-P",
            "/run/x",
            "-n",
            "penstock-a",
            "--clear-env",
            "--set-var=LC_ALL=C x",
            "--",
            "/bin/sh",
            "-c",
            "cd -- \"$0\" && exec \"$@\"",
            "/tmp/d e",
            "printf",
            "%s",
            "-n",
            "a b'c",
        ];
        assert_eq!(words, wanted.map(OsStr::new));

        let place =
            ContainerPlace::of_incus(Root::system(), "a".parse().unwrap(), Running { id: 1, started: 1 });
        let attached = place.attached(&command);
        let words: Vec<&OsStr> = attached.arguments().iter().map(OsString::as_os_str).collect();
        assert_eq!(
            words[..4],
            ["exec", "local:a", "--mode=non-interactive", "--env=LC_ALL=C x"].map(OsStr::new)
        );
        assert_eq!(words[4..], wanted[6..].iter().map(OsStr::new).collect::<Vec<_>>());
    }
}
