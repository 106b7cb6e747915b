//! The archive format of the board's first file system.

pub use penstock_host::cpio::Archive;
