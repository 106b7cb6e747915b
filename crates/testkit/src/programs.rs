//! The test programs of this workspace as cargo has built them, each with what it needs to be run without cargo.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

/// Names the file in which whoever runs several programs tells each of them where the others are.
pub const LIST: &str = "PENSTOCK_TEST_PROGRAMS";

/// The only package whose documentation has examples in Rust: `cargo test --doc` takes seconds for each of the others to find none.
pub const WITH_EXAMPLES: &str = "penstock-model";

/// A test program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The package that it tests.
    pub package: String,
    /// Its name: that of its file in `tests`, or of the package's library or binary for the unit tests in there.
    pub name: String,
    /// Its source, from the package's directory.
    pub source: PathBuf,
    /// The package's directory, in which cargo runs it.
    pub directory: PathBuf,
    /// The file that is run.
    pub executable: PathBuf,
}

impl Program {
    /// What one line of `cargo --message-format=json` tells of a program, if it does.
    pub fn told(line: &str) -> Option<Program> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let executable = PathBuf::from(message["executable"].as_str()?);
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let source = Path::new(message["target"]["src_path"].as_str()?);
        let source = source.strip_prefix(&directory).unwrap_or(source).to_owned();
        // `path+file:///tree/crates/plan#penstock-plan@0.1.0`; the name is left out where the directory is called so.
        let id = message["package_id"].as_str()?;
        let after = id.rsplit_once('#')?.1;
        let package = match after.split_once('@') {
            Some((name, _)) => name.to_owned(),
            None => directory.file_name()?.to_str()?.to_owned(),
        };
        Some(Program {
            package,
            name: message["target"]["name"].as_str()?.to_owned(),
            source,
            directory,
            executable,
        })
    }

    /// Whether it is one of `tests`, and no library's or binary's unit tests.
    pub fn is_integration(&self) -> bool {
        self.source.starts_with("tests")
    }
}

/// Has cargo build the test programs that `words` choose (`--workspace`, `--package NAME`, `--test NAME`), and tells them in
/// cargo's order.
///
/// # Errors
///
/// When cargo could not build them; it has said why on standard error.
pub fn built(words: &[String]) -> Result<Vec<Program>, String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--locked", "--no-run", "--message-format=json-render-diagnostics"]).args(words);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo test --no-run ended with {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(Program::told).collect())
}

/// Writes down where programs are, for [`executable`].
///
/// # Errors
///
/// When the file cannot be written.
pub fn tell(programs: &[Program], file: &Path) -> io::Result<()> {
    let rows: Vec<Value> = programs
        .iter()
        .filter(|program| program.is_integration())
        .map(|program| json!([program.package, program.name, program.executable]))
        .collect();
    fs::write(file, Value::Array(rows).to_string())
}

/// The executable of an integration test of this workspace: as it was [told](tell), or as cargo builds it now.
///
/// # Errors
///
/// When there is none.
pub fn executable(package: &str, test: &str) -> Result<PathBuf, String> {
    let told = env::var_os(LIST).and_then(|file| fs::read(file).ok());
    let rows: Vec<(String, String, PathBuf)> =
        told.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let known = rows.into_iter().find(|(of, name, _)| of == package && name == test);
    if let Some((.., executable)) = known {
        return Ok(executable);
    }
    let words = ["--package", package, "--test", test].map(str::to_owned);
    let found = built(&words)?.into_iter().find(|program| program.name == test);
    found.map(|program| program.executable).ok_or_else(|| format!("cargo built no {test}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(package: &str, source: &str, test: bool) -> String {
        json!({
            "reason": "compiler-artifact",
            "package_id": package,
            "manifest_path": "/tree/crates/plan/Cargo.toml",
            "target": {"name": "golden", "src_path": source},
            "profile": {"test": test},
            "executable": "/tree/target/golden-1",
        })
        .to_string()
    }

    #[test]
    fn programs_are_read_from_what_cargo_tells() {
        let told = |package: &str, source: &str| Program::told(&message(package, source, true)).unwrap();
        let program =
            told("path+file:///tree/crates/plan#penstock-plan@0.1.0", "/tree/crates/plan/tests/golden.rs");
        assert_eq!((program.package.as_str(), program.name.as_str()), ("penstock-plan", "golden"));
        assert_eq!(program.source, Path::new("tests/golden.rs"));
        assert!(program.is_integration());
        let program = told("path+file:///tree/crates/plan#0.1.0", "/tree/crates/plan/src/lib.rs");
        assert_eq!((program.package.as_str(), program.is_integration()), ("plan", false));
        let built = message("path+file:///tree/crates/plan#0.1.0", "/tree/crates/plan/src/lib.rs", false);
        assert_eq!(Program::told(&built), None, "it is a program, but no test");
        assert_eq!(Program::told("{\"reason\":\"build-finished\",\"success\":true}"), None);
    }

    #[test]
    fn what_was_told_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("programs.json");
        let program =
            Program::told(&message("p#penstock-plan@0.1.0", "/tree/crates/plan/tests/golden.rs", true));
        tell(&[program.unwrap()], &file).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, "[[\"penstock-plan\",\"golden\",\"/tree/target/golden-1\"]]");
    }
}
