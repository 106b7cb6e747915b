//! What there is to measure of a model's storage. Pure.

use penstock_model::{
    Guest, GuestKind, Model, StorageTarget,
    measurement::{EndKind, Mix, Subject},
    verdict::Vantage,
};

use crate::matrix::{self, Matrix, Planned};

/// The targets of a model: those of `measure: storage`, each with its path on the host, where it has one that the model
/// tells. A device of a container is the device that it was given.
pub fn targets(model: &Model) -> Vec<StorageTarget> {
    let targets = model.measure.storage.iter();
    targets.map(|target| StorageTarget { host: host_path(model, target), ..target.clone() }).collect()
}

fn host_path(model: &Model, target: &StorageTarget) -> Option<String> {
    let given = |guest: &Guest| {
        guest.devices.iter().find(|device| device.inside == target.path).map(|device| device.path.clone())
    };
    target.host.clone().or_else(|| model.guests.get(&target.guest).and_then(given))
}

/// What a target is called in the cells, at both ends alike.
pub fn label(target: &StorageTarget) -> String {
    format!("{}:{}", target.guest, target.path)
}

/// Whether a target is a device; else it is a directory.
pub fn is_device(target: &StorageTarget) -> bool {
    target.path.starts_with("/dev/")
}

/// The cells of all targets of a model: the host first, which guests are compared with. What may not be written to has no
/// cells that write. `quick`: one block size, depth and number of jobs.
pub fn matrix(model: &Model, quick: bool, null: bool) -> Matrix {
    let mut all = Matrix::default();
    for target in targets(model) {
        let Some(guest) = model.guests.get(&target.guest) else { continue };
        // A container's directory is there on the host as well, through the container's root.
        let on_host = guest.kind == GuestKind::Container || target.host.is_some();
        let host = on_host.then_some((Vantage::Host, EndKind::Host));
        let inside = (Vantage::Guest(target.guest.clone()), EndKind::from(guest.kind));
        let at: Vec<_> = host.into_iter().chain([inside]).collect();
        let cells = matrix::storage(&label(&target), &at, quick, null).cells;
        let first = all.cells.iter().map(|cell| cell.block + 1).max().unwrap_or(0);
        let allowed = cells.into_iter().filter(|cell| target.write || !writes(cell));
        all.cells.extend(allowed.map(|cell| Planned { block: first + cell.block, ..cell }));
    }
    all
}

/// Whether a cell writes.
pub fn writes(cell: &Planned) -> bool {
    matches!(&cell.measurement.subject, Subject::Storage(storage) if storage.mix != Mix::Read)
}
