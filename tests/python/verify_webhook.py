"""Says whether the published library accepts a webhook: secret, headers as JSON, body."""

import json
import sys

from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

secret, headers, body = sys.argv[1:]
try:
    Webhook(secret).verify(body, json.loads(headers))
    print("valid")
except WebhookVerificationError:
    print("invalid")
