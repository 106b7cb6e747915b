//! What a model says of a machine's NICs and their VFs in the words of other programs that set them up, and what an audit advises in those
//! of TuneD: for who moves to them or from them, or keeps them beside Penstock.
//!
//! No other program has words for all of a model, and a model has none for all that they say. What one lacks is told
//! ([`Exported::left_out`], [`Imported::warnings`]), never dropped in silence.

mod export;
mod import;
mod ini;
mod tuned;
mod vf_names;

pub use export::{ExportFormat, Exported, ExportedFile, export};
pub use import::{ImportFormat, Imported, import};
pub use tuned::{
    TUNED_FILE, TunedCoverage, TunedProfile, TunedRow, TunedSource, TunedVerdict, compare_with_tuned,
    read_tuned, tuned_profile,
};
