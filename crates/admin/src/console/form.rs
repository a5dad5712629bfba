//! Extensions of forms for operators: errors of the admin API, and idempotent writes.

use axum::http::StatusCode;

use crate::error::ApiError;
use tollgate_ledger::key_rules::{self, NAME_BYTES_MAX, NOTE_CHARS_MAX, TextError};
use tollgate_ledger::{IdempotencyKey, LedgerError};
use tollgate_web_kit::{FieldError, FlashLevel, Form, PageFrame};

/// Reason why a form had no effect.
#[derive(Debug)]
pub(super) enum FormRejection {
    /// An error in one field.
    Field(FieldError),
    /// An error of the whole form, or of the requested action.
    Whole(ApiError),
}

impl FormRejection {
    /// An error of the field called `field`, with the sentence that stands beside it.
    pub(super) fn at(field: &'static str, text: impl Into<String>) -> Self {
        Self::Field(FieldError::new(field, text))
    }

    /// The error of a form that has no fields to show it at.
    pub(super) fn into_api_error(self) -> ApiError {
        match self {
            Self::Field(error) => ApiError::malformed(error.text),
            Self::Whole(error) => error,
        }
    }
}

impl From<FieldError> for FormRejection {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

impl<E: Into<ApiError>> From<E> for FormRejection {
    fn from(error: E) -> Self {
        Self::Whole(error.into())
    }
}

/// A value that was read from a form, or what came of a form.
pub(super) type FormResult<T> = Result<T, FormRejection>;

/// The token with which the form counts once.
///
/// # Errors
/// When the form carries none.
pub(super) fn require_token(form: &Form) -> FormResult<&str> {
    form.submit_token().ok_or_else(|| ApiError::malformed("The form was not whole.").into())
}

/// Idempotency key of a form, so that sending it twice has one effect.
///
/// # Errors
/// When the form carries no token.
pub(super) fn idempotency(form: &Form) -> FormResult<IdempotencyKey> {
    Ok(IdempotencyKey { id: Some(require_token(form)?.to_owned()), digest: form.digest() })
}

/// The name of an account or key.
///
/// # Errors
/// When the ledger would take no such name.
pub(super) fn name<'a>(form: &'a Form, field: &'static str) -> FormResult<&'a str> {
    let name = form.text(field);
    let text = match key_rules::check_name(name) {
        Ok(()) => return Ok(name),
        Err(TextError::Empty) => "This is needed.".to_owned(),
        Err(TextError::TooLong) => format!("At most {NAME_BYTES_MAX} bytes."),
        Err(TextError::ControlCharacter) => "One line, please.".to_owned(),
    };
    Err(FormRejection::at(field, text))
}

/// A note, which may be empty.
///
/// # Errors
/// When the ledger would take no such note.
pub(super) fn note<'a>(form: &'a Form, field: &'static str) -> FormResult<&'a str> {
    let note = form.text(field);
    let text = match key_rules::check_note(note) {
        Ok(()) => return Ok(note),
        Err(TextError::TooLong) => format!("At most {NOTE_CHARS_MAX} characters."),
        Err(TextError::Empty | TextError::ControlCharacter) => "One line, please.".to_owned(),
    };
    Err(FormRejection::at(field, text))
}

/// The form once more, with what was typed and what is wrong with it: the status of its page, the form
/// and the frame with a message.
pub(super) fn refuse(
    mut form: Form,
    error: FormRejection,
    frame: PageFrame,
) -> (StatusCode, Form, PageFrame) {
    match error {
        FormRejection::Field(error) => {
            form.errors.note(error.field, error.text);
            let text = "Nothing was done: something in the form is not in order.";
            (StatusCode::UNPROCESSABLE_ENTITY, form, frame.with_flash(FlashLevel::Error, text))
        }
        FormRejection::Whole(error) => {
            let frame = frame.with_flash(FlashLevel::Error, error.message());
            (error.status(), form, frame)
        }
    }
}

/// Show the ledger's refusal of an amount at the field of the amount.
pub(super) fn refuse_amount(field: &'static str, error: LedgerError) -> FormRejection {
    match error {
        LedgerError::RefundTooLarge { .. }
        | LedgerError::NotOwed
        | LedgerError::CreditInFlight(_) => FormRejection::at(field, format!("{error}.")),
        error => error.into(),
    }
}
