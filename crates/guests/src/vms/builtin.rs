//! The builtin guest: a kernel and an initramfs that come with a board's image, and what is put behind the latter to tell
//! a guest its name and its NICs.

use std::path::PathBuf;

use penstock_host::{
    cpio::{self, Archive},
    files::{self, FileError},
};
use penstock_model::{InterfaceName, dns::RESOLV_CONF};
use penstock_plan::action::GuestDefinition;

use crate::route;

/// Where the program itself is inside a builtin guest with an agent.
pub const PROGRAM: &str = "/penstock/bin/penstock";

/// Where the builtin guest's kernel and initramfs may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Builtin {
    /// Directories with `vmlinuz`, `initramfs` and maybe the same of a kernel with PREEMPT_RT, `vmlinuz-realtime` and
    /// `initramfs-realtime`; the first that has the first two is used.
    pub directories: Vec<PathBuf>,
}

impl Builtin {
    /// The kernel and the initramfs; `None` when no directory has them. For a guest in real time the kernel is the one with
    /// PREEMPT_RT, where the directory has it.
    pub fn find(&self, realtime: bool) -> Option<(PathBuf, PathBuf)> {
        let both = |directory: &PathBuf| (directory.join("vmlinuz"), directory.join("initramfs"));
        let (kernel, initramfs) = self
            .directories
            .iter()
            .map(both)
            .find(|(kernel, initramfs)| files::exists(kernel) && files::exists(initramfs))?;
        let other =
            (kernel.with_file_name("vmlinuz-realtime"), initramfs.with_file_name("initramfs-realtime"));
        let has_other = files::exists(&other.0) && files::exists(&other.1);
        Some(if realtime && has_other { other } else { (kernel, initramfs) })
    }
}

/// What the guest reads of its NICs: for each whose address is known a line `MAC NAME MTU ADDRESS...`, where an MTU of `-`
/// is left alone.
pub fn interfaces(definition: &GuestDefinition) -> String {
    let mut text = String::new();
    for owned in &definition.functions {
        let Some(mac) = owned.mac else { continue };
        text.push_str(&format!("{mac} {}", owned.interface));
        match owned.mtu {
            Some(mtu) => text.push_str(&format!(" {mtu}")),
            None => text.push_str(" -"),
        }
        for address in &owned.addresses {
            text.push_str(&format!(" {address}"));
        }
        text.push('\n');
    }
    // The PFs of its own NICs are called as the model calls them; VFs are there when somebody enables them.
    for own in definition.nics.iter().filter(|own| own.name.as_str().parse::<InterfaceName>().is_ok()) {
        text.push_str(&format!("{} {} -\n", own.nic.mac, own.name));
    }
    text
}

/// The routes that the guest makes: the words of `ip`(8) for each, a line.
pub fn routes(definition: &GuestDefinition) -> String {
    let known = definition.functions.iter().filter(|owned| owned.mac.is_some());
    let routes = known.flat_map(|owned| owned.routes.iter().map(move |route| (owned, route)));
    let lines = routes.map(|(owned, route)| route::arguments(route, owned.interface.as_str()) + "\n");
    lines.collect()
}

/// Writes the guest's own initramfs to `to`: the builtin one at `from`, then an archive with what is the guest's own, and
/// with `program`, when it is given one. The kernel unpacks both, one after the other
/// (`Documentation/driver-api/early-userspace/buffer-format.rst`).
///
/// # Errors
///
/// When one of the files cannot be read or written, or `program` changes meanwhile or is longer than the archive can hold.
pub fn write_initramfs(
    definition: &GuestDefinition,
    from: &PathBuf,
    program: Option<&PathBuf>,
    to: &PathBuf,
) -> Result<(), FileError> {
    // Neither goes through memory: on a small machine several guests start side by side.
    files::copy(from, to)?;
    files::set_mode(to, 0o644)?;
    let length = files::length(to)?;
    let mut file = files::append(to)?;
    let mut archive = Archive::default();
    let write = |file: &mut std::fs::File, bytes: Vec<u8>| {
        std::io::Write::write_all(file, &bytes).map_err(|source| FileError {
            attempt: "write",
            path: to.clone(),
            source,
        })
    };
    write(&mut file, vec![0; cpio::padding(length)])?;
    archive.directory("penstock");
    archive.file("penstock/hostname", 0o644, format!("{}\n", definition.guest).as_bytes());
    archive.file("penstock/interfaces", 0o644, interfaces(definition).as_bytes());
    archive.file("penstock/routes", 0o644, routes(definition).as_bytes());
    if let Some(dns) = &definition.dns {
        archive.directory("etc");
        archive.file(&RESOLV_CONF[1..], 0o644, dns.resolv_conf().as_bytes());
    }
    if let Some(program) = program {
        archive.directory("penstock/bin");
        let size = files::length(program)?;
        let too_long = |_| FileError {
            attempt: "copy",
            path: program.clone(),
            source: std::io::ErrorKind::FileTooLarge.into(),
        };
        archive.head(&PROGRAM[1..], 0o755, u32::try_from(size).map_err(too_long)?);
        write(&mut file, archive.take())?;
        let copied = files::append_from(&mut file, program)?;
        if copied != size {
            let source = std::io::Error::other("it changed meanwhile");
            return Err(FileError { attempt: "copy", path: program.clone(), source });
        }
        write(&mut file, vec![0; cpio::padding(size)])?;
    }
    write(&mut file, archive.finish())
}

#[cfg(test)]
mod tests {
    use penstock_model::{Dns, Mtu};
    use penstock_plan::action::GuestFunction;

    use super::*;

    fn definition() -> GuestDefinition {
        let function = |bdf: &str, interface: &str, mac: Option<&str>, mtu| GuestFunction {
            addresses: vec!["192.0.2.7/24".parse().unwrap(), "2001:db8::7/64".parse().unwrap()],
            mtu,
            mac: mac.map(|mac| mac.parse().unwrap()),
            ..GuestFunction::bare(bdf.parse().unwrap(), interface.parse().unwrap())
        };
        GuestDefinition {
            vm: Some(Default::default()),
            functions: vec![
                function("0000:04:10.0", "eth0", Some("02:00:00:00:01:04"), None),
                function("0000:04:10.2", "lan", Some("02:00:00:00:01:05"), Mtu::new(9000)),
                function("0000:04:10.4", "unknown", None, None),
            ],
            ..GuestDefinition::bare("rt-2".parse().unwrap())
        }
    }

    #[test]
    fn what_a_guest_is_told() {
        let wanted = "02:00:00:00:01:04 eth0 - 192.0.2.7/24 2001:db8::7/64\n\
                      02:00:00:00:01:05 lan 9000 192.0.2.7/24 2001:db8::7/64\n";
        assert_eq!(interfaces(&definition()), wanted);
    }

    #[test]
    fn a_guest_in_real_time_has_the_kernel_for_it_where_there_is_one() {
        let directory = tempfile::tempdir().unwrap();
        let builtin =
            Builtin { directories: vec![directory.path().join("none"), directory.path().to_owned()] };
        assert_eq!(builtin.find(false), None);
        for file in ["vmlinuz", "initramfs"] {
            files::write_atomic(directory.path().join(file), file).unwrap();
        }
        let both = |realtime| {
            let (kernel, initramfs) = builtin.find(realtime).unwrap();
            [kernel, initramfs].map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        let standard = ["vmlinuz", "initramfs"];
        assert_eq!((both(false), both(true)), (standard.map(String::from), standard.map(String::from)));
        // A kernel finds no drivers in the first file system of the other.
        files::write_atomic(directory.path().join("vmlinuz-realtime"), "").unwrap();
        assert_eq!(both(true), standard);
        files::write_atomic(directory.path().join("initramfs-realtime"), "").unwrap();
        assert_eq!((both(false), both(true)[0].as_str()), (standard.map(String::from), "vmlinuz-realtime"));
        assert_eq!(both(true)[1], "initramfs-realtime");
    }

    #[test]
    fn an_initramfs_of_two_archives() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        files::write_atomic(path("builtin"), b"builtin").unwrap();
        files::write_atomic(path("program"), b"\x7fELF!").unwrap();
        write_initramfs(&definition(), &path("builtin"), Some(&path("program")), &path("initramfs")).unwrap();
        let bytes = files::read(path("initramfs")).unwrap();
        assert!(bytes.starts_with(b"builtin\x00070701"));
        let at = |words: &[u8]| bytes.windows(words.len()).position(|window| window == words);
        let told = interfaces(&definition());
        for words in [b"rt-2\n".as_slice(), told.as_bytes(), b"\x7fELF!\x00\x00\x00070701"] {
            // The format has every file begin at a multiple of four.
            assert_eq!(at(words).expect("it is there") % 4, 0);
        }
        assert!(at(b"resolv.conf").is_none(), "the model says nothing of name servers");
        let dns = Some(Dns { servers: vec!["192.0.2.53".parse().unwrap()], search: Vec::new() });
        let named = GuestDefinition { dns, ..definition() };
        write_initramfs(&named, &path("builtin"), None, &path("named")).unwrap();
        let named = String::from_utf8(files::read(path("named")).unwrap()).unwrap();
        assert!(
            named.contains("etc/resolv.conf\0") && named.contains("\nnameserver 192.0.2.53\n"),
            "{named}"
        );
        let names = [b"penstock/hostname\0".as_slice(), b"penstock/bin/penstock\0", b"TRAILER!!!\0"];
        assert!(names.iter().all(|name| at(name).is_some()));
    }
}
