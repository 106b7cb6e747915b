//! Writes a cpio archive in the "newc" format, which is what the kernel unpacks as its first file system
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`).

/// An archive that grows.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const LINK: u32 = 0o120_000;

/// How many zero bytes follow `length` bytes, for what comes next to begin where the format wants it.
pub fn padding(length: u64) -> usize {
    (length.wrapping_neg() % 4) as usize
}

impl Archive {
    /// Adds a directory with the permissions 0755.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, &[], (0, 0));
    }

    /// A file with these permissions.
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        self.entry(path, REGULAR | mode, bytes, (0, 0));
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK | 0o777, target.as_bytes(), (0, 0));
    }

    /// The head of a file with these permissions; its `size` bytes are to follow whatever the archive holds so far, and
    /// after them [`padding`]. For files that need not go through memory: see [`Archive::take`].
    pub fn head(&mut self, path: &str, mode: u32, size: u32) {
        self.header(path, REGULAR | mode, size, (0, 0));
    }

    /// What the archive holds so far, to be written out; the rest goes on behind it.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// A character device node.
    pub fn character_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) {
        self.entry(path, CHARACTER_DEVICE | mode, &[], (major, minor));
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[], (0, 0));
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8], device: (u32, u32)) {
        // Nothing that is put into a first file system comes near 4 GiB.
        self.header(path, mode, u32::try_from(data.len()).unwrap_or(u32::MAX), device);
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn header(&mut self, path: &str, mode: u32, size: u32, device: (u32, u32)) {
        self.entries += 1;
        let name = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(b"070701");
        // Inode, mode, owner, group, links, time, size, device, device of a node, length of the name, check.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name, 0];
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_streamed_is_the_same_as_one_that_is_not() {
        let (mut whole, mut parts) = (Archive::default(), Archive::default());
        whole.file("a", 0o755, b"hello");
        whole.link("b", "a");
        parts.head("a", 0o755, 5);
        let mut streamed = parts.take();
        streamed.extend(b"hello");
        streamed.resize(streamed.len() + padding(5), 0);
        parts.link("b", "a");
        streamed.extend(parts.finish());
        assert_eq!(streamed, whole.finish());
    }

    #[test]
    fn headers_names_and_data_are_where_the_format_says() {
        let mut archive = Archive::default();
        archive.directory("dev");
        archive.file("init", 0o755, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..14], b"07070100000001");
        let second = 110 + 4 - 2 + 4;
        assert_eq!(&bytes[second..second + 6], b"070701");
        assert_eq!(&bytes[second + 54..second + 62], b"00000005", "size");
        assert_eq!(&bytes[second + 110..second + 115], b"init\0");
        assert_eq!(&bytes[second + 116..second + 121], b"hello");
        assert!(bytes.windows(11).any(|w| w == b"TRAILER!!!\0"));
    }
}
