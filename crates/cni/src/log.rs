//! What is said besides the answer: to the configuration's `logFile`, else to standard error.

use std::{io::Write, path::PathBuf, time::SystemTime};

use penstock_host::files;
use penstock_model::text::one_line;

use crate::config::{Configuration, LogLevel};

/// Where a call logs.
#[derive(Clone, Debug, Default)]
pub struct Log {
    level: LogLevel,
    file: Option<PathBuf>,
    about: String,
}

impl Log {
    /// As the configuration has it; `about` begins each line.
    pub fn of(configuration: &Configuration, about: String) -> Log {
        Log { level: configuration.level, file: configuration.log.clone(), about }
    }

    /// Says it, unless the configuration wants less.
    pub fn say(&self, level: LogLevel, text: impl AsRef<str>) {
        if level > self.level {
            return;
        }
        let name = match level {
            LogLevel::Error => "error",
            LogLevel::Warning => "warning",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        };
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        // Names that a container gives, and words of other programs, stand in it.
        let said = one_line(&format!("penstock-cni: {}: {}", self.about, text.as_ref()));
        let line = format!("{time} {name}: {said}\n");
        let written = self
            .file
            .as_ref()
            .map(|path| files::append(path).map(|mut file| file.write_all(line.as_bytes())));
        // A log that cannot be written must not keep a container from its interface.
        if !matches!(written, Some(Ok(Ok(())))) {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}
