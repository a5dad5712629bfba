//! Tokens for a service account of Google's, whose signature is verified with the account's public key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::Value;

use super::{CHAT, chat, models, taking, token};
use crate::harness::{Gateway, Recorded, Reply, Responder, ask, simulator};

const PUBLIC_KEY: &[u8] = include_bytes!("../../fixtures/google/public_key.der");

const KEY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/google/service_account.json");

/// Verifies what a service account has signed; what is wrong with it.
fn verify(request: &Recorded, audience: &str) -> Result<(), String> {
    if request.field("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
        return Err("another grant".to_owned());
    }
    let assertion = request.field("assertion");
    let (signed, signature) = assertion.rsplit_once('.').ok_or("no signature")?;
    let (header, claims) = signed.split_once('.').ok_or("no claims")?;
    let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|error| error.to_string());
    let json = |text: &str| {
        serde_json::from_slice::<Value>(&bytes(text)?).map_err(|error| error.to_string())
    };
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, PUBLIC_KEY);
    let verified = key.verify(signed.as_bytes(), &bytes(signature)?);
    verified.map_err(|_| "the signature is not the account's")?;
    let (header, claims) = (json(header)?, json(claims)?);
    let named = (&header["alg"], &header["typ"], &header["kid"]);
    if named != (&"RS256".into(), &"JWT".into(), &"key-of-a-test".into()) {
        return Err(format!("the header {header}"));
    }
    let now = tollgate::clock::UnixMs::now().seconds();
    let seconds = |name: &str| claims[name].as_u64().unwrap_or(0);
    let is_timely = seconds("iat").abs_diff(now) < 60 && seconds("exp") == seconds("iat") + 3600;
    let is_named = claims["iss"] == "gateway@tollgate-test.iam.gserviceaccount.com"
        && claims["aud"] == audience
        && claims["scope"] == "https://www.googleapis.com/auth/cloud-platform";
    if is_timely && is_named { Ok(()) } else { Err(format!("the claims {claims}")) }
}

/// Somebody who issues a token for what the service account has signed, and for nothing else.
fn issuer() -> Responder {
    Responder::start(|_, request: &Recorded| -> Reply {
        let audience = format!("http://{}/token", request.header("host"));
        match verify(request, &audience) {
            Ok(()) => token("token-of-google", 3599),
            Err(wrong) => (400, String::new(), wrong),
        }
    })
}

/// Vertex' own API: asked for chat, in JSON and in events, and charged.
#[test]
fn vertex_is_called_with_the_token_of_a_service_account() {
    let (issuer, sim) = (issuer(), simulator(&["usage=prompt=1000,completion=20"]));
    let upstreams = format!(
        "  u:
    protocol: vertex
    base_url: http://{}/v1/projects/p/locations/global/publishers/google
    auth:
      google: {{ service_account_key: {{ file: '{KEY}' }}, token_url: 'http://{}/token' }}
",
        sim.addr(),
        issuer.address
    );
    let models = models().replace("[chat]", "[generate_content]");
    let gateway = Gateway::serving(&upstreams, &models);
    let streamed = CHAT.replace("\"m\"", "\"m\",\"stream\":true");
    for body in [CHAT, &streamed] {
        let answer = ask(gateway.address, &gateway.chat_json(body));
        assert_eq!(answer.status(), 200, "{answer:?}");
    }
    assert_eq!(gateway.settled()["spent"], "0.0024");
    let sent = sim.requests();
    assert_eq!((issuer.requests().len(), sent.len()), (1, 2));
    for request in sent {
        assert_eq!(request.header("authorization"), Some("Bearer token-of-google"));
        let path = "/v1/projects/p/locations/global/publishers/google/models/m:";
        assert!(request.path.starts_with(path), "{request:?}");
    }
}

#[test]
fn a_service_account_signs_what_it_asks_for() {
    let issuer = issuer();
    let upstream = taking("Bearer token-of-google");
    let upstreams = format!(
        "  u:
    protocol: openai
    base_url: http://{}/v1/projects/p/locations/global/endpoints/openapi
    auth:
      google: {{ service_account_key: {{ file: '{KEY}' }}, token_url: 'http://{}/token' }}
",
        upstream.address, issuer.address
    );
    let gateway = Gateway::serving(&upstreams, &models());
    for _ in 0..3 {
        let answer = chat(&gateway);
        assert_eq!(answer.status(), 200, "{answer:?}");
    }
    assert_eq!((issuer.requests().len(), upstream.requests().len()), (1, 3));
    let shown = gateway.admin("GET", "/admin/v1/config", &Value::Null).to_string();
    assert!(!shown.contains("PRIVATE KEY"), "{shown}");
}
