//! The documents of this tree: read as Markdown, checked link by link, and made into a site by mdBook (`make docs`).
//!
//! - [`tree`] finds the documents, and says where a path leads.
//! - [`markdown`] reads the links and headings of one of them, [`fragment`] what headings are called in links.
//! - [`links`] follows every link. `make test` does that; it needs nothing but the tree.
//! - [`index`] reads `docs/README.md`, which is the table of contents of the site as well.
//! - [`recording`] draws recorded sessions in a terminal.
//! - [`book`] makes the source that mdBook reads, [`site`] follows every link of what it has made of it.
#![allow(clippy::disallowed_methods, reason = "reads the tree of its developer, and writes below target/")]

pub mod book;
pub mod fragment;
pub mod index;
pub mod links;
pub mod markdown;
mod problem;
pub mod recording;
pub mod site;
pub mod tree;

pub use problem::Problem;
