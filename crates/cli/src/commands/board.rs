//! `penstock board`: keep, enter and drop a rehearsal's board.

use std::{path::Path, time::Duration};

use penstock_board::{Board, BoardError, Lasting, Proof};
use penstock_host::{Command, Place, terminal};
use penstock_model::GuestName;
use serde::Deserialize;

use crate::{
    arguments::{Board as Verb, ImageFile},
    boards::{self, Boards},
    commands::{cluster, exit_with},
    documents::{BoardImage, Boards as ListOfBoards, OneBoard, PackedImage},
    failure::{Failure, Status},
    model_file::{self, For},
    remote::ssh,
    settings::Settings,
    ui::printer::Printer,
};

/// So long a board may take to list its guests.
const LISTING: Duration = Duration::from_secs(10);

/// Runs one of the verbs of `board`.
///
/// # Errors
///
/// For a model of which no board can be composed, an image that cannot be made, a board that does not boot, and a name that no board
/// has.
pub fn run(verb: Verb, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let boards = Boards::new(settings);
    match verb {
        Verb::Image(file) => image(&boards, &file, printer),
        Verb::Up { model, strict, inventory, cold, keep_disk, systemd, kernel_arguments } => {
            let lasting = Lasting { disk: keep_disk, systemd };
            let file =
                model_file::read(&model, strict, For::of(inventory.as_deref(), false, settings), printer)?;
            let inventory = inventory.as_deref().map(model_file::read_inventory).transpose()?;
            let mut design = boards.design(&file, inventory.as_ref(), printer)?;
            design.kernel_arguments = kernel_arguments;
            let image = boards.image(printer)?;
            let name = Some(file.model.machine.as_str());
            let mut board = boards.up(design, &image, name, cold, lasting, printer)?;
            printer.doing("Copying penstock and the model into the board");
            let path = boards::furnish(&mut board, &file)?;
            if keep_disk {
                // What it was given is to be there after a reset.
                let synced = board.run(&Command::new("sync"));
                synced?.succeeded()?;
            }
            board.detach().map_err(boards::failed)?;
            printer.done();
            let name = &file.model.machine;
            printer.say(format!("The board {name} is up. Enter it with `penstock board ssh {name}`; the model is {path} there."));
            printer.say(format!("Drop it with `penstock board down {name}`."));
            printer.document(&OneBoard { board: name.to_string(), model: Some(path) })?;
            Ok(Status::Holds)
        }
        Verb::Reset { name, orderly } => {
            let board = Board::attach(boards.cache(), &name).map_err(boards::failed)?;
            board.check_reset().map_err(boards::failed)?;
            printer.doing(format!("Resetting the board {name}"));
            board.reset(orderly, boards.cache()).map_err(boards::failed)?;
            printer.done();
            printer.say(format!("The board {name} is up again."));
            printer.document(&OneBoard { board: name, model: None })?;
            Ok(Status::Holds)
        }
        Verb::Ssh { name, command } => {
            let board = Board::attach(boards.cache(), &name).map_err(boards::failed)?;
            printer.done();
            let terminal = terminal::is_input() && terminal::is_output();
            attached(&board, board.ssh_command(&command, terminal))
        }
        Verb::Cluster(verb) => cluster::run(verb, &boards, settings, printer),
        Verb::Console { name, guest } => {
            let board = Board::attach(boards.cache(), &name).map_err(boards::failed)?;
            printer.done();
            undefined(&board, &guest).map_or(Ok(()), Err)?;
            attached(&board, board.console_command(&guest))
        }
        Verb::Down { name } => {
            Board::drop_kept(boards.cache(), &name).map_err(boards::failed)?;
            printer.say(format!("The board {name} is gone."));
            printer.document(&OneBoard { board: name, model: None })?;
            Ok(Status::Holds)
        }
        Verb::List => {
            let (kept, cleared) = Board::survey(boards.cache()).map_err(boards::failed)?;
            cleared.iter().for_each(|why| printer.warn(why.to_string()));
            let kept = ListOfBoards { boards: kept };
            printer.data(&kept, || match kept.boards.is_empty() {
                true => "No boards are kept.".to_owned(),
                false => kept.boards.iter().map(|board| format!("{board}\n")).collect(),
            })?;
            Ok(Status::Holds)
        }
    }
}

/// What is to be said where a guest is not defined on a board; `None` where it is, or the board does not tell. The account that consoles are
/// entered by answers strangers, and repeats nothing of what it is asked for.
fn undefined(board: &Board, guest: &GuestName) -> Option<Failure> {
    let listed =
        board.run(&Command::new(boards::BINARY).args(["console", "--json"]).deadline(LISTING)).ok()?;
    not_among(board.name(), guest, &listed.stdout)
}

/// The same, as the board's `console --json` lists its guests.
fn not_among(board: &str, guest: &GuestName, listed: &[u8]) -> Option<Failure> {
    #[derive(Deserialize)]
    struct Listed {
        guest: GuestName,
    }
    #[derive(Deserialize)]
    struct Consoles {
        guests: Vec<Listed>,
    }
    let Consoles { guests } = serde_json::from_slice(listed).ok()?;
    if guests.iter().any(|listed| listed.guest == *guest) {
        return None;
    }
    let names: Vec<&str> = guests.iter().map(|listed| listed.guest.as_str()).collect();
    let text = format!("guest {guest} is not defined on the board {board}");
    Some(Failure::new(Status::BadInput, text).hint(match names[..] {
        [] => format!(
            "no guest is: apply a model first, as with `penstock board ssh {board} -- penstock apply MODEL`"
        ),
        _ => format!("those that are: {}", names.join(", ")),
    }))
}

/// Runs a command that enters `board` on this terminal, and ends as it ends; when the board ended with it, that is said.
fn attached(board: &Board, command: Command) -> Result<Status, Failure> {
    let status = command.run_attached()?;
    let died = (status == ssh::FAILED).then(|| board.died()).flatten();
    died.map_or_else(|| exit_with(status), |died| Err(boards::failed(died)))
}

/// Has the board image there, from a file or into one if asked to.
fn image(boards: &Boards, file: &ImageFile, printer: &mut Printer) -> Result<Status, Failure> {
    let (image, unpacked) = match &file.from {
        Some(from) => {
            let (image, unpacked) = boards.image_from(from, &proof(from, file)?, printer)?;
            if !unpacked {
                let what = "is the file that you mean; nothing of it was taken, since there is an image of this version already";
                printer.say(format!("{} {what}.", from.display()));
            }
            (image, Some(unpacked))
        }
        None => (boards.image(printer)?, None),
    };
    let packed = match &file.to {
        Some(to) => Some(PackedImage { file: to.clone(), sha256: boards.pack(&image, to, printer)? }),
        None => {
            boards.prepare(&image, printer)?;
            None
        }
    };
    printer.done();
    let (digest, directory) = (image.digest().to_owned(), image.directory().to_owned());
    let made = BoardImage { digest, directory, unpacked, packed };
    printer.data(&made, || match &made.packed {
        Some(packed) => format!("{}  {}", packed.sha256, packed.file.display()),
        None => format!("board image {} in {}", image.digest(), image.directory().display()),
    })?;
    Ok(Status::Holds)
}

/// What the file is held against.
fn proof(from: &Path, file: &ImageFile) -> Result<Proof, Failure> {
    let proof = match (&file.sha256, &file.key) {
        (Some(digest), _) => Proof::of_sha256(digest),
        (None, Some(key)) => Proof::of_signature(key, from),
        (None, None) => {
            return Err(Failure::new(Status::Internal, "--from was taken without --sha256 and --key"));
        }
    };
    proof.map_err(|source| boards::failed(BoardError::Unproven { file: from.to_owned(), source }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_a_board_does_not_have_is_named_with_those_that_it_has() {
        let said = |guests: &str| {
            let listed = format!("{{\"kind\": \"consoles\", \"guests\": {guests}}}");
            let failure = not_among("practice", &"nope".parse().unwrap(), listed.as_bytes())?;
            assert_eq!(failure.status, Status::BadInput);
            Some(format!("{}: {}", failure.in_one_line(), failure.hints.concat()))
        };
        let wanted = "guest nope is not defined on the board practice: those that are: web, db";
        let listed = r#"[{"guest": "web", "kind": "container", "bytes": 3}, {"guest": "db"}]"#;
        assert_eq!(said(listed).as_deref(), Some(wanted));
        assert!(said("[]").unwrap().contains("no guest is: apply a model first"));
        assert_eq!(said(r#"[{"guest": "nope"}]"#), None);
        assert_eq!(said("what?"), None, "who cannot be asked keeps nobody out");
    }
}
