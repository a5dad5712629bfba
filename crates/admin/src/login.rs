//! Logins of customers, set by operators for those who have none or have lost the password.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AdminState;
use super::accounts::find;
use super::caller::Caller;
use super::error::{ApiError, ApiResult};
use super::request::{Body, PathNames};
use super::value::Time;
use tollgate_ledger::{AccountId, LedgerError, normal_email};
use tollgate_types::secret::Secret;
use tollgate_web_kit::password::{CHARS_MAX, CHARS_MIN, PasswordError};

/// Login of a customer.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Login")]
pub(super) struct LoginView {
    account_id: AccountId,
    email: String,
    /// Time at which the password was set: older sessions are void.
    since: Time,
}

/// A new login. Its fields are never printed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLogin {
    /// E-mail address, unique among accounts regardless of letter case.
    #[schemars(extend("maxLength" = 254, "pattern" = "^[!-?A-~]+@[!-?A-~]+$"))]
    email: String,
    /// The password; only its Argon2id hash is stored.
    #[schemars(extend("minLength" = CHARS_MIN, "maxLength" = CHARS_MAX))]
    password: String,
}

/// `PUT /admin/v1/accounts/{account}/login`
pub(super) async fn put(
    State(state): State<AdminState>,
    PathNames(account): PathNames<String>,
    caller: Caller,
    Body(new): Body<NewLogin>,
) -> ApiResult<Json<LoginView>> {
    let account = find(&state, &account)?.id;
    let email = normal_email(&new.email)
        .map_err(|error| ApiError::invalid("email", format!("{error}.")))?;
    let password = Secret::new(new.password);
    // Hashed before the write: the ledger and its journal never see a password.
    let hash = state.passwords.hash(password.clone()).await.map_err(refused)?;
    let by = caller.by_asking(&state, &format!("PUT login {account} {email}"));
    let written = by.set_login(account, &email, &hash).await?;
    let login = written.value;
    if written.repeated {
        // The password is in no digest, so its hash tells whether it was the same request.
        let is_same = state.passwords.is_right(password, Some(&login.password)).await;
        if !is_same.map_err(refused)? {
            return Err(LedgerError::OtherRequest.into());
        }
    }
    Ok(Json(LoginView {
        account_id: account,
        email: login.email.clone(),
        since: login.since.into(),
    }))
}

/// Error for a password that was not hashed.
pub(super) fn refused(error: PasswordError) -> ApiError {
    match error {
        PasswordError::Length => ApiError::invalid("password", format!("{error}.")),
        PasswordError::Busy => ApiError::crowded(format!("{error}.")),
        PasswordError::Failed => ApiError::internal(error),
    }
}
