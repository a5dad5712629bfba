//! Keys of AWS for a role that is assumed, for all accounts or for each.
//!
//! Source: AWS Security Token Service API reference, `AssumeRole`, version 2011-06-15.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_options::auth::{AwsAuth, AwsKeys};
use tollgate_outbound::FormAnswer;
use tollgate_types::clock::UnixMs;
use tollgate_types::secret::Secret;
use url::form_urlencoded::Serializer;

use crate::issued::{AwsSigner, Proof, UnsignedRequest};
use crate::question::{TokenGrant, TokenRequest, ahead_ms, is_sendable};

/// The version of the API.
const VERSION: &str = "2011-06-15";
/// The lifetime of a session, in seconds: the longest for a role that was assumed from another session.
const SESSION_SECONDS: &str = "3600";
/// The service that calls to it are signed for.
const SERVICE: &str = "sts";

/// Builds the request for a session of the role with this tag, at the current time of the server's clock.
pub(crate) fn request<'a>(
    aws: &'a AwsAuth,
    tag: Option<(&str, &str)>,
    now: UnixMs,
) -> Result<TokenRequest<'a>, &'static str> {
    let role = aws.assume_role.as_ref().ok_or("no role is to be assumed")?;
    let mut form = Serializer::new(String::new());
    form.append_pair("Action", "AssumeRole")
        .append_pair("Version", VERSION)
        .append_pair("RoleArn", &role.role_arn)
        .append_pair("RoleSessionName", &role.session_name)
        .append_pair("DurationSeconds", SESSION_SECONDS);
    if let Some(id) = &role.external_id {
        form.append_pair("ExternalId", id.expose());
    }
    if let Some((key, value)) = tag {
        form.append_pair("Tags.member.1.Key", key).append_pair("Tags.member.1.Value", value);
    }
    let form = form.finish();
    let url = &role.sts_url;
    let host = url.host_str().unwrap_or_default();
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let signer = AwsSigner {
        keys: aws.keys.clone(),
        region: aws.region.clone(),
        service: SERVICE.to_owned(),
        ahead_ms: 0,
    };
    let body = [Bytes::from(form.clone())];
    let unsigned =
        UnsignedRequest { method: "POST", authority: &authority, path: url.path(), body: &body };
    let signed = signer.sign(&unsigned, now);
    let mut headers = HeaderMap::new();
    let all = signed.more.into_iter().chain([("authorization", signed.authorization)]);
    for (name, value) in all {
        let value = HeaderValue::from_str(&value).map_err(|_| "its key cannot be sent")?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(TokenRequest { url, form, headers })
}

/// Reads the keys of a session. Their lifetime is by the endpoint's clock.
pub(crate) fn read(
    aws: &AwsAuth,
    answer: &FormAnswer,
    previous_ahead_ms: i64,
) -> Result<TokenGrant, &'static str> {
    let text = std::str::from_utf8(&answer.body).map_err(|_| "its answer is no text")?;
    let ahead_ms = ahead_ms(&answer.headers).unwrap_or(previous_ahead_ms);
    let now = UnixMs(UnixMs::now().0.saturating_add_signed(ahead_ms));
    let (id, secret, session, ends_at) = if text.trim_start().starts_with('{') {
        let document: serde_json::Value =
            serde_json::from_str(text).map_err(|_| "its answer has no keys in it")?;
        let keys = &document["AssumeRoleResponse"]["AssumeRoleResult"]["Credentials"];
        let field = |name: &str| keys[name].as_str().map(str::to_owned);
        // Seconds since 1970, where it is a number.
        let ends_at = match &keys["Expiration"] {
            serde_json::Value::String(text) => UnixMs::parse_rfc3339(text),
            number => seconds(number).map(|seconds| UnixMs(seconds.saturating_mul(1000))),
        };
        (field("AccessKeyId"), field("SecretAccessKey"), field("SessionToken"), ends_at)
    } else {
        let field = |name: &str| element(text, name).map(str::to_owned);
        let ends_at = element(text, "Expiration").and_then(UnixMs::parse_rfc3339);
        (field("AccessKeyId"), field("SecretAccessKey"), field("SessionToken"), ends_at)
    };
    let (Some(id), Some(secret), Some(session)) = (id, secret, session) else {
        return Err("its answer has no keys in it");
    };
    if ![&id, &secret, &session].into_iter().all(|text| is_sendable(text)) {
        return Err("its keys cannot stand in a header");
    }
    let life_ms = ends_at.map_or(0, |end| end.0.saturating_sub(now.0));
    if life_ms == 0 {
        return Err("its keys end when they begin");
    }
    let keys = AwsKeys {
        access_key_id: Secret::new(id),
        secret_access_key: Secret::new(secret),
        session_token: Some(Secret::new(session)),
    };
    let life = Duration::from_millis(life_ms);
    Ok(TokenGrant { proof: Proof::Signer(AwsSigner::new(aws, keys, ahead_ms)), life })
}

/// The whole seconds of a JSON number, which some write with an exponent.
fn seconds(number: &serde_json::Value) -> Option<u64> {
    number.as_u64().or_else(|| {
        let seconds = Duration::try_from_secs_f64(number.as_f64()?).ok()?;
        Some(seconds.as_secs())
    })
}

/// The error in an answer.
pub(crate) fn error_text(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let description = if text.trim_start().starts_with('{') {
        let document: serde_json::Value = serde_json::from_str(text).ok()?;
        let field = |name: &str| document["Error"][name].as_str().unwrap_or_default().to_owned();
        [field("Code"), field("Message")]
    } else {
        let field = |name: &str| element(text, name).unwrap_or_default().to_owned();
        [field("Code"), field("Message")]
    };
    Some(description.join(" ").trim().to_owned()).filter(|description| !description.is_empty())
}

/// The text of the first element of this name. What is looked for here is written without attributes,
/// and without letters that XML escapes.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("<{name}>");
    let rest = &text[text.find(&begin)? + begin.len()..];
    rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner.trim())
}
