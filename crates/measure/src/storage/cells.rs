//! What there is to measure of a model's storage. Pure.

use penstock_model::{
    Guest, GuestKind, Model, StorageTarget,
    measurement::{EndKind, Mix, Subject},
    verdict::Vantage,
};

use crate::matrix::{self, Matrix, Null, Planned, join};

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
pub fn matrix(model: &Model, quick: bool, null: Null) -> Matrix {
    targets(model).iter().map(|target| of_target(model, target, quick, null)).fold(Matrix::default(), join)
}

fn of_target(model: &Model, target: &StorageTarget, quick: bool, null: Null) -> Matrix {
    let Some(guest) = model.guests.get(&target.guest) else { return Matrix::default() };
    // A container's directory is there on the host as well, through the container's root.
    let on_host = target.host.is_some() || (guest.kind == GuestKind::Container && !is_device(target));
    let host = on_host.then_some((Vantage::Host, EndKind::Host));
    let inside = (Vantage::Guest(target.guest.clone()), EndKind::from(guest.kind));
    let at: Vec<_> = host.into_iter().chain([inside]).collect();
    let mut matrix = matrix::storage(&label(target), &at, quick, null);
    matrix.cells.retain(|cell| target.write || !writes(cell));
    matrix
}

/// Whether a cell writes.
pub fn writes(cell: &Planned) -> bool {
    matches!(&cell.measurement.subject, Subject::Storage(storage) if storage.mix != Mix::Read)
}
