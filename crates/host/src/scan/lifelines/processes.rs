//! What `/proc` tells of processes.

use std::io;

use nix::errno::Errno;

use crate::{accounts::of_process, scan::reader::Reader};

/// What the open files of a process are called. Who asks may not know, and it may end meanwhile.
pub(super) fn open_files(process: u32, reader: &Reader<'_>) -> io::Result<Vec<String>> {
    let directory = format!("/proc/{process}/fd");
    let numbers = reader.whole_list(&directory)?;
    Ok(numbers.iter().filter_map(|number| reader.target(&format!("{directory}/{number}"))).collect())
}

/// The numbers of all processes.
pub(super) fn processes(reader: &mut Reader<'_>) -> Vec<u32> {
    reader.list("/proc").iter().filter_map(|name| name.parse().ok()).collect()
}

/// The name of a process.
pub(super) fn name_of(process: u32, reader: &mut Reader<'_>) -> Option<String> {
    // It may end while it is looked at.
    reader.text_unless(&format!("/proc/{process}/comm"), &[Errno::ESRCH])
}

/// Whose a process is, as is added to its name.
pub(super) fn account_of(process: u32, reader: &mut Reader<'_>) -> String {
    // As is its name.
    let status = reader.large_text_unless(&format!("/proc/{process}/status"), &[Errno::ESRCH]);
    let status = status.unwrap_or_default();
    of_process(reader.root(), &status)
}

/// The VM that a QEMU runs, as libvirt and others call it (`-name guest=NAME,...`).
pub(super) fn vm_of(process: u32, reader: &mut Reader<'_>) -> Option<String> {
    let line = reader.bytes(&format!("/proc/{process}/cmdline"), 4096)?;
    let line = String::from_utf8_lossy(&line);
    let mut words = line.split('\0');
    words.find(|word| *word == "-name")?;
    let name = words.next()?.split(',').find_map(|part| part.strip_prefix("guest="))?;
    Some(name.chars().filter(|c| !c.is_control()).take(80).collect())
}
