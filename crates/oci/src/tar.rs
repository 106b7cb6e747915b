//! Archives in memory (`ustar`, pax(1)): the same bytes for the same files.

use std::io::Empty;

use tar::{Builder, EntryType, Header};

/// What cannot fail: memory takes all that is written.
const TAKEN: &str = "an archive in memory takes an entry";

/// An archive that grows.
pub struct Tar {
    builder: Builder<Vec<u8>>,
}

impl Default for Tar {
    fn default() -> Tar {
        Tar { builder: Builder::new(Vec::new()) }
    }
}

impl Tar {
    /// A directory, with the permissions 0755.
    pub fn directory(&mut self, name: &str) {
        self.builder
            .append_data(&mut header(EntryType::Directory, 0o755), format!("{name}/"), Empty::default())
            .expect(TAKEN);
    }

    /// A plain file.
    pub fn file(&mut self, name: &str, mode: u32, contents: &[u8]) {
        let mut header = header(EntryType::Regular, mode);
        header.set_size(contents.len() as u64);
        self.builder.append_data(&mut header, name, contents).expect(TAKEN);
    }

    /// A symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.builder.append_link(&mut header(EntryType::Symlink, 0o777), name, target).expect(TAKEN);
    }

    /// The whole archive.
    pub fn finish(self) -> Vec<u8> {
        self.builder.into_inner().expect(TAKEN)
    }
}

/// From the beginning of 1970.
fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = blank(0);
    header.set_entry_type(kind);
    header.set_mode(mode);
    header
}

/// The header of an empty file of root's, with every number written: some readers take none for no number. `modified` is in seconds since
/// 1970.
pub fn blank(modified: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header.set_mtime(modified);
    header
}
