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
        process,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn what_is_written_can_be_run_however_many_children_others_start() {
        let directory = tempfile::tempdir().unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        Command::new("true").succeed().unwrap();
                    }
                });
            }
            let tried = (0..100).map(|number| {
                let program = directory.path().join(number.to_string());
                write(&program, format!("#!/bin/sh\nexit {}\n", number % 7));
                process::Command::new(program).status().map(|status| status.code() == Some(number % 7))
            });
            let tried: Vec<_> = tried.collect();
            over.store(true, Ordering::Relaxed);
            for ran in tried {
                assert!(ran.unwrap());
            }
        });
    }
}
