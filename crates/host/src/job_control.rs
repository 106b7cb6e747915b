//! Job control of a shell (Ctrl-Z, `fg`), for a program that has changed its terminal: it puts the terminal back before it stops.
//!
//! Like an [interrupt](crate::interrupt), a signal reaches the whole process.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::{
    consts::{SIGCONT, SIGTSTP},
    low_level::emulate_default_handler,
};

/// Notes SIGTSTP instead of stopping, and SIGCONT, from when it is made until the process ends.
pub struct JobControl {
    stop: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

impl JobControl {
    /// Catches both signals.
    ///
    /// # Errors
    ///
    /// The kernel's, when it takes no handler for a signal.
    pub fn catch() -> io::Result<JobControl> {
        let control = JobControl { stop: Arc::default(), continued: Arc::default() };
        signal_hook::flag::register(SIGTSTP, control.stop.clone())?;
        signal_hook::flag::register(SIGCONT, control.continued.clone())?;
        Ok(control)
    }

    /// Whether somebody has asked this process to stop since the last time.
    pub fn stop_asked(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }

    /// Whether the process has gone on since the last time, after whatever had stopped it (SIGSTOP too).
    pub fn continued(&self) -> bool {
        self.continued.swap(false, Ordering::Relaxed)
    }

    /// Stops this process until SIGCONT.
    ///
    /// # Errors
    ///
    /// The kernel's, when it takes no signal.
    pub fn stop(&self) -> io::Result<()> {
        emulate_default_handler(SIGTSTP)
    }
}
