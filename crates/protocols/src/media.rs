//! Input tokens that pictures, documents, sound and videos come to, by the formulas that the makers of
//! models publish ([ADR 78](../../../docs/adr/0078-bounds-of-holds.md)).
//!
//! A formula has the dimensions of a picture and how closely the model is to look at it. The dimensions are
//! in the first bytes of a file: nothing else of it is decoded. A picture that nobody has seen, since it is
//! at an address or has no header that can be read, comes to the most that its formula can have.

mod family;
mod formula;
mod inline_bytes;
mod pdf;
mod picture_size;

pub use family::PictureFamily;
pub(crate) use formula::PictureDetail;
pub(crate) use inline_bytes::InlineBytes;
pub(crate) use pdf::PdfBound;
pub(crate) use picture_size::PictureSize;
