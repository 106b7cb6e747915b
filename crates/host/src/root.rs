//! Where a machine's file systems are looked for.

use std::path::{Path, PathBuf};

/// The directory that stands for `/`: the real one, or a fixture's, or a recorded tree. A value, never a global.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// The machine that Penstock runs on.
    pub fn system() -> Root {
        Root(PathBuf::from("/"))
    }

    /// A tree that stands for a machine.
    pub fn at(directory: impl Into<PathBuf>) -> Root {
        Root(directory.into())
    }

    /// Whether this is the machine that Penstock runs on; only then is there a kernel to ask.
    pub fn is_system(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The path `absolute` under this root: `root.path("/sys/bus/pci")`.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }
}

impl Default for Root {
    fn default() -> Root {
        Root::system()
    }
}
