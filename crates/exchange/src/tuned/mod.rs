//! TuneD's profiles: what an audit advises as one, and what one does of that.
//!
//! A profile is `tuned.conf`, an INI file whose sections are plugins (tuned.conf(5)); those that take what an audit advises are `sysctl`,
//! `sysfs`, `vm`, `bootloader`, `modules`, `service` and `irqbalance`.

mod compare;
mod profile;
mod read;
mod setting;

pub use compare::{TunedCoverage, TunedRow, TunedVerdict, compare_with_tuned};
pub use profile::{TUNED_FILE, tuned_profile};
pub use read::{TunedProfile, TunedSource, read_tuned};
