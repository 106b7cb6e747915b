//! `penstock board cluster`: Kubernetes clusters whose nodes are boards.

use penstock_board::{Lasting, UpOptions};
use penstock_cluster::{self as cluster, ClusterError, ClusterOptions, ClusterProgram, NodeDisk};
use penstock_host::{Command, process};

use crate::{
    arguments::{ClusterVerb as Verb, Strict},
    boards::{self, Boards, show},
    commands::exit_with,
    documents::{ClusterParts, ClusterUp, Clusters, OneCluster},
    failure::{Failure, Status},
    model_file::{self, For},
    settings::Settings,
    ui::printer::Printer,
};

/// Runs one of the verbs of `board cluster`.
///
/// # Errors
///
/// When the parts of a cluster cannot be made, a node does not boot or join, a name is taken or no cluster has it, or kubectl cannot be
/// started.
pub fn run(
    verb: Verb,
    boards: &Boards,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    match verb {
        Verb::Up { model, strict, nodes, name, kwok, cold } => {
            let wanted = Wanted { strict, nodes, name, kwok, cold };
            up(&model, wanted, boards, settings, printer)?;
        }
        Verb::Prepare => {
            check_parts(boards)?;
            let image = boards.image(printer)?;
            let (program, disk) = parts(boards, printer)?;
            boards.prepare(&image, printer)?;
            printer.done();
            let made = ClusterParts { program: program.file().to_owned(), disk: disk.file().to_owned() };
            printer.data(&made, || format!("{}\n{}", made.program.display(), made.disk.display()))?;
        }
        Verb::Down { name } => {
            printer.doing(format!("Ending the cluster {name}"));
            cluster::Cluster::down(boards.cache(), &name)?;
            printer.done();
            printer.say(format!("The cluster {name} is gone."));
            printer.document(&OneCluster { cluster: name })?;
        }
        Verb::List => {
            let (clusters, stuck) = cluster::Cluster::list(boards.cache())?;
            for error in stuck {
                printer.warn(Failure::from(error).in_one_line());
            }
            let clusters = Clusters { clusters };
            printer.data(&clusters, || match clusters.clusters.is_empty() {
                true => "There are no clusters.".to_owned(),
                false => clusters.clusters.iter().map(|cluster| format!("{cluster}\n")).collect(),
            })?;
        }
        Verb::Kubeconfig { name, on_node } => {
            // It is JSON, which is YAML too.
            let text = cluster::Cluster::kubeconfig(boards.cache(), &name, on_node)?;
            printer.text(text)?;
        }
        Verb::Kubectl { name, arguments } => {
            let command = cluster::Cluster::kubectl(boards.cache(), &name)?;
            printer.done();
            exit_with(command.args(arguments).run_attached()?)
        }
    }
    Ok(Status::Holds)
}

/// What the user wants of a cluster.
struct Wanted {
    strict: Strict,
    nodes: usize,
    name: Option<String>,
    kwok: bool,
    cold: bool,
}

fn up(
    model: &std::path::Path,
    wanted: Wanted,
    boards: &Boards,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let Wanted { strict, nodes, name, kwok, cold } = wanted;
    let file = model_file::read(model, strict, For::of(None, false, settings), printer)?;
    let name = name.unwrap_or_else(|| file.model.machine.clone());
    // Before anything is made that takes minutes.
    cluster::Cluster::check(boards.cache(), &name, nodes)?;
    check_parts(boards)?;
    let mut design = boards.design(&file, None, printer)?;
    for changed in cluster::fit(&mut design) {
        printer.say(changed);
    }
    let image = boards.image(printer)?;
    let (program, disk) = parts(boards, printer)?;
    let lasting = Lasting { systemd: design.systemd, ..Lasting::default() };
    let board = UpOptions { cold, lasting, ..boards::options()? };
    let carrier = Command::new(process::own_program()?).arg("forward-connection");
    let options = ClusterOptions { name, nodes, simulate: kwok, board, carrier };
    let began = std::time::Instant::now();
    let mut path = String::new();
    let mut refused = None;
    let up = cluster::Cluster::up(
        &design,
        &image,
        boards.cache(),
        (&program, &disk),
        &options,
        &mut |board| {
            boards::furnish(board, &file).map(|there| path = there).map_err(|failure| {
                let why = failure.in_one_line();
                refused = Some(failure);
                ClusterError::Furnish { node: board.name().to_owned(), why }
            })
        },
        &mut |progress| show(printer, progress),
    );
    let up = match (up, refused) {
        (Err(ClusterError::Furnish { .. }), Some(failure)) => return Err(failure),
        (up, _) => up?,
    };
    let seconds = began.elapsed().as_secs_f64();
    let phases = up.timings().iter().map(|(what, took)| format!("{what} {:.1} s", took.as_secs_f64()));
    printer.say(format!("Took: {}.", phases.collect::<Vec<_>>().join(", ")));
    let kept = up.detach()?;
    printer.done();
    let name = &kept.name;
    printer.say(format!(
        "The cluster {name} is up after {seconds:.0} s: Kubernetes {} at {}.",
        kept.version, kept.server
    ));
    for node in &kept.nodes {
        printer.say(format!(
            "Node {} is Ready. Enter it with `penstock board ssh {0}`; the model is {path} there.",
            node.name
        ));
    }
    printer.say(format!(
        "Use it with `export KUBECONFIG={}`, or `penstock board cluster kubectl {name} get nodes`.",
        kept.kubeconfig.display()
    ));
    printer.say(format!("Remove it with `penstock board cluster down {name}`."));
    printer.document(&ClusterUp { cluster: kept, model: path, seconds })?;
    Ok(())
}

/// Whether what all clusters share is there or can be made, before anything is made that takes minutes.
fn check_parts(boards: &Boards) -> Result<(), Failure> {
    ClusterProgram::check(boards.cache())?;
    Ok(NodeDisk::check(boards.cache())?)
}

/// What all clusters share, made now where it is not there.
fn parts(boards: &Boards, printer: &mut Printer) -> Result<(ClusterProgram, NodeDisk), Failure> {
    let program = ClusterProgram::ensure(boards.cache(), &mut |progress| show(printer, progress))?;
    let disk = NodeDisk::ensure(boards.cache(), &program, &mut |progress| show(printer, progress))?;
    Ok((program, disk))
}
