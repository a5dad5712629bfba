//! A new password for a customer who has none or has lost it: made here, and shown once.

use axum::response::{IntoResponse as _, Response};

use super::access::{LoggedInOperator, Visit};
use super::customer::{HERE, render};
use super::form::{self, FormRejection, FormResult};
use crate::login::refused;
use tollgate_ledger::{AccountId, LedgerError, normal_email};
use tollgate_types::secret::Secret;
use tollgate_web_kit::{FlashLevel, Form};

/// Characters of a password: some 120 bits, and short enough to be read out.
const CHARACTERS: usize = 20;

/// `POST /operator/customers/{account}/login`
pub(super) async fn set(Visit { operator, account }: Visit, form: Form) -> Response {
    match submit_login(&operator, account.id, &form).await {
        Ok(password) => {
            let frame = operator.frame(HERE);
            let frame = match password {
                Some(_) => frame.with_flash(
                    FlashLevel::Success,
                    "The log-in was set. Older sessions have ended.",
                ),
                None => frame.with_flash(
                    FlashLevel::Error,
                    "This password was made before. It is not shown again.",
                ),
            };
            render(&operator, frame, Form::default(), account, password).await.into_response()
        }
        Err(error) => {
            let (status, form, frame) = form::refuse(form, error, operator.frame(HERE));
            (status, render(&operator, frame, form, account, None).await).into_response()
        }
    }
}

async fn submit_login(
    operator: &LoggedInOperator,
    account: AccountId,
    form: &Form,
) -> FormResult<Option<Secret>> {
    let wrong = |text: String| FormRejection::at("email", text);
    let email = normal_email(form.text("email")).map_err(|error| wrong(format!("{error}.")))?;
    let password = Secret::new_token().expose().chars().take(CHARACTERS).collect();
    let password = Secret::new(password);
    let hash = operator.admin().passwords.hash(password.clone()).await;
    let hash = hash.map_err(refused)?;
    match operator.by(form)?.set_login(account, &email, &hash).await {
        Ok(written) => Ok((!written.repeated).then_some(password)),
        Err(LedgerError::EmailTaken) => Err(wrong("Another account has this address.".to_owned())),
        Err(error) => Err(error.into()),
    }
}
