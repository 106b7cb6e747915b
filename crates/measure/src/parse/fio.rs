//! fio's JSON output (`--output-format=json` or `json+`; `stat.c`, `show_thread_status_json`). Times in it are nanoseconds.
//!
//! The latency told is `lat_ns`, from before the submission to the completion; never `clat_ns`, which leaves the submission
//! out. Its distribution is there with `json+` and `--lat_percentiles=1`.

use penstock_model::measurement::{Histogram, Metric, Mix};

use super::{Json, Reading, message, object};
use crate::output::{OutputError, text};

const TOOL: &str = "fio";

/// Reads the output of one job, or of several with `--group_reporting`.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, of another version of the tool, not of its form, or has no
/// number that was asked for; the tool's own error is in it where it printed one.
pub fn json(output: &[u8], mix: Mix) -> Result<Reading, OutputError> {
    let text = text(TOOL, output)?;
    // fio prints its warnings and errors before the object, into the same stream.
    let Some(begin) = text.find('{') else {
        return Err(OutputError::Failed { tool: TOOL, message: message(text) });
    };
    let value = object(TOOL, &text[begin..])?;
    let root = Json { tool: TOOL, value: &value, path: String::new() };
    let version = root.get("fio version")?.text()?;
    if !version.starts_with("fio-3.") {
        let version = message(version);
        return Err(OutputError::Version { tool: TOOL, version, known: "fio 3" });
    }
    let jobs = root.get("jobs")?;
    let Some([job]) = jobs.value.as_array().map(Vec::as_slice) else {
        let why = "it tells of several jobs or of none; --group_reporting tells of them as one".into();
        return Err(OutputError::Malformed { tool: TOOL, why });
    };
    let job = Json { tool: TOOL, value: job, path: "jobs[0]".into() };
    let error = job.get("error")?.count()?;
    if error != 0 {
        let said = message(&text[..begin]);
        let message =
            if said.is_empty() { format!("error {error}") } else { format!("error {error}: {said}") };
        return Err(OutputError::Failed { tool: TOOL, message });
    }
    let sides: &[&str] = match mix {
        Mix::Read => &["read"],
        Mix::Write => &["write"],
        Mix::Mixed => &["read", "write"],
    };
    let sides = sides.iter().map(|side| job.get(side)).collect::<Result<Vec<_>, _>>()?;
    let mut reading = Reading { version: Some(message(version)), ..Reading::default() };
    latencies(&sides, &mut reading)?;
    let mut sum = |metric, key: &str| {
        let values =
            sides.iter().map(|side| side.get(key)?.number()).collect::<Result<Vec<_>, OutputError>>()?;
        reading.values.insert(metric, values.iter().sum());
        Ok(())
    };
    sum(Metric::Iops, "iops")?;
    sum(Metric::Bandwidth, "bw_bytes")?;
    // Of the jobs' own process; fio knows nothing of the other end.
    let cpu = job.get("usr_cpu")?.number()? + job.get("sys_cpu")?.number()?;
    reading.values.insert(Metric::LocalCpu, cpu);
    Ok(reading)
}

fn latencies(sides: &[Json<'_>], reading: &mut Reading) -> Result<(), OutputError> {
    let mut all = Histogram::new();
    let (mut whole, mut count, mut sum) = (true, 0u64, 0.0);
    let (mut least, mut greatest) = (f64::INFINITY, 0f64);
    for side in sides {
        if side.get("total_ios")?.count()? == 0 {
            return Err(OutputError::NothingArrived { tool: TOOL, sent: None });
        }
        let lat = side.get("lat_ns")?;
        let n = lat.get("N")?.count()?;
        count = count.checked_add(n).ok_or_else(|| lat.odd())?;
        sum += lat.get("mean")?.number()? * n as f64;
        least = least.min(lat.get("min")?.number()?);
        greatest = greatest.max(lat.get("max")?.number()?);
        match lat.find("bins") {
            Some(bins) => merge(&bins, n, &mut all)?,
            None => whole = false,
        }
    }
    if count == 0 {
        return Ok(());
    }
    reading.values.insert(Metric::Min, least / 1e3);
    reading.values.insert(Metric::Mean, sum / count as f64 / 1e3);
    reading.values.insert(Metric::Max, greatest / 1e3);
    let quantiles = [Metric::P50, Metric::P90, Metric::P99, Metric::P999];
    if let [side] = sides {
        let lat = side.get("lat_ns")?;
        reading.values.insert(Metric::Stddev, lat.get("stddev")?.number()? / 1e3);
        if let Some(told) = lat.find("percentile") {
            for metric in quantiles {
                let key = format!("{:.6}", metric.quantile().unwrap_or_default() * 100.0);
                if let Some(value) = told.find(&key) {
                    reading.percentile(metric, value.number()? / 1e3, count);
                }
            }
        }
    } else if whole {
        // Reading and writing each have percentiles of their own; those of both are in the counts only.
        for metric in quantiles {
            if let Some(nanoseconds) = metric.quantile().and_then(|q| all.quantile(q)) {
                reading.percentile(metric, nanoseconds as f64 / 1e3, count);
            }
        }
    }
    reading.histogram = (whole && !all.is_empty()).then_some(all);
    Ok(())
}

/// Takes fio's counts in. Its bins are named by a latency inside them, and its buckets are the same.
fn merge(bins: &Json<'_>, n: u64, all: &mut Histogram) -> Result<(), OutputError> {
    let counts = bins.value.as_object().ok_or_else(|| bins.odd())?;
    let mut total = 0u64;
    for (nanoseconds, count) in counts {
        let odd = || OutputError::OddField {
            tool: TOOL,
            field: format!("{}.{}", bins.path, message(nanoseconds)),
            value: count.to_string().chars().take(80).collect(),
        };
        let nanoseconds: u64 = nanoseconds.parse().map_err(|_| odd())?;
        let count = count.as_u64().ok_or_else(odd)?;
        total = total.checked_add(count).ok_or_else(odd)?;
        all.record(nanoseconds, count).map_err(|_| odd())?;
    }
    if total != n {
        let why = format!("its bins count {total} latencies of {n}");
        return Err(OutputError::Malformed { tool: TOOL, why });
    }
    Ok(())
}
