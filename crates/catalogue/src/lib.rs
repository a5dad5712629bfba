//! Public price lists, parsed exactly and compared with each other and with `models.yaml`.
//!
//! [`read`] turns a list into a [`Catalogue`]: rates by unit and condition, in femto-dollars, and
//! whatever of it has no unit here. [`compare`] holds our models against any number of catalogues and
//! says where they differ; nothing is changed. [`as_text`] and [`as_json`] show the [`PriceReport`] to people
//! and to programs. Nothing here reads a file or calls anybody.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used, clippy::indexing_slicing)]

mod figure;
mod tree;
mod condition;
mod listing;
mod provider;
mod source;
mod own;
mod report;
mod proposal;
mod compare;
mod render;

pub use compare::{NamedCatalogue, compare};
pub use listing::{Catalogue, ListFormat, ListedRate, Listing, Unsayable};
pub use own::{OwnModel, OwnTarget};
pub use render::{as_json, as_text};
pub use report::{
    Difference, Disagreement, LimitDifference, ListSummary, ListedPrice, MalformedEntry,
    PriceReport, Proposal, UnknownPrice,
};
pub use source::{LIST_BYTES_MAX, SourceError, read};
