//! The kernel's log: it needs no disk, reaches the console, and whoever keeps the machine's log has it.

use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt};

use nix::fcntl::OFlag;

/// No record is longer (`PRINTKRB_RECORD_MAX`, `kernel/printk/printk.c`), its head left out.
const LONGEST: usize = 900;

/// Writes a line of Penstock's, as an error, which a console shows by default (`/dev/kmsg`, syslog(2)). Who may not, does not.
pub fn error(text: &str) {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = (0..=line.len().min(LONGEST)).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    let kmsg = OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open("/dev/kmsg");
    // <3> is user-level LOG_ERR; one write is one record.
    let _ = kmsg.and_then(|mut kmsg| kmsg.write_all(format!("<3>penstock: {}\n", &line[..end]).as_bytes()));
}
