//! The names of systemd-networkd's units, and which interface names it takes.

use penstock_model::{Function, InterfaceName};

/// Units of one function: `.link` and `.network`.
pub const UNITS: usize = 2;

/// The paths of a function's units below `directory`. Each matches one MAC address, so that their order does not matter;
/// they only have to come before systemd's own `99-default.link`.
pub fn units(directory: &str, function: &Function) -> [String; UNITS] {
    let directory = directory.trim_end_matches('/');
    ["link", "network"].map(|kind| format!("{directory}/10-{}.{kind}", function.interface))
}

/// Why systemd would not take an interface name that the kernel takes (`ifname_valid_full` in
/// `src/basic/socket-util.c`; a backslash at the end of a line continues it, `src/shared/conf-parser.c`).
pub fn refuses(name: &InterfaceName) -> Option<&'static str> {
    let name = name.as_str();
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        Some("it would take a name of digits alone for a number")
    } else if matches!(name, "all" | "default") {
        Some("that is a directory of the kernel's settings (/proc/sys/net/ipv4/conf)")
    } else if name.ends_with('\\') {
        Some("a backslash at the end of a line continues the line in a unit")
    } else {
        None
    }
}
