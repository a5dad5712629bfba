//! `auth.aws`: an access key, and the role that is assumed with it.

use std::ops::RangeInclusive;

use url::Url;

use super::{check_given, url};
use crate::document::{Document, Fault};
use crate::raw;
use crate::spans::DocumentPath;
use tollgate_options::auth::{AssumeRole, AwsAuth, AwsKeys};

/// The name that Bedrock has in signatures.
const BEDROCK: &str = "bedrock";
/// Prefix of temporary access key ids.
const TEMPORARY: &str = "ASIA";
/// The length of a session's name in letters, as STS allows it.
const SESSION_NAME_LETTERS: RangeInclusive<usize> = 2..=64;
/// The longest key of a tag in letters, as STS allows it.
const TAG_LETTERS_MAX: usize = 128;

/// Compiles valid settings, and reports the others. `host` is the upstream's.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::Aws,
    host: &str,
) -> Option<AwsAuth> {
    check_keys(document, at, raw);
    check_region(document, &at.key("region"), &raw.region, host);
    let service = raw.service.as_deref().unwrap_or(BEDROCK);
    if !is_service(service) {
        let fault = Fault::at_value(&at.key("service"), "no service has this name in signatures");
        let help = match service.starts_with(BEDROCK) {
            true => "Bedrock is `bedrock` in signatures, whatever its host: leave it out",
            false => "small letters, digits and `-`, such as `bedrock` or `execute-api`",
        };
        document.note(fault.help(help));
    }
    let assume_role = match &raw.assume_role {
        Some(role) => Some(assumed(document, &at.key("assume_role"), role, &raw.region)?),
        None => None,
    };
    let keys = AwsKeys {
        access_key_id: raw.access_key_id.0.clone(),
        secret_access_key: raw.secret_access_key.0.clone(),
        session_token: raw.session_token.as_ref().map(|token| token.0.clone()),
    };
    let (region, service) = (raw.region.clone(), service.to_owned());
    Some(AwsAuth { keys, region, service, assume_role })
}

fn check_keys(document: &mut Document, at: &DocumentPath, raw: &raw::Aws) {
    let secrets = [
        ("access_key_id", Some(&raw.access_key_id)),
        ("secret_access_key", Some(&raw.secret_access_key)),
        ("session_token", raw.session_token.as_ref()),
    ];
    for (field, secret) in secrets {
        if let Some(secret) = secret {
            check_given(document, &at.key(field), &secret.0);
        }
    }
    let id = raw.access_key_id.0.expose();
    let is_temporary = id.starts_with(TEMPORARY);
    if is_temporary && raw.session_token.is_none() {
        let message = "a key whose id begins with `ASIA` is temporary, and needs its session token";
        let fault = Fault::at_value(&at.key("access_key_id"), message);
        document.note(fault.help("add `session_token`, or take a key of an IAM user"));
    }
    if id.starts_with("AKIA") && raw.session_token.is_some() {
        let message = "a key whose id begins with `AKIA` has no session token";
        document.note(Fault::at_key(&at.key("session_token"), message).help("leave it out"));
    }
    // Ids have 20 characters, secrets 40.
    if id.len() >= 40 || (16..=24).contains(&raw.secret_access_key.0.expose().len()) {
        let message = "the id of the key and its secret seem to have changed places";
        document.note(Fault::at_value(&at.key("access_key_id"), message).warning());
    }
}

fn check_region(document: &mut Document, at: &DocumentPath, region: &str, host: &str) {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends_with_digit = region.bytes().next_back().is_some_and(|byte| byte.is_ascii_digit());
    if !region.bytes().all(is_letter) || !region.contains('-') || !ends_with_digit {
        // Consoles show zones such as `us-east-1a` more often than regions.
        let zone = region.strip_suffix(|letter: char| letter.is_ascii_lowercase());
        let is_zone = |text: &&str| text.ends_with(|letter: char| letter.is_ascii_digit());
        let help = match zone.filter(is_zone) {
            Some(region) => format!("the region of this zone is `{region}`"),
            None => "such as `us-east-1`".to_owned(),
        };
        document.note(Fault::at_value(at, "this is no region").help(help));
        return;
    }
    // The region is part of the signature, and the host shows which one it must be.
    let mut named = host.split('.').filter(|part| part.contains('-') && part.ends_with(is_digit));
    let is_aws = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
    if let Some(other) = named.next_back().filter(|other| is_aws && *other != region) {
        let message = format!("the upstream's host is in `{other}`");
        let fault = Fault::at_value(at, message);
        document.note(fault.help("requests that are signed for another region are refused there"));
    }
}

fn is_digit(letter: char) -> bool {
    letter.is_ascii_digit()
}

fn is_service(service: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_host =
        service.starts_with(BEDROCK) && service != BEDROCK && service != "bedrock-agentcore";
    !service.is_empty() && service.bytes().all(is_letter) && !is_host
}

fn assumed(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::AssumeRoleSection,
    region: &str,
) -> Option<AssumeRole> {
    check_arn(document, &at.key("role_arn"), &raw.role_arn);
    let session_name = raw.session_name.as_deref().unwrap_or("tollgate");
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_=,.@-".contains(&byte);
    let fits = SESSION_NAME_LETTERS.contains(&session_name.len());
    if !fits || !session_name.bytes().all(is_letter) {
        let fault = Fault::at_value(&at.key("session_name"), "no session can be called so");
        document.note(fault.help("2 to 64 letters, digits and `_=,.@-`"));
    }
    if let Some(tag) = &raw.account_tag {
        let is_letter =
            |letter: char| letter.is_ascii_alphanumeric() || "_.:/=+-@".contains(letter);
        let is_reserved = tag.to_ascii_lowercase().starts_with("aws:");
        if tag.is_empty()
            || tag.len() > TAG_LETTERS_MAX
            || !tag.chars().all(is_letter)
            || is_reserved
        {
            let fault = Fault::at_value(&at.key("account_tag"), "no session tag can have this key");
            let help = "1 to 128 letters, digits and `_.:/=+-@`, not beginning with `aws:`: such as \
                        `tollgate-account`";
            document.note(fault.help(help));
        }
    }
    if let Some(id) = &raw.external_id {
        check_given(document, &at.key("external_id"), &id.0);
    }
    // A partition of its own, with a domain of its own.
    let is_china = region.starts_with("cn-");
    let domain = if is_china { "amazonaws.com.cn" } else { "amazonaws.com" };
    let sts_url = match &raw.sts_url {
        Some(typed) => url(document, &at.key("sts_url"), typed)?,
        None => Url::parse(&format!("https://sts.{region}.{domain}/")).ok()?,
    };
    Some(AssumeRole {
        role_arn: raw.role_arn.clone(),
        external_id: raw.external_id.as_ref().map(|id| id.0.clone()),
        session_name: session_name.to_owned(),
        account_tag: raw.account_tag.clone(),
        sts_url,
    })
}

fn check_arn(document: &mut Document, at: &DocumentPath, arn: &str) {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let is_account =
        |text: &str| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    let help = match parts.as_slice() {
        ["arn", partition, "iam", "", account, name]
            if partition.starts_with("aws")
                && is_account(account)
                && name.strip_prefix("role/").is_some_and(|name| !name.is_empty()) =>
        {
            return;
        }
        ["arn", _, "sts", _, _, _] => {
            "this is a session of a role: take the role itself, as in \
             `arn:aws:iam::123456789012:role/NAME`"
        }
        ["arn", _, "iam", "", _, name] if name.starts_with("user/") => {
            "this is a user: roles are assumed, as in `arn:aws:iam::123456789012:role/NAME`"
        }
        _ => "as in `arn:aws:iam::123456789012:role/NAME`",
    };
    document.note(Fault::at_value(at, "this is not the ARN of a role").help(help));
}
