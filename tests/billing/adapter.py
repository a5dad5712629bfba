"""What the suite asks of a gateway's operator: accounts, credit, keys, and what was charged.

For another gateway, write a class with the methods of `Admin` and name it: `--admin module.Class:URL`.
"""

from __future__ import annotations

import http.client
import importlib
import json
import threading
import urllib.parse
from dataclasses import dataclass
from typing import Any, Protocol

from .arithmetic import nanodollars


@dataclass(frozen=True)
class Balance:
    """An account's money, in nano-dollars."""

    granted: int
    available: int
    held: int
    #: What calls have cost, as far as it was paid.
    spent: int
    #: What they have cost beyond that.
    debt: int

    @property
    def cost(self) -> int:
        """What calls have cost."""
        return self.spent + self.debt

    def adds_up(self) -> bool:
        """Whether every nano-dollar that was granted is somewhere."""
        return self.granted == self.available + self.held + self.spent


@dataclass(frozen=True)
class Charge:
    """How a call ended: `settlement`, `void` or `in_doubt`."""

    kind: str
    hold: str
    held: int
    #: What it cost, paid or owed.
    charged: int
    #: Where the usage comes from: `upstream`, `estimated` or `none`.
    source: str | None = None


@dataclass(frozen=True)
class Loss:
    """What the operator bears."""

    cause: str
    amount: int


class Admin(Protocol):
    """An operator of any gateway. Amounts are dollars in decimal text, or nano-dollars as integers."""

    def account(self, credit: str) -> str:
        """Opens an account with this credit; returns its id."""

    def grant(self, account: str, amount: str, name: str) -> None:
        """Gives more credit."""

    def key(self, account: str, limits: dict[str, Any] | None = None) -> str:
        """Makes a key; returns its secret."""

    def balance(self, account: str) -> Balance:
        """What the account has, holds, has spent and owes."""

    def charges(self, account: str) -> list[Charge]:
        """The calls of the account that have ended."""

    def open_holds(self, account: str) -> list[str]:
        """The calls that have not."""

    def losses(self, account: str) -> list[Loss]:
        """What the operator has declared as lost on calls of the account."""

    def doubts(self) -> list[tuple[str, str]]:
        """Calls of which a crash has left the end unknown: account and hold."""

    def resolve(self, hold: str) -> bool:
        """Takes a call off that list; whether it was there."""


class RefusedError(Exception):
    """The admin API has refused a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class TollgateAdmin:
    """Tollgate's admin API, docs/admin-api.md."""

    def __init__(self, url: str, token: str) -> None:
        self.netloc = urllib.parse.urlsplit(url).netloc
        self.token = token
        self.connections = threading.local()

    def account(self, credit: str) -> str:
        account = self.ask("POST", "/admin/v1/accounts", {"name": "billing"})["id"]
        self.grant(account, credit, "first")
        return account

    def grant(self, account: str, amount: str, name: str) -> None:
        body = {"amount": amount, "id": name}
        self.ask("POST", f"/admin/v1/accounts/{account}/grants", body)

    def key(self, account: str, limits: dict[str, Any] | None = None) -> str:
        body = {"name": "billing"} | ({"limits": limits} if limits else {})
        return self.ask("POST", f"/admin/v1/accounts/{account}/keys", body)["key"]

    def balance(self, account: str) -> Balance:
        told = self.ask("GET", f"/admin/v1/accounts/{account}")
        # A gateway of the day before debts has none.
        balance = {"debt": "0", **told["balance"]}
        names = ("granted", "available", "held", "spent", "debt")
        return Balance(*(nanodollars(balance[name]) for name in names))

    def charges(self, account: str) -> list[Charge]:
        return [
            Charge(
                entry["kind"],
                entry["call"]["hold"],
                nanodollars(entry["call"]["held"]),
                nanodollars(entry.get("charged") or "0") + nanodollars(entry.get("owed") or "0"),
                entry.get("usage_source"),
            )
            for entry in self.entries(account)
            if entry["kind"] in ("settlement", "void", "in_doubt")
        ]

    def open_holds(self, account: str) -> list[str]:
        entries = self.entries(account)
        return [entry["call"]["hold"] for entry in entries if entry["kind"] == "hold"]

    def entries(self, account: str) -> list[dict[str, Any]]:
        path = f"/admin/v1/accounts/{account}/entries?limit=500"
        return self.ask("GET", path)["data"]

    def losses(self, account: str) -> list[Loss]:
        try:
            told = self.ask("GET", "/admin/v1/ledger/losses?limit=500")["data"]
        except RefusedError as refused:
            if refused.status == 404:
                return []
            raise
        return [
            Loss(loss["cause"], nanodollars(loss["amount"]))
            for loss in told
            if loss["account_id"] == account
        ]

    def doubts(self) -> list[tuple[str, str]]:
        told = self.ask("GET", "/admin/v1/holds/in-doubt?limit=500")["data"]
        return [(doubt["account_id"], doubt["call"]["hold"]) for doubt in told]

    def resolve(self, hold: str) -> bool:
        try:
            self.ask("POST", f"/admin/v1/holds/{hold}/resolve", {"note": "billing"})
        except RefusedError as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        sent = None if body is None else json.dumps(body)
        for is_last in (False, True):
            connection = self.connection()
            try:
                connection.request(method, path, sent, headers)
                response = connection.getresponse()
                text = response.read()
                break
            except (OSError, http.client.HTTPException):
                # A kept connection that the gateway has closed meanwhile. Grants say their own id; an
                # account or a key that is made twice is one more, and nobody's.
                connection.close()
                if is_last:
                    raise
        if not 200 <= response.status < 300:
            raise RefusedError(response.status, f"{method} {path}: {text.decode()}")
        return json.loads(text)

    def connection(self) -> http.client.HTTPConnection:
        """A connection of this thread's own."""
        if not hasattr(self.connections, "mine"):
            self.connections.mine = http.client.HTTPConnection(self.netloc, timeout=30)
        return self.connections.mine


def adapter(name: str, token: str) -> Admin:
    """The adapter that `tollgate:URL` or `module.Class:URL` names."""
    kind, _, url = name.partition(":")
    if kind == "tollgate":
        return TollgateAdmin(url, token)
    module, _, of = kind.rpartition(".")
    return getattr(importlib.import_module(module), of)(url, token)
