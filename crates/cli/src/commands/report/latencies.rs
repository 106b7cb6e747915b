//! The latencies of a run in another program's form.

use std::path::{Path, PathBuf};

use penstock_report::{LatencyFiles, LatencyFormat, latency_files};
use serde::Serialize;

use super::keep;
use crate::{
    arguments::LatencyForm,
    failure::{Failure, Status},
    runtime::kept_run::KeptRun,
    ui::printer::Printer,
};

/// What `report --latencies` prints with `--json`.
#[derive(Serialize, schemars::JsonSchema)]
pub struct WrittenLatencies {
    /// The files that were written, one for all CPUs that were measured alike.
    files: Vec<PathBuf>,
    /// What is in no file, a sentence each.
    left_out: Vec<String>,
}

/// Writes them beside the run, or where `--output` says; what is in no file is warned of.
///
/// # Errors
///
/// `Status::BadInput` for a run without latencies; when a file cannot be written.
pub fn write(
    run: &KeptRun,
    form: LatencyForm,
    output: Option<&Path>,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let Some(latency) = &run.evidence().latency else {
        let text = format!("{} has no latencies of wake-ups", run.directory().display());
        return Err(Failure::new(Status::BadInput, text).hint("`penstock measure --latency` measures them"));
    };
    let format = match form {
        LatencyForm::Cyclictest => LatencyFormat::Cyclictest,
        LatencyForm::Rteval => LatencyFormat::Rteval,
    };
    let LatencyFiles { files, left_out } = latency_files(latency, format);
    for left_out in &left_out {
        printer.warn(format!("left out: {left_out}"));
    }
    let directory = output.unwrap_or(run.directory());
    let named: Vec<(&str, String)> = files.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    keep(directory, &named)?;
    let written =
        WrittenLatencies { files: files.iter().map(|(name, _)| directory.join(name)).collect(), left_out };
    printer.data(&written, || {
        written.files.iter().map(|file| format!("{}\n", file.display())).collect::<String>()
    })?;
    Ok(Status::Holds)
}
