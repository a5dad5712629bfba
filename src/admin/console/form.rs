//! What was typed into a form: read, checked, and shown again where something is wrong with it.

use std::num::NonZeroU32;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use super::Console;
use crate::admin::error::ApiError;
use crate::clock::UnixMs;
use crate::ledger::{self, LedgerError};
use crate::money::Nanousd;
use crate::secret::Secret;
use crate::web::{Frame, Tone};

/// The longest name, in bytes: that of the ledger.
const TEXT_BYTES_MAX: usize = 256;
/// The field that makes a form count once.
const ONCE: &str = "once";

/// The fields of a form. A form that has not been sent has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Typed {
    fields: Vec<(String, String)>,
    wrong: Option<(&'static str, String)>,
    /// What tells this form from another that is called the same.
    digest: [u8; 32],
}

/// Why nothing was done.
#[derive(Debug)]
pub(super) enum Unfit {
    /// What is wrong with a field.
    Field(&'static str, String),
    /// What is wrong with the whole.
    Whole(ApiError),
}

impl<E: Into<ApiError>> From<E> for Unfit {
    fn from(error: E) -> Self {
        Self::Whole(error.into())
    }
}

/// A value, or the field that does not hold one.
pub(super) type Fit<T> = Result<T, Unfit>;

impl FromRequest<Console> for Typed {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        // The guard has bounded it.
        let bytes = Bytes::from_request(request, console).await;
        let bytes = bytes.map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
        let fields = url::form_urlencoded::parse(&bytes).into_owned();
        // It differs from session to session, and says nothing of what is asked for.
        let fields: Vec<_> = fields.filter(|(name, _)| name != "csrf").collect();
        let digest = Sha256::digest(format!("{path} {fields:?}")).into();
        Ok(Self { fields, wrong: None, digest })
    }
}

impl Typed {
    /// What stands in a field, without the space around it; nothing where there is no such field.
    pub(super) fn text(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|(known, _)| known == name);
        field.map_or("", |(_, value)| value.trim())
    }

    /// For pages: what was typed, or `otherwise` if the form was not sent.
    pub(super) fn or<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        let field = self.fields.iter().find(|(known, _)| known == name);
        field.map_or(otherwise, |(_, value)| value)
    }

    /// For pages: what is wrong with a field.
    pub(super) fn wrong(&self, name: &str) -> Option<&str> {
        self.wrong.as_ref().filter(|(known, _)| *known == name).map(|(_, text)| text.as_str())
    }

    /// What the form is called, so that sending it twice does it once.
    pub(super) fn once(&self) -> Fit<&str> {
        let id = self.text(ONCE);
        let is_one =
            (16..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
        if is_one { Ok(id) } else { Err(ApiError::malformed("The form was not whole.").into()) }
    }

    /// The same for the ledger.
    pub(super) fn asked(&self) -> Fit<ledger::Asked> {
        Ok(ledger::Asked { id: Some(self.once()?.to_owned()), digest: self.digest })
    }

    /// One line of text, which may be empty.
    pub(super) fn line(&self, name: &'static str, bytes_max: usize) -> Fit<&str> {
        let text = self.text(name);
        if text.len() > bytes_max {
            return Err(Unfit::Field(name, format!("At most {bytes_max} bytes.")));
        }
        if text.contains(char::is_control) {
            return Err(Unfit::Field(name, "One line, please.".to_owned()));
        }
        Ok(text)
    }

    /// One line of text that says something.
    pub(super) fn name(&self, name: &'static str) -> Fit<&str> {
        match self.line(name, TEXT_BYTES_MAX)? {
            "" => Err(Unfit::Field(name, "This is needed.".to_owned())),
            text => Ok(text),
        }
    }

    /// Dollars above zero.
    pub(super) fn amount(&self, name: &'static str) -> Fit<Nanousd> {
        let amount = self.amount_or_none(name)?;
        let amount = amount.filter(|amount| !amount.is_zero());
        amount.ok_or_else(|| Unfit::Field(name, "Dollars above zero, such as 10.00.".to_owned()))
    }

    /// Dollars; nothing where the field is empty.
    pub(super) fn amount_or_none(&self, name: &'static str) -> Fit<Option<Nanousd>> {
        let text = self.text(name);
        let text = text.strip_prefix('$').unwrap_or(text);
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |error| Unfit::Field(name, format!("This will not do: {error}."));
        text.parse().map(Some).map_err(wrong)
    }

    /// A number above zero; nothing where the field is empty.
    pub(super) fn count(&self, name: &'static str) -> Fit<Option<NonZeroU32>> {
        match self.text(name) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(count) => Ok(Some(count)),
                Err(_) => {
                    Err(Unfit::Field(name, "A whole number from 1 to 4294967295.".to_owned()))
                }
            },
        }
    }

    /// A time in UTC as browsers send it; nothing where the field is empty.
    pub(super) fn time(&self, name: &'static str) -> Fit<Option<UnixMs>> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        // `2026-01-31T12:00`, with or without seconds.
        let seconds = if text.len() == 16 { ":00" } else { "" };
        let time = UnixMs::parse_rfc3339(&format!("{text}{seconds}Z"));
        let wrong = || Unfit::Field(name, "A time such as 2027-01-31T12:00, in UTC.".to_owned());
        time.map(Some).ok_or_else(wrong)
    }

    /// Something is wrong: the form is shown once more, with what was typed. What the ledger refuses
    /// of an amount is said at the field.
    pub(super) fn refused(mut self, unfit: Unfit, frame: Frame) -> (StatusCode, Self, Frame) {
        match unfit {
            Unfit::Field(name, text) => {
                self.wrong = Some((name, text));
                let text = "Nothing was done: something in the form is not in order.";
                (StatusCode::UNPROCESSABLE_ENTITY, self, frame.saying(Tone::Bad, text))
            }
            Unfit::Whole(error) => {
                let frame = frame.saying(Tone::Bad, error.message());
                (error.status(), self, frame)
            }
        }
    }
}

/// A name for the forms of a page that is shown now.
pub(super) fn new_once() -> String {
    const CHARACTERS: usize = 22;
    let random = Secret::new_token();
    random.expose().chars().take(CHARACTERS).collect()
}

/// What is said where the ledger refuses an amount.
pub(super) fn at_amount(name: &'static str, error: LedgerError) -> Unfit {
    match error {
        LedgerError::RefundTooLarge { .. } => Unfit::Field(name, format!("{error}.")),
        error => error.into(),
    }
}
