//! What the host sets up inside a container before its first process: a script that LXC runs as its `start-host` hook. The interfaces are
//! inside by then with their names and addresses, and the first process has not been executed.

use std::fmt::Write;

use penstock_host::process::quoted;
use penstock_model::{GuestName, InterfaceName};
use penstock_plan::action::{GuestDefinition, GuestFunction};

use super::{rates, routes};
use crate::error::GuestError;

/// What the script is called in the guest's directory.
pub const SCRIPT: &str = "start.sh";

/// Where the script says what it is at, and its programs what went wrong.
pub const LOG: &str = "start.log";

/// Before each thing that it sets the script says which, after this.
const MARK: &str = "# ";

/// What the script says last.
const DONE: &str = "# done";

/// Whether the container has anything to be set up so.
pub fn wanted(definition: &GuestDefinition) -> bool {
    definition.functions.iter().any(|function| rates::wanted(function) || !function.routes.is_empty())
        || definition.nics.iter().any(|own| !own.nic.routes.is_empty())
}

/// The script. `outside` has the name and the MTU of each function's interface on the host, in the definition's order; `directory` is the
/// guest's own, and needs no quoting. `None` when there is nothing to set.
///
/// When it fails, it gives the interfaces back to the host before LXC ends the guest: after a hook that failed LXC itself
/// leaves them to the kernel, which knows no other place for them than the first namespace of all.
pub fn script<'a>(
    directory: &str,
    definition: &GuestDefinition,
    outside: impl IntoIterator<Item = (&'a InterfaceName, u32)>,
) -> Option<String> {
    if !wanted(definition) {
        return None;
    }
    let (mut set_up, mut back) = (String::new(), String::new());
    for (position, (function, (outside, mtu))) in definition.functions.iter().zip(outside).enumerate() {
        let GuestFunction { interface, .. } = function;
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            back,
            "    inside ip link set dev {0} down\n    inside ip link set dev {0} netns $$ name {1}",
            quoted(interface.as_str()),
            quoted(outside.as_str())
        );
        rates::commands(&mut set_up, position, function, mtu);
        routes::commands(&mut set_up, interface.as_str(), &function.routes);
    }
    for own in &definition.nics {
        routes::commands(&mut set_up, own.name.as_str(), &own.nic.routes);
    }
    Some(format!(
        "#!/bin/sh\n\
         # Made at each start. LXC runs it on the host when the guest's interfaces are inside, before its first process.\n\
         PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n\
         exec >{directory}/{LOG} 2>&1\n\
         set -e\n\
         say() {{ echo \"{MARK}$*\"; }}\n\
         inside() {{ nsenter -t \"$LXC_PID\" -n -- \"$@\"; }}\n\
         back() {{\n\
         {back}\
         }}\n\
         trap '[ $? = 0 ] || {{ set +e; back; }} >/dev/null 2>&1' EXIT\n\
         {set_up}\
         echo '{DONE}'\n"
    ))
}

/// What a script that failed was at, from its log; `None` when it did not fail, or never ran.
pub fn failure(guest: &GuestName, log: &str) -> Option<GuestError> {
    let (at, rest) = log.rsplit_once(MARK).map(|(_, last)| last.split_once('\n').unwrap_or((last, "")))?;
    let (what, of) = at.split_once(' ')?;
    let said: Vec<&str> = rest.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = |program: &str| match said[..] {
        [] => format!("{program} did not say why"),
        _ => said.join(" "),
    };
    let guest = guest.clone();
    if what == routes::WORD {
        let (interface, route) = of.split_once(' ')?;
        let (interface, route) = (interface.to_owned(), route.to_owned());
        return Some(GuestError::NoRoute { guest, interface, route, why: said("ip") });
    }
    Some(GuestError::NoRate { guest, what: what.to_owned(), interface: of.to_owned(), why: said("tc") })
}
