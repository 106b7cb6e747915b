//! Archives as POSIX has them (`ustar`, pax(1)): the same bytes for the same files. Only what an image needs: directories, files, symbolic
//! links, short names.

/// Bytes of a block: the header of an entry takes one, its contents whole ones.
const BLOCK: usize = 512;

/// An archive that grows.
#[derive(Debug, Default)]
pub struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    /// A directory, with the permissions 0755.
    pub fn directory(&mut self, name: &str) {
        self.entry(&format!("{name}/"), b'5', 0o755, "", &[]);
    }

    /// A plain file.
    pub fn file(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entry(name, b'0', mode, "", contents);
    }

    /// A symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.entry(name, b'2', 0o777, target, &[]);
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    /// Names and targets are ours and have less than 100 bytes.
    fn entry(&mut self, name: &str, kind: u8, mode: u32, target: &str, contents: &[u8]) {
        let mut header = [0u8; BLOCK];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", contents.len()));
        // The beginning of 1970.
        put(136, "00000000000");
        put(148, "        ");
        put(157, target);
        put(257, "ustar");
        put(263, "00");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.bytes.extend(header);
        self.bytes.extend(contents);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }
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
