//! Programs that a test writes itself, in the place of others.

use std::path::Path;

use penstock_host::Command;

/// Writes `text` to `path`, as a program that can be run at once.
///
/// Another process writes it. What this one has open for writing, a child that another of its threads is starting has open, too, until it has
/// become its program; and what anybody has open for writing cannot be run (`ETXTBSY`, execve(2)).
///
/// # Panics
///
/// When it cannot be written.
pub fn write(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    let writer = Command::new("sh").args(["-c", r#"cat >"$0" && chmod 755 "$0""#]).arg(path.as_ref());
    writer.input(text.as_ref()).succeed().expect("it can be written");
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    /// Of 8 MiB, which takes so long to write that a child of another thread is begun meanwhile in one of five turns.
    #[test]
    fn what_is_written_can_be_run_whatever_children_others_start_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let over = AtomicBool::new(false);
        let ran = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        Command::new("true").succeed().unwrap();
                    }
                });
            }
            let ran = (0..20).map(|turn| {
                write(&program, format!("#!/bin/sh\nexit {turn}\n{}", "#".repeat(8 << 20)));
                Command::new(&program).run().map(|output| output.status.code() == Some(turn))
            });
            let ran: Vec<_> = ran.collect();
            over.store(true, Ordering::Relaxed);
            ran
        });
        for ran in ran {
            assert!(ran.unwrap());
        }
    }
}
