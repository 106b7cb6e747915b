//! A machine's root directory with GRUB's own tools in it, on which they run for real. Only `grub-probe`, which looks for the
//! disk behind a directory, is a stand-in: there is no disk.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use nix::mount::{MsFlags, mount};
use penstock_host::Command;
use tempfile::TempDir;

use crate::{
    needs::{self, Lack},
    script,
    unpacked::{self, GRUB},
};

/// What stands for the disk and its file system.
const PROBE: &str = "#!/bin/sh\ncase \"$*\" in\n*target=device*) echo /dev/vda1 ;;\n*target=fs_uuid*) echo 11111111-2222 ;;\n*target=fs*) echo ext2 ;;\nesac\n";

/// Why GRUB's tools cannot be run here, if so.
pub fn lacking() -> Option<Lack> {
    if let Some(lack) = needs::root() {
        return Some(lack);
    }
    let needed = ["usr/sbin/grub-mkconfig", "usr/sbin/update-grub", "etc/grub.d/10_linux"];
    let not_installed = needed.into_iter().filter(|path| !Path::new("/").join(path).exists());
    unpacked::lacking(GRUB, &not_installed.collect::<Vec<_>>())
}

/// A root directory of its own.
#[derive(Debug)]
pub struct Machine {
    directory: TempDir,
}

impl Machine {
    /// This machine's files with the tools, under a layer that is gone with the calling thread's mount namespace, which
    /// must be its own. The kernel that it starts is called `6.1.0-test`; before any of ours it is told `quiet`.
    ///
    /// # Panics
    ///
    /// Where [`lacking`] tells why.
    pub fn new() -> Machine {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("mounts of our own");
        mount(Some("tmpfs"), directory.path(), Some("tmpfs"), MsFlags::empty(), none).expect("a tmpfs");
        let place = |name: &str| directory.path().join(name);
        for name in ["upper", "work", "root"] {
            fs::create_dir(place(name)).expect("a directory");
        }
        let mut tree = String::new();
        if let Ok(from) = env::var(GRUB) {
            // A copy: no layer may be within another.
            Command::new("cp").arg("-a").arg(from).arg(place("tree")).succeed().expect("a copy");
            tree = format!("{}:", place("tree").display());
        }
        let options = format!(
            "lowerdir={tree}/,upperdir={},workdir={}",
            place("upper").display(),
            place("work").display()
        );
        mount(Some("overlay"), &place("root"), Some("overlay"), MsFlags::empty(), Some(options.as_str()))
            .expect("an overlay");
        let machine = Machine { directory };
        machine.write("/usr/sbin/grub-probe", PROBE);
        // It asks the kernel which mount a directory belongs to.
        machine.write("/usr/bin/grub-mkrelpath", "#!/bin/sh\nfor last; do :; done\necho \"$last\"\n");
        machine.write("/etc/default/grub", "GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n");
        machine.write("/boot/vmlinuz-6.1.0-test", "");
        machine.write("/boot/grub/grub.cfg", "");
        machine
    }

    /// Its root directory.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The command line that the menu's first entry gives the kernel, without the kernel's own name.
    ///
    /// # Panics
    ///
    /// When the menu has no such entry.
    pub fn command_line(&self) -> String {
        let menu = fs::read_to_string(self.root().join("boot/grub/grub.cfg")).expect("a menu");
        let line = menu
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with("linux\t") || line.starts_with("linux "));
        let line = line.unwrap_or_else(|| panic!("no entry starts a kernel:\n{menu}"));
        line.split_ascii_whitespace().skip(2).collect::<Vec<_>>().join(" ")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("it is absolute")).expect("a directory");
        let _ = fs::remove_file(&path);
        script::write(path, text);
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}
