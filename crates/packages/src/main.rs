//! Writes what packages hold beside the programs into a directory, a folder for each program.

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::Parser;
use penstock_host::files;
use penstock_kubernetes::{identity::DRIVER, manifests};
use penstock_packages::{
    Program,
    bill::bill,
    completions::{SHELLS, completions},
    dependencies, exit_status,
    licenses::{self, Texts},
    manual::pages,
};

/// The namespace of the manifests, as `penstock-kubernetes manifests` has it by default.
const NAMESPACE: &str = "penstock";

/// Write manual pages, completions, licences and bills of materials of the programs
#[derive(Debug, Parser)]
#[command(name = "penstock-packages")]
struct Arguments {
    /// Where to
    directory: PathBuf,
    /// The target that the programs are built for, in Rust's words
    #[arg(long, value_name = "TARGET")]
    target: String,
    /// When the commit was made, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    date: u64,
    /// The commit; empty where there is none
    #[arg(long, default_value = "")]
    commit: String,
}

fn main() -> ExitCode {
    exit_status("penstock-packages", write(&Arguments::parse()))
}

fn write(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(arguments.date);
    let day = humantime::format_rfc3339_seconds(made).to_string();
    let day = day.split('T').next().unwrap_or_default();
    let linked = licenses::linked(&arguments.target)?;
    for program in Program::ALL {
        let directory = arguments.directory.join(program.name());
        let (manual, shells) = (directory.join("man1"), directory.join("completions"));
        files::create_dir_all(&manual)?;
        files::create_dir_all(&shells)?;
        for page in pages(program.command(), day)? {
            files::write_atomic(manual.join(page.file), page.text)?;
        }
        for shell in SHELLS {
            let (file, text) = completions(program.command(), shell);
            files::write_atomic(shells.join(file), text)?;
        }
        let crates = dependencies::of(program, &arguments.target, &workspace)?;
        for (file, texts) in [("copyright", Texts::Whole), ("copyright.debian", Texts::Debian)] {
            let copyright = licenses::copyright(program, &crates, &linked, texts, &workspace)?;
            files::write_atomic(directory.join(file), copyright)?;
        }
        if program == Program::Kubernetes {
            files::write_atomic(
                directory.join("cluster.yaml"),
                manifests::all(&DRIVER.parse()?, &NAMESPACE.parse()?),
            )?;
            files::write_atomic(directory.join("penstock-kubernetes.service"), manifests::unit())?;
        }
        let bill = bill(program, &arguments.target, &crates, &linked, &arguments.commit, made);
        let bill = format!("{}\n", serde_json::to_string_pretty(&bill)?);
        files::write_atomic(directory.join(format!("{}.cdx.json", program.name())), bill)?;
    }
    Ok(())
}
