//! Boards as the verbs `rehearse` and `board` need them: designed from a model, booted with progress, furnished.

use std::{collections::BTreeSet, path::Path};

use penstock_board::{Board, Cache, Design, DesignError, Image, Lasting, Progress, Proof, UpOptions};
use penstock_host::{Command, Output, Place, process};
use penstock_model::{DataPath, InterfaceName, Inventory, Model, Uplink};

use crate::{
    failure::{Failure, Status},
    model_file::{self, ModelFile},
    settings::Settings,
    ui::printer::Printer,
};

/// Where this binary is inside a board: on the path of whoever enters it.
pub const BINARY: &str = "/usr/local/bin/penstock";

/// The boards of this user.
pub struct Boards {
    cache: Cache,
}

impl Boards {
    /// Boards whose images and saved states are in the user's cache.
    pub fn new(settings: &Settings) -> Boards {
        Boards { cache: Cache::at(&settings.cache) }
    }

    /// The cache of images and saved boards that these boards use.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The board for a model; with an inventory, one like the machine that it describes.
    ///
    /// # Errors
    ///
    /// `Status::BadInput` with all reasons why no board can be composed; `Status::DoesNotFit` where the inventory is the only one, with the
    /// places in the file as `plan` tells them.
    pub fn design(
        &self,
        file: &ModelFile,
        inventory: Option<&Inventory>,
        printer: &mut Printer,
    ) -> Result<Design, Failure> {
        Design::from_model(&file.model, inventory).map_err(|errors| {
            let of_inventory = |error: &DesignError| matches!(error, DesignError::NoSuchPf { .. });
            let does_not_fit = errors.iter().all(of_inventory);
            if let (true, Some(inventory)) = (does_not_fit, inventory)
                && let Err(found) = penstock_plan::resolve(&file.model, inventory)
            {
                return model_file::does_not_fit(&found, &file.source, printer);
            }
            let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let text = format!("no board can be composed for {}:\n  {}", file.source.name, list.join("\n  "));
            Failure::new(if does_not_fit { Status::DoesNotFit } else { Status::BadInput }, text)
        })
    }

    /// The board image, made now if it is not there.
    ///
    /// # Errors
    ///
    /// When this user cannot make one, the disk has no room, a package cannot be downloaded, or building it fails;
    /// `Status::Interrupted`.
    pub fn image(&self, printer: &mut Printer) -> Result<Image, Failure> {
        Image::ensure(&self.cache, &mut |progress| show(printer, progress)).map_err(failed)
    }

    /// The board image, unpacked from a file if it is not there, and whether it was; the file is shown to be the one that is meant.
    ///
    /// # Errors
    ///
    /// When the file is not the one of `proof`, cannot be read, or is no image of this version's recipe; when the disk has no room.
    pub fn image_from(
        &self,
        file: &Path,
        proof: &Proof,
        printer: &mut Printer,
    ) -> Result<(Image, bool), Failure> {
        Image::unpack(&self.cache, file, proof, &mut |progress| show(printer, progress)).map_err(failed)
    }

    /// Writes the board image to a file; its SHA-256.
    ///
    /// # Errors
    ///
    /// When the image is not what was made, or cannot be read; when `file` cannot be written.
    pub fn pack(&self, image: &Image, file: &Path, printer: &mut Printer) -> Result<String, Failure> {
        image.pack(file, &mut |progress| show(printer, progress)).map_err(failed)
    }

    /// Finds out what a first board would, so that it starts at once.
    ///
    /// # Errors
    ///
    /// When no QEMU fits the image, it cannot be run, or the cache cannot be written.
    pub fn prepare(&self, image: &Image, printer: &mut Printer) -> Result<(), Failure> {
        Board::prepare(image, &self.cache, &mut |progress| show(printer, progress)).map_err(failed)
    }

    /// A running board; one with a name can be left running.
    ///
    /// # Errors
    ///
    /// When a program is missing, no QEMU fits, the name is taken, QEMU ends, or the board is not up in time; it is gone then.
    pub fn up(
        &self,
        design: Design,
        image: &Image,
        name: Option<&str>,
        cold: bool,
        lasting: Lasting,
        printer: &mut Printer,
    ) -> Result<Board, Failure> {
        let name = name.map(str::to_owned);
        let lasting = Lasting { systemd: lasting.systemd || design.systemd, ..lasting };
        let options = UpOptions { cold, lasting, name, ..options()? };
        Board::up(design, image, &self.cache, &options, &mut |progress| show(printer, progress))
            .map_err(failed)
    }
}

/// How every board is brought up: this very binary is its embedded switches, and the program that runs on it.
///
/// # Errors
///
/// When the path of this binary is not known.
pub fn options() -> Result<UpOptions, Failure> {
    let binary = process::own_program()?;
    let program = Some(binary.clone());
    let switch = Some(Command::new(binary).args(["embedded-switch", "--until-left", "--again"]));
    Ok(UpOptions { switch, program, ..UpOptions::default() })
}

/// The bridges of the host that the NICs of guests lead to.
fn bridges(model: &Model) -> BTreeSet<InterfaceName> {
    let nics = model.guests.values().flat_map(|guest| guest.nics.values());
    let uplinks = nics.filter_map(|nic| match (nic.path, &nic.uplink) {
        (DataPath::Tap | DataPath::VirtioVdpa, Some(Uplink::Interface(bridge))) => Some(bridge),
        // The switch of a VM's NIC leads to an interface of any kind.
        (DataPath::Switch | DataPath::SwitchTap | DataPath::VhostVdpa, _)
        | (_, Some(Uplink::Function(_)) | None) => None,
    });
    uplinks.cloned().collect()
}

/// Puts this binary, the model and its templates into a board, and makes the bridges that the model takes for granted; gives the model's
/// path there.
///
/// # Errors
///
/// When the board does not answer any more, a file cannot be written there, or a directory or a bridge cannot be made.
pub fn furnish(board: &mut Board, file: &ModelFile) -> Result<String, Failure> {
    put_into(board, file)
        .map_err(|failure| interrupted("penstock and the model were copied into the board", failure))
}

fn put_into(board: &mut Board, file: &ModelFile) -> Result<String, Failure> {
    board.install(BINARY)?;
    let name = Path::new(&file.source.name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = format!("/root/{name}");
    board.write(&path, file.source.text.as_bytes(), 0o644)?;
    for template in &file.templates {
        let place = Path::new("/root").join(&template.path).to_string_lossy().into_owned();
        let directory = Path::new(&place).parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let made = board.run(&Command::new("mkdir").args(["-p", "--", &directory]));
        made?.succeeded()?;
        board.write(&place, template.text.as_bytes(), 0o644)?;
    }
    board.make_bridges(bridges(&file.model)).map_err(failed)?;
    Ok(path)
}

/// An interrupt of what was `doing` with a board, in these words; any other failure is as it was. What was run in the board for it says nothing
/// to whoever typed Ctrl-C.
pub fn interrupted(doing: &str, failure: Failure) -> Failure {
    match failure.status {
        Status::Interrupted => Failure::new(Status::Interrupted, format!("interrupted while {doing}")),
        _ => failure,
    }
}

/// Tells what is being done of a board or a cluster.
pub fn show(printer: &mut Printer, progress: Progress) {
    match progress {
        Progress::Phase(what) => printer.doing(what),
        Progress::Fraction(done) => printer.fraction(done),
        Progress::Note(what) => printer.say(what),
    }
}

/// A board's errors know what to do about themselves.
pub fn failed(error: penstock_board::BoardError) -> Failure {
    Failure::from(error)
}

/// A verb inside the board did not do what it should; what it said is passed on with its exit status.
pub fn refused(verb: &str, output: &Output) -> Failure {
    // A board runs this very program. Another number is that of a signal, of the shell or of `ssh`, and is told.
    let status = output.status.code().and_then(|code| Status::of(u8::try_from(code).ok()?));
    let status = status.filter(|status| !status.is_good()).unwrap_or(Status::Failed);
    Failure::new(
        status,
        format!("inside the board, `{verb}` ended with {}:\n{}", output.status, output.errors().trim_end()),
    )
}
