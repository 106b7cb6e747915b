//! How late threads wake: what to measure, in which order, with what, and what the tools' output says.
//!
//! - [`settings`]: what there is to measure on a machine. [`schedule`]: in which order, balanced and drawn from a seed.
//! - [`command`]: how the tools are started. [`parse`]: what they print. Hostile or cut-off output is an error, never a 0.
//! - [`load`]: hackbench on other CPUs meanwhile. [`isolation`]: how a tool gets onto a CPU that nothing else may use.
//! - [`machine`]: takes blocks on a machine. [`tracing`]: has the kernel's tracer as it was found.
//! - [`wake_ups`]: all that as a workload of the engine: when to stop, and why. [`conclude`]: what its blocks tell.

pub mod command;
pub mod conclude;
pub mod isolation;
pub mod load;
pub mod machine;
pub mod parse;
pub mod schedule;
pub mod settings;
pub mod tracing;
pub mod wake_ups;
