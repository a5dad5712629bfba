"""Signs requests again with AWS's own library, and holds each against what was sent.

Reads one JSON document a line: method, url, headers (a list of pairs), body (base64), access_key,
secret_key, region, service. Says nothing where all signatures are the same.
"""

import base64
import datetime
import hashlib
import json
import sys

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


def signed_again(case):
    """The value of Authorization that AWS's library makes of a request."""
    headers = {name.lower(): value for name, value in case["headers"]}
    body = base64.b64decode(case["body"])
    sent = headers["authorization"]
    names = sent.split("SignedHeaders=")[1].split(",")[0].split(";")
    unsigned = [n for n in headers if n.startswith("x-amz-") and n not in names]
    assert not unsigned, f"not signed: {unsigned}"
    digest = hashlib.sha256(body).hexdigest()
    assert headers["x-amz-content-sha256"] == digest, "another body was signed"
    moment = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    botocore.auth.get_current_datetime = lambda *_, **__: moment
    # What the library sets itself is left out: the host, the time, and the token.
    own = ("host", "x-amz-date", "x-amz-security-token")
    kept = {name: headers[name] for name in names if name not in own}
    request = AWSRequest(method=case["method"], url=case["url"], data=body, headers=kept)
    credentials = Credentials(
        case["access_key"], case["secret_key"], headers.get("x-amz-security-token")
    )
    signer = botocore.auth.SigV4Auth(credentials, case["service"], case["region"])
    signer.add_auth(request)
    return request.headers["Authorization"], sent


def main():
    checked = 0
    for line in sys.stdin:
        again, sent = signed_again(json.loads(line))
        assert again == sent, f"AWS would sign\n{again}\nand was sent\n{sent}"
        checked += 1
    print(f"{checked} signatures are AWS's")


main()
