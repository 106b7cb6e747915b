//! What people see: lines and tables, what is shown while a run measures, and the page of `penstock status --watch`.

pub mod live;
pub mod live_status;
pub mod paragraphs;
pub mod printer;
pub mod tables;
