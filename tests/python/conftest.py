"""The running gateway, as the environment that tests/operations/python.rs sets describes it."""

import os
import time
import urllib.request
import json
from decimal import Decimal

import pytest
from openai import OpenAI


@pytest.fixture(scope="session")
def base_url() -> str:
    return os.environ["TOLLGATE_BASE_URL"]


@pytest.fixture(scope="session")
def api_key() -> str:
    return os.environ["TOLLGATE_API_KEY"]


@pytest.fixture
def client(base_url: str, api_key: str) -> OpenAI:
    return OpenAI(base_url=f"{base_url}/v1", api_key=api_key, max_retries=0)


class Admin:
    """The admin API, by its documented endpoints."""

    def __init__(self) -> None:
        self.url = os.environ["TOLLGATE_ADMIN_URL"]
        self.token = os.environ["TOLLGATE_ADMIN_TOKEN"]

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {self.token}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def customer(self, credit: str | None, **key: object) -> tuple[str, str]:
        """A new account with a key: their ids are of no use to a test, the key is."""
        account = self.call("POST", "/admin/v1/accounts", {"name": "test"})["id"]
        if credit is not None:
            self.call("POST", f"/admin/v1/accounts/{account}/grants", {"amount": credit, "id": "first"})
        made = self.call("POST", f"/admin/v1/accounts/{account}/keys", {"name": "test", **key})
        return account, made["key"]

    def balance(self, account: str) -> dict:
        return self.call("GET", f"/admin/v1/accounts/{account}")["balance"]


@pytest.fixture(scope="session")
def admin() -> Admin:
    return Admin()


class Customer:
    """A customer of one test, with $10."""

    def __init__(self, base_url: str, key: str) -> None:
        self.base_url = f"{base_url}/v1"
        self.key = key
        self.sdk = OpenAI(base_url=self.base_url, api_key=key, max_retries=0)

    def spent(self) -> Decimal:
        """What everything so far has cost, in dollars, once nothing is held any more."""
        deadline = time.time() + 5
        while (balance := self.sdk.get("/balance", cast_to=dict))["held"] != "0.00":
            assert time.time() < deadline, f"still held: {balance}"
            time.sleep(0.01)
        spent = Decimal(balance["spent"])
        assert Decimal(balance["available"]) == Decimal("10.00") - spent, balance
        return spent


@pytest.fixture
def customer(base_url: str, admin: Admin) -> Customer:
    _, key = admin.customer("10.00")
    return Customer(base_url, key)
