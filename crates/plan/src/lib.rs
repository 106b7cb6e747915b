//! From a [`Model`](penstock_model::Model) and an [`Inventory`](penstock_model::Inventory) to an ordered [`Plan`], purely.
//!
//! A plan is data: immutable, ordered, reviewable. Each step says what it does ([`Action`]), why, what it needs, how it
//! is undone, and which [`Fact`] holds afterwards. Nothing is decided while it is carried out. The [`check`](mod@check)
//! module judges a finished plan without knowing how it was made.

pub mod action;
pub mod carry;
pub mod fact;
pub mod step;

pub use action::{Action, Direction};
pub use carry::{Carry, CarryError};
pub use fact::Fact;
pub use step::{Plan, Step, StepId};
