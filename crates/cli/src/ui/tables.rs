//! Tables, and what stands above and below them: one file for each thing that is shown.

pub mod audit;
pub mod inventory;
