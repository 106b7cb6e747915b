//! The end of a program that was killed.

use std::{
    process::Child,
    thread,
    time::{Duration, Instant},
};

use super::wait_until;

/// How long a killed program may take to be gone. One that waits in the kernel for a disk or a driver dies when that answers, if ever.
const DYING: Duration = Duration::from_secs(2);

/// Waits for a program that was killed, but not for ever. `Some`: its process id, since it is still there; a thread waits on, so that it does
/// not stay as a zombie.
pub(crate) fn reap(child: Child) -> Option<u32> {
    reap_within(child, DYING)
}

fn reap_within(mut child: Child, limit: Duration) -> Option<u32> {
    match wait_until(&mut child, Instant::now() + limit) {
        // An error: it is nobody's child any more.
        Ok(Some(_)) | Err(_) => None,
        Ok(None) => {
            let id = child.id();
            // Without a thread it is a zombie until Penstock ends.
            let _ = thread::Builder::new().name("reaper".to_owned()).spawn(move || child.wait());
            Some(id)
        }
    }
}

/// What is said of a program that is still there after it was killed.
pub(super) fn still_there(left: Option<u32>) -> String {
    let says =
        |id| format!(", but process {id} is still there: it waits in the kernel, as for a disk or a driver");
    left.map(says).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, pipe},
        os::{fd::AsRawFd, unix::process::CommandExt},
        process::Command,
    };

    use nix::{
        libc,
        sys::signal::{Signal, kill},
        unistd::{ForkResult, Pid, fork},
    };

    use super::*;

    /// Has another process trace `of`: the kernel tells its parent of its end only when the tracer has heard of it, which this one never
    /// does. So it is for the parent as one that does not die.
    #[allow(unsafe_code)]
    fn traced(of: u32) -> Pid {
        let (mut reader, writer) = pipe().unwrap();
        // SAFETY: the child calls only `prctl`, `ptrace`, `write`, `pause` and `_exit`, which are async-signal-safe system calls.
        match unsafe { fork() }.unwrap() {
            ForkResult::Parent { child } => {
                drop(writer);
                let mut said = [0];
                reader.read_exact(&mut said).unwrap();
                assert_eq!(said, [1], "it could not be traced");
                child
            }
            // SAFETY: as above; the descriptor and the byte are this process's own.
            ForkResult::Child => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let nothing = std::ptr::null_mut::<libc::c_void>();
                let held = libc::ptrace(libc::PTRACE_SEIZE, of as libc::pid_t, nothing, nothing);
                let says = [u8::from(held == 0)];
                libc::write(writer.as_raw_fd(), says.as_ptr().cast(), 1);
                loop {
                    libc::pause();
                }
            },
        }
    }

    #[test]
    #[allow(unsafe_code)]
    fn a_killed_program_that_does_not_go_does_not_hold_its_caller() {
        let mut command = Command::new("sleep");
        command.arg("600");
        // SAFETY: `prctl` is an async-signal-safe system call.
        unsafe {
            command.pre_exec(|| {
                // Where Yama is not there, anybody of this user may trace it as it is.
                libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let id = child.id();
        let tracer = traced(id);
        kill(Pid::from_raw(id as i32), Signal::SIGKILL).unwrap();
        assert_eq!(reap_within(child, Duration::from_millis(200)), Some(id));
        assert!(still_there(Some(id)).contains(&id.to_string()));
        // The tracer goes, and the thread that waits on takes the zombie.
        kill(tracer, Signal::SIGKILL).unwrap();
        nix::sys::wait::waitpid(tracer, None).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while std::path::Path::new(&format!("/proc/{id}")).exists() {
            assert!(Instant::now() < until, "a zombie stays");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_killed_program_that_goes_is_waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        child.kill().unwrap();
        assert_eq!(reap(child), None);
        assert_eq!(still_there(None), "");
    }
}
