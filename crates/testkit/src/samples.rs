//! What benches have measured, as the repository keeps it: `bench/samples/NAME.json`, with a line for each row, so that a difference shows what was
//! measured anew. Each row says when, of which commit, on which machine and by which command.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

/// What changes by measuring, and makes no commit another one.
const NOT_COUNTED: [&str; 2] = [":(top,exclude)bench/samples", ":(top,exclude)docs/pictures"];

/// A row, which belongs to a group that is measured in one go.
pub struct SampleRow {
    /// What the group is called: one name may be asked for without the others.
    pub group: String,
    /// Its samples, and what they are of: a JSON object.
    pub row: Value,
}

/// What rows belong to that are measured at `date` (UTC, RFC 3339) by `command`: these two, the commit (with `-dirty` behind it where files of the
/// tree are otherwise; `null` where git does not say) and the machine.
pub fn provenance(date: &str, command: &str) -> Value {
    let git = |words: &[&str]| {
        let git =
            Command::new("git").arg("--no-optional-locks").args(words).current_dir(root()).output().ok()?;
        git.status.success().then(|| String::from_utf8_lossy(&git.stdout).trim().to_owned())
    };
    let status = [&["status", "--porcelain", "--untracked-files=no", "--", ":/"][..], &NOT_COUNTED].concat();
    let dirty = |changes: String| if changes.is_empty() { "" } else { "-dirty" };
    // Git tells nothing of a checkout that is another user's.
    let commit = git(&["rev-parse", "HEAD"]).zip(git(&status).map(dirty));
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let processor = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "date": date,
        "commit": commit.map(|(head, dirty)| format!("{head}{dirty}")),
        "command": command,
        "machine": {
            "processor": processor.map(|(_, name)| name),
            "cpus": std::thread::available_parallelism().map_or(0, usize::from),
            "kernel": read("/proc/sys/kernel/osrelease").trim(),
        },
    })
}

/// Keeps rows in `bench/samples/NAME.json`, in place of those of the same groups; all others stay. Gives the path from the repository's
/// directory.
///
/// # Errors
///
/// What is there cannot be read, or the file not be written.
pub fn keep(name: &str, measured: &Value, fresh: Vec<SampleRow>) -> io::Result<PathBuf> {
    let kept = merged(read(name)?, measured, fresh);
    let path = path(name);
    let full = root().join(&path);
    fs::create_dir_all(full.parent().unwrap_or(&full))?;
    fs::write(full, text(&kept))?;
    Ok(path)
}

/// The rows that are kept; none where there is no such file.
///
/// # Errors
///
/// It cannot be read, or holds something else.
pub fn read(name: &str) -> io::Result<Vec<Value>> {
    match fs::read(root().join(path(name))) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn path(name: &str) -> PathBuf {
    Path::new("bench/samples").join(format!("{name}.json"))
}

fn merged(mut rows: Vec<Value>, measured: &Value, fresh: Vec<SampleRow>) -> Vec<Value> {
    rows.retain(|row| !fresh.iter().any(|fresh| row["group"] == fresh.group));
    rows.extend(fresh.into_iter().map(|SampleRow { group, mut row }| {
        row["group"] = group.into();
        row["measured"] = measured.clone();
        row
    }));
    let group = |row: &Value| row["group"].as_str().unwrap_or_default().to_owned();
    rows.sort_by_key(group);
    rows
}

fn text(rows: &[Value]) -> String {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_again_stays_with_what_it_belongs_to() {
        let row = |group: &str, what: &str| SampleRow { group: group.to_owned(), row: json!({"what": what}) };
        let first = json!({"date": "1"});
        let kept = merged(Vec::new(), &first, vec![row("plan", "a"), row("audit", "b"), row("plan", "c")]);
        let kept: Vec<Value> = serde_json::from_str(&text(&kept)).unwrap();
        let told = |rows: &[Value]| -> Vec<String> {
            let told = |row: &Value| format!("{} {} {}", row["group"], row["what"], row["measured"]["date"]);
            rows.iter().map(|row| told(row).replace('"', "")).collect()
        };
        assert_eq!(told(&kept), ["audit b 1", "plan a 1", "plan c 1"]);
        // Another number of rows of one group; a new group.
        let again = merged(kept, &json!({"date": "2"}), vec![row("plan", "d"), row("vfs", "e")]);
        assert_eq!(told(&again), ["audit b 1", "plan d 2", "vfs e 2"]);
        assert_eq!(text(&again).lines().count(), 2 + again.len(), "a line each");
    }

    #[test]
    fn where_a_row_comes_from_is_told_whole() {
        let told = provenance("2026-01-01T00:00:00Z", "make bench");
        assert_eq!((&told["date"], &told["command"]), (&json!("2026-01-01T00:00:00Z"), &json!("make bench")));
        assert!(told["machine"]["cpus"].as_u64().is_some_and(|cpus| cpus > 0));
        assert!(told["machine"]["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
        let commit = told["commit"].as_str();
        assert!(commit.is_none_or(|commit| commit.trim_end_matches("-dirty").len() == 40), "{commit:?}");
    }
}
