//! What a test needs of the machine that it runs on, as reasons why it cannot run.

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

use penstock_host::{Command, packages, process};

use crate::binary;

/// Set by `make test`, which has run its install step: from then on no program may be lacking.
pub const INSTALLED: &str = "PENSTOCK_INSTALLED";

/// Why a test cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Something that the install step brings is not there, as a sentence says. Where that step ran, the test fails.
    Installable(String),
    /// The machine itself, its kernel or its user, cannot do it. The test is skipped.
    Machine(String),
}

impl Lack {
    /// Whether it is nothing to skip a test for: the install step has run.
    pub fn fails(&self) -> bool {
        matches!(self, Lack::Installable(_)) && env::var_os(INSTALLED).is_some()
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Installable(why) | Lack::Machine(why) => f.write_str(why),
        }
    }
}

/// A reason is one of the machine's, unless it is said that it is not.
impl From<String> for Lack {
    fn from(why: String) -> Lack {
        Lack::Machine(why)
    }
}

/// The first of these programs that is not installed, if one is not.
pub fn programs(all: &[&str]) -> Option<Lack> {
    let missing = all.iter().find(|program| process::find(program).is_none())?;
    Some(Lack::Installable(not_installed(missing)))
}

/// What the install step of a target of make should have brought and has not, a sentence for each.
pub fn of_target(target: &str) -> Vec<String> {
    let rows = packages::rows().filter(|row| row.is_for(target, process::is_root()));
    let missing = rows.filter(|row| match row.program.strip_prefix("package:") {
        // Which files it has is its own affair.
        Some(_) => false,
        None if row.program.starts_with('/') => !Path::new(row.program).exists(),
        None => process::find(row.program).is_none(),
    });
    missing.map(|row| not_installed(row.program)).collect()
}

fn not_installed(missing: &str) -> String {
    let from = match packages::row(missing) {
        Some(row) if row.package == "image" => {
            "`make test` takes it out of the board's image (scripts/unpack-netperf)".to_owned()
        }
        Some(row) => format!("it is in the package {}, see scripts/programs", row.package),
        None => "it is not in scripts/programs".to_owned(),
    };
    format!("{missing} is not installed: {from}")
}

/// Why the binary that users run cannot be tested here, if so: it was not built.
pub fn built() -> Option<Lack> {
    let built = binary::path().is_some();
    (!built).then(|| Lack::Installable("the optimised binary is not built: run `make build`".to_owned()))
}

/// Why a test that only root can run cannot run here, if so.
pub fn root() -> Option<Lack> {
    (!process::is_root()).then(|| Lack::Machine("needs root".to_owned()))
}

/// Why no board can be booted here, if so: the binary was not built, or its image cannot be made.
///
/// Makes the board image on the first call, which takes minutes on a machine that has none.
pub fn board() -> Option<Lack> {
    let Some(penstock) = binary::path() else { return built() };
    let output = Command::new(penstock).args(["board", "image"]).run();
    let why = match output {
        Err(error) => error.to_string(),
        Ok(output) if output.status.success() => return None,
        Ok(output) => output.errors().trim().to_owned(),
    };
    Some(Lack::Installable(why))
}

/// Why no network namespace can be made here, if so.
pub fn network_namespace() -> Option<Lack> {
    programs(&["unshare", "ip"]).or_else(|| link_of_kind("veth"))
}

/// Why the kernel makes no interface of this kind (`bond`) in a network namespace, if so.
pub fn link_of_kind(kind: &str) -> Option<Lack> {
    refused(Command::new("unshare").args(["--net", "ip", "link", "add", "type", kind]))
}

/// Why the kernel has no interfaces of a VLAN (`CONFIG_VLAN_8021Q`), or no bridges that filter VLANs
/// (`CONFIG_BRIDGE_VLAN_FILTERING`), if so.
pub fn vlans() -> Option<Lack> {
    let lines = "ip link add br0 type bridge vlan_filtering 1 && ip link add link br0 name v type vlan id 7";
    refused(Command::new("unshare").args(["--net", "sh", "-c", lines]))
}

/// Why a command fails that asks for nothing but what a test needs of the kernel, if it does.
pub fn refused(command: Command) -> Option<Lack> {
    match command.run() {
        Err(error) => Some(Lack::Machine(error.to_string())),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(Lack::Machine(output.errors().trim().to_owned())),
    }
}

/// The names that Chromium goes by.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser of Chromium's kind, which draws pages without a screen.
///
/// # Errors
///
/// [`Lack::Installable`] with the names that were looked for.
pub fn browser() -> Result<PathBuf, Lack> {
    let found = BROWSERS.into_iter().find_map(process::find);
    found
        .ok_or_else(|| Lack::Installable(format!("no browser is installed: none of {}", BROWSERS.join(", "))))
}

/// Set by `make test`: the program that scripts/fetch-yaml-language-server has put together.
const YAML_LANGUAGE_SERVER: &str = "PENSTOCK_YAML_LANGUAGE_SERVER";

/// Where `ansible-playbook` is, of ansible-core.
const ANSIBLE: &str = "PENSTOCK_ANSIBLE";

/// The YAML language server that editors run.
///
/// # Errors
///
/// [`Lack::Installable`] with how it is fetched.
pub fn yaml_language_server() -> Result<PathBuf, Lack> {
    fetched(YAML_LANGUAGE_SERVER, "YAML language server", "scripts/fetch-yaml-language-server")
}

/// Where `ansible-playbook` is that scripts/fetch-ansible has fetched.
///
/// # Errors
///
/// [`Lack::Installable`] with how it is fetched.
pub fn ansible() -> Result<PathBuf, Lack> {
    fetched(ANSIBLE, "ansible-core", "scripts/fetch-ansible")
}

/// What a script fetches, by the environment variable that says where it is.
fn fetched(variable: &str, what: &str, script: &str) -> Result<PathBuf, Lack> {
    let path = env::var_os(variable).map(PathBuf::from).filter(|path| path.is_file());
    let why = || format!("there is no {what}: {script} fetches it, and {variable} says where it is");
    path.ok_or_else(|| Lack::Installable(why()))
}

/// Why no file can be a block device here, if so.
pub fn loop_device() -> Option<Lack> {
    // Where it is a module nothing else may have asked for it yet.
    let _ = Command::new("modprobe").args(["-q", "loop"]).run();
    programs(&["losetup"]).or_else(|| {
        let free = Command::new("losetup").arg("--find").run();
        let found = free.is_ok_and(|output| Path::new(output.text().trim()).exists());
        (!found).then(|| Lack::Machine("needs a free loop device".to_owned()))
    })
}

/// Why no container can be run here by root with LXC and the programs `more`, if so.
pub fn containers(more: &[&str]) -> Option<Lack> {
    let lxc = ["lxc-start", "lxc-stop", "lxc-info", "lxc-attach"];
    root().or_else(|| programs(&lxc)).or_else(|| programs(more)).or_else(|| {
        let kernel = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        (!kernel.contains("\toverlay\n")).then(|| Lack::Machine("needs overlayfs".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        assert_eq!(programs(&["sh", "true"]), None);
        let lack = programs(&["sh", "penstock-nosuch"]).unwrap();
        assert_eq!(lack.to_string(), "penstock-nosuch is not installed: it is not in scripts/programs");
        assert!(matches!(lack, Lack::Installable(_)));
        assert!(!Lack::from("the kernel has none".to_owned()).fails());
    }
}
