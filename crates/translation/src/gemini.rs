//! Google's Gemini API: `generateContent` and `streamGenerateContent`.
//!
//! Fields have two names there, `systemInstruction` and `system_instruction`, and either is read. The
//! model and whether the answer is streamed stand in the path, and not in the body. Seals travel as the
//! `thoughtSignature` of a part: in base64, as SDKs decode it and encode it anew.

mod answer;
mod calls;
mod fields;
mod members;
mod read;
mod schema;
mod settings;
mod stream;
mod write;
mod write_settings;

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};

use crate::dialect::implement_dialect;
use crate::names::Naming;
use crate::seal::{self, Maker};

/// Placeholder that Gemini 3 accepts instead of a signature for a call of another model; a call without any
/// signature is refused (Gemini API docs, "Thought signatures").
const FOREIGN_CALL_SIGNATURE: &str = "skip_thought_signature_validator";

/// Reads base64 with padding or without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Dialect of Google's Gemini API.
#[derive(Debug)]
pub struct Gemini;

implement_dialect!(Gemini, _target => Naming::GEMINI, stream::ContentReader, stream::ChunkWriter);

/// The seal that a customer sends back as a signature: one of another maker that travelled in base64,
/// or Gemini's own. `None` for the word that stands for none.
fn seal_of_signature(signature: &str) -> Option<Cow<'static, str>> {
    if signature.is_empty() || signature == FOREIGN_CALL_SIGNATURE {
        return None;
    }
    // Python's SDK encodes with the alphabet for URLs what it has decoded with the other one.
    let standard = signature.replace('-', "+").replace('_', "/");
    let travelled = BASE64.decode(standard).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let seal = travelled.filter(|text| seal::is_wrapped(text));
    Some(seal.unwrap_or_else(|| seal::wrap(Maker::Gemini, signature)).into())
}

/// A seal as a customer's signature. Empty where Gemini has thought without signing it.
fn signature_of_seal(seal: &str) -> Cow<'_, str> {
    match seal::open(Maker::Gemini, seal) {
        Some(own) => own.into(),
        None => general_purpose::STANDARD.encode(seal).into(),
    }
}

#[cfg(test)]
mod tests;
