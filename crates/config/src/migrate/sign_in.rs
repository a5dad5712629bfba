//! Migrates credentials that are more than a key in a header to `auth` of an upstream.

use super::Migration;
use super::place::{region, region_in};
use super::plan::{PlannedAuth, quoted};
use super::provider::{ApiLocation, LitellmProvider};
use super::values::Values;

impl Migration<'_> {
    /// The `auth` of the upstream; `None` where a key is enough.
    pub(super) fn sign_in(
        &mut self,
        provider: &LitellmProvider,
        values: &Values<'_>,
    ) -> Option<PlannedAuth> {
        match provider.place {
            ApiLocation::Bedrock if values.get("api_key").is_none() => Some(self.aws(values)),
            ApiLocation::Vertex => Some(self.google(values)),
            ApiLocation::Azure if values.get("client_secret").is_some() => self.entra(values),
            _ => None,
        }
    }

    /// The key configured in LiteLLM, or else AWS's standard variables.
    fn aws(&mut self, values: &Values<'_>) -> PlannedAuth {
        let mut fields = Vec::new();
        for (field, ours, variable) in [
            ("aws_access_key_id", "access_key_id", "${AWS_ACCESS_KEY_ID}"),
            ("aws_secret_access_key", "secret_access_key", "${AWS_SECRET_ACCESS_KEY}"),
            ("aws_session_token", "session_token", ""),
        ] {
            let secret = values.get(field).and_then(|node| self.secret(node));
            let secret = secret.or_else(|| (!variable.is_empty()).then(|| variable.to_owned()));
            fields.extend(secret.map(|secret| (ours, quoted(&secret))));
        }
        let model = values.params.text_of("model").unwrap_or_default();
        fields.push(("region", quoted(&region(values, region_in(model)))));
        if let Some(role) = values.filled("aws_role_name") {
            let session = values.filled("aws_session_name");
            let session = session.map(|name| format!(", session_name: {}", quoted(&name)));
            let role = format!("{{ role_arn: {}{} }}", quoted(&role), session.unwrap_or_default());
            fields.push(("assume_role", role));
        }
        PlannedAuth { kind: "aws", fields }
    }

    /// The key file of a service account: LiteLLM takes its path or its text.
    fn google(&mut self, values: &Values<'_>) -> PlannedAuth {
        let named =
            values.get("vertex_credentials").or_else(|| values.get("vertex_ai_credentials"));
        let key = match named.and_then(|node| Some((node, node.text()?))) {
            None => r#"{ file: "${GOOGLE_APPLICATION_CREDENTIALS}" }"#.to_owned(),
            Some((node, text)) if text.starts_with("os.environ/") => {
                let message =
                    "the variable of `vertex_credentials` has to hold the key file's text";
                let help = "where it holds the path of that file, write `{ file: … }` around it";
                self.note(node.mark, message.to_owned(), help);
                quoted(&Self::filled(text))
            }
            Some((node, text)) if text.trim_start().starts_with('{') => {
                quoted(&self.secret(node).unwrap_or_default())
            }
            Some((_, path)) => format!("{{ file: {} }}", quoted(&Self::filled(path))),
        };
        PlannedAuth { kind: "google", fields: vec![("service_account_key", key)] }
    }

    fn entra(&mut self, values: &Values<'_>) -> Option<PlannedAuth> {
        let secret = values.get("client_secret").and_then(|node| self.secret(node))?;
        let (tenant, client) = (values.filled("tenant_id")?, values.filled("client_id")?);
        let fields = vec![
            ("tenant_id", quoted(&tenant)),
            ("client_id", quoted(&client)),
            ("client_secret", quoted(&secret)),
        ];
        Some(PlannedAuth { kind: "entra", fields })
    }
}
