// Says whether the published library accepts a webhook: secret, headers as JSON, body.
const { Webhook, WebhookVerificationError } = require("standardwebhooks");

const [secret, headers, body] = process.argv.slice(2);
try {
  new Webhook(secret).verify(body, JSON.parse(headers));
  console.log("valid");
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  console.log("invalid");
}
