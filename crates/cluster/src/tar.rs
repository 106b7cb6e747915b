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

/// Of root's, empty, from the beginning of 1970.
fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_host::Command;

    #[test]
    fn tar_reads_what_is_written() {
        let mut archive = Tar::default();
        archive.directory("bin");
        archive.file("bin/a", 0o755, &[b'x'; 1000]);
        archive.link("bin/b", "a");
        let output = Command::new("tar").args(["-tvf", "-"]).input(archive.finish()).succeed().unwrap();
        let text = output.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with("bin/"), "{text}");
        assert!(lines[1].starts_with("-rwxr-xr-x") && lines[1].contains(" 1000 "), "{text}");
        assert!(lines[2].starts_with("lrwxrwxrwx") && lines[2].ends_with("bin/b -> a"), "{text}");
    }
}
