//! What a test needs of the machine that it runs on, as reasons why it cannot run.

use std::{path::PathBuf, process::Command};

use penstock_host::process;

use crate::binary;

/// Why no board can be booted here, if so: the binary was not built, or its image cannot be made.
///
/// Makes the board image on the first call, which takes minutes on a machine that has none.
pub fn board() -> Option<String> {
    let Some(penstock) = binary::path() else {
        return Some("the optimised binary is not built: run `make build`".to_owned());
    };
    let output = Command::new(penstock).args(["board", "image"]).output();
    match output {
        Err(error) => Some(error.to_string()),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Why no network namespace can be made here, if so.
pub fn network_namespace() -> Option<String> {
    let output = Command::new("unshare").args(["--net", "ip", "link", "add", "type", "veth"]).output();
    match output {
        Err(error) => Some(format!("unshare and ip cannot be run: {error}")),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// The names that Chromium goes by.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser of Chromium's kind, which draws pages without a screen.
pub fn browser() -> Result<PathBuf, String> {
    let found = BROWSERS.into_iter().find_map(process::find);
    found.ok_or_else(|| format!("no browser is installed: none of {}", BROWSERS.join(", ")))
}

/// Why no container can be run here by root with LXC and the programs `more`, if so.
pub fn containers(more: &[&str]) -> Option<String> {
    if !process::is_root() {
        return Some("needs root".to_owned());
    }
    let lxc = ["lxc-start", "lxc-stop", "lxc-info", "lxc-attach"];
    if let Some(program) = lxc.iter().chain(more).find(|program| process::find(program).is_none()) {
        return Some(format!("needs {program}"));
    }
    let kernel = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    (!kernel.contains("\toverlay\n")).then(|| "needs overlayfs".to_owned())
}
