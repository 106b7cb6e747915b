//! Writes the container image of trees that `scripts/make-container` has made.

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Parser;
use penstock_host::files;
use penstock_packages::{
    container::{self, About, Files, ImageLayer},
    exit_status,
};

/// Write the container image as an OCI image layout in one archive
#[derive(Debug, Parser)]
#[command(name = "penstock-container")]
struct Arguments {
    /// The archive to write
    image: PathBuf,
    /// A tree of Debian with what a rehearsal needs
    #[arg(long, value_name = "ARCHIVE")]
    debian: PathBuf,
    /// What the board image adds to it
    #[arg(long, value_name = "ARCHIVE")]
    board: PathBuf,
    /// The tree of Debian with Penstock's packages
    #[arg(long, value_name = "ARCHIVE")]
    installed: PathBuf,
    /// Where layers are written to first
    #[arg(long, value_name = "DIRECTORY")]
    work: PathBuf,
    /// The latest time of a file of Debian's and of the board image's, in seconds since 1970: the same for all versions, so that those layers are
    #[arg(long, value_name = "SECONDS")]
    settled: u64,
    /// When the commit was made, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    date: u64,
    /// The commit, whole
    #[arg(long)]
    revision: String,
    /// The version of Penstock's packages
    #[arg(long)]
    release: String,
}

fn main() -> ExitCode {
    exit_status("penstock-container", write(&Arguments::parse()))
}

fn write(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    files::create_dir_all(&arguments.work)?;
    let debian = Files::read(&arguments.debian)?;
    let settled = arguments.settled;
    let layer = |tree: &Files,
                 below: Option<&Files>,
                 latest: u64,
                 name: &str|
     -> Result<ImageLayer, Box<dyn Error>> {
        container::write_layer(tree, below, latest, &arguments.work.join(format!("{name}.tar.gz")))
    };
    let layers = [
        (layer(&debian, None, settled, "debian")?, "Debian and what a rehearsal needs of it"),
        (
            layer(&Files::read(&arguments.board)?.placed_in(&debian), None, settled, "board")?,
            "the board image",
        ),
        (layer(&Files::read(&arguments.installed)?, Some(&debian), arguments.date, "penstock")?, "penstock"),
    ];
    for (layer, what) in &layers {
        println!("{:>10} bytes, {:>10} unpacked: {what}", layer.size, layer.unpacked);
    }
    let about = About {
        version: arguments.release.clone(),
        revision: arguments.revision.clone(),
        date: arguments.date,
    };
    let described = layers.each_ref().map(|(layer, what)| (layer, *what));
    println!("{}", container::write(&about, &described, &arguments.image)?);
    Ok(())
}
