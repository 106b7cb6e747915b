//! A Kubernetes cluster on boards for a test, driven by the binary as a user drives it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binary::{self, Run, run},
    board, json,
    needs::Lack,
    trials::{Failed, Outcome},
};

/// How long anything on a cluster may take: a machine with two CPUs emulates the others.
pub const PATIENT: Duration = Duration::from_secs(600);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Why no cluster can be brought up here, if so. Builds what clusters are made of on a machine that has none of it, which takes minutes.
pub fn lacking() -> Option<Lack> {
    let prepared = run(Path::new("/"), ["board", "cluster", "prepare", "--quiet"]);
    match prepared.status {
        0 => None,
        // Go is nothing that the install step brings.
        4 => Some(Lack::Machine(prepared.stderr.trim().to_owned())),
        _ => Some(Lack::Installable(prepared.stderr.trim().to_owned())),
    }
}

/// A directory with a model, and the name of the cluster that a test makes of it; the cluster is removed with this value.
#[derive(Debug)]
pub struct TestCluster {
    directory: TempDir,
    name: String,
}

impl TestCluster {
    /// Writes the model `model`, whose `machine` is MACHINE. The cluster is not up yet.
    ///
    /// # Errors
    ///
    /// When the model cannot be written.
    pub fn new(test: &str, model: &str) -> Result<TestCluster, Failed> {
        let name = board::own_name(test);
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("model.yaml"), model.replace("MACHINE", &name))?;
        Ok(TestCluster { directory, name })
    }

    /// The name by which `penstock board cluster` knows it; nodes are called after it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The test's own directory.
    pub fn at(&self) -> &Path {
        self.directory.path()
    }

    /// The name of a node; they count from 1.
    pub fn node(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// `penstock board cluster` with these words.
    pub fn cluster(&self, words: &[&str]) -> Run {
        run(self.at(), [&["board", "cluster"][..], words].concat())
    }

    /// Brings it up, with more of the options of `penstock board cluster up`: the document that it prints, and its run.
    ///
    /// # Errors
    ///
    /// What it said.
    pub fn up(&self, more: &[&str]) -> Result<(Value, Run), Failed> {
        let run = self.cluster(&[&["up", "model.yaml", "--json"][..], more].concat());
        run.ended_with(0)?;
        let document: Value = json::read(&run.stdout)?;
        let took = run.stderr.lines().find_map(|line| line.strip_prefix("Took: ")).unwrap_or("?");
        eprintln!("up took {} s: {took}", document["seconds"]);
        Ok((document, run))
    }

    /// kubectl as the administrator, to its end.
    pub fn kubectl(&self, words: &[&str]) -> Run {
        self.cluster(&[&["kubectl", &self.name][..], words].concat())
    }

    /// What kubectl said, which must succeed.
    ///
    /// # Errors
    ///
    /// With what it said.
    pub fn said(&self, words: &[&str]) -> Result<String, Failed> {
        let run = self.kubectl(words);
        run.ended_with(0).map_err(|why| format!("kubectl {}: {why}", words.join(" ")))?;
        Ok(run.stdout)
    }

    /// The objects that `kubectl get` finds, or the one.
    ///
    /// # Errors
    ///
    /// When it fails, or prints no JSON.
    pub fn get(&self, words: &[&str]) -> Result<Value, Failed> {
        Ok(serde_json::from_str(&self.said(&[&["get", "-o", "json"][..], words].concat())?)?)
    }

    /// Applies objects: JSON, or YAML.
    ///
    /// # Errors
    ///
    /// What kubectl said.
    pub fn apply(&self, objects: &str) -> Outcome {
        let file = self.at().join("objects");
        fs::write(&file, objects)?;
        self.said(&["apply", "-f", &file.to_string_lossy()]).map(drop)
    }

    /// What a line of shell on a node printed, which must succeed.
    ///
    /// # Errors
    ///
    /// With what it said.
    pub fn on(&self, node: &str, line: &str) -> Result<String, Failed> {
        let run = run(self.at(), ["board", "ssh", node, "sh", "-c", line]);
        run.ended_with(0).map_err(|why| format!("{line}: {why}"))?;
        Ok(run.stdout)
    }

    /// The same, with a file of this machine as its standard input.
    ///
    /// # Errors
    ///
    /// With what it said, and when the file cannot be read.
    pub fn on_with(&self, node: &str, line: &str, input: &Path) -> Result<String, Failed> {
        let mut command = binary::command(self.at());
        command.args(["board", "ssh", node, "sh", "-c", line]).stdin(Stdio::from(fs::File::open(input)?));
        let run: Run = command.output()?.into();
        run.ended_with(0).map_err(|why| format!("{line}: {why}"))?;
        Ok(run.stdout)
    }

    /// Puts a text into a file on a node, for its owner alone.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write_on(&self, node: &str, path: &str, text: &str) -> Outcome {
        let file: PathBuf = self.at().join("to-copy");
        fs::write(&file, text)?;
        let line = format!("umask 077; mkdir -p $(dirname {path}) && cat > {path}");
        self.on_with(node, &line, &file).map(drop)
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        // Gone already where the test has come to its end.
        let listed = self.cluster(&["list", "--json"]).stdout;
        if listed.contains(&format!("\"{}\"", self.name)) {
            let down = self.cluster(&["down", &self.name]);
            if down.status != 0 {
                eprintln!("the cluster {} was not removed: {}", self.name, down.stderr);
            }
        }
    }
}

/// Waits for something to hold, which is looked at again and again; how long that took.
///
/// # Errors
///
/// When a look fails, or it does not hold within [`PATIENT`].
pub fn until(what: &str, mut holds: impl FnMut() -> Result<bool, Failed>) -> Result<Duration, Failed> {
    let since = Instant::now();
    while !holds()? {
        if since.elapsed() > PATIENT {
            return Err(format!("{what}: not within {} s", PATIENT.as_secs()).into());
        }
        thread::sleep(PAUSE);
    }
    Ok(since.elapsed())
}
