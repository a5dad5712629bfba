"""A vector: a request, what the upstream does, what the customer does, and what must be charged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .arithmetic import Prices, Units
from .catalogue import Model
from .customer import Customer, Reply, Request
from .script import Case, Script


@dataclass(frozen=True)
class Exact:
    """The charge is the upstream's bill, to the nano-dollar."""


@dataclass(frozen=True)
class AtLeastBill:
    """Nobody told: the charge is no less than the bill, and no more than the hold."""


@dataclass(frozen=True)
class Estimate:
    """Nobody told, and all was shown: from the bill to the bill with a margin."""

    factor: str = "1.5"
    #: The share of the bill that must be charged: less than all of it for text that is known to be
    #: denser than estimates are made for.
    floor: str = "1"
    #: In nano-dollars: what an estimate may add to the shortest answer.
    small: int = 300_000


@dataclass(frozen=True)
class Noted:
    """Nobody told all of it: what is known is charged, with a margin, and what the upstream may bill beyond
    is a declared loss."""

    #: What the answer tells of itself; nothing where it may be anything up to the hold.
    known: Units | None = None
    factor: str = "1.5"
    #: In nano-dollars: what an estimate may add to the shortest answer.
    small: int = 300_000


@dataclass(frozen=True)
class Refused:
    """An error, no call to the upstream, and no charge. The error names `names`."""

    status: int | tuple[int, ...] = 400
    code: str | None = None
    names: str | None = None


@dataclass(frozen=True)
class Void:
    """Nothing is charged, and what the upstream bills stands in the books as a loss."""


@dataclass(frozen=True)
class Covered:
    """Charges, debt and declared losses together are no less than the bill."""


@dataclass(frozen=True)
class InDoubt:
    """Nobody knows whether it was taken: asked once, and held until an operator decides. A gateway that
    knows it was not may give the hold back."""


Expectation = Exact | AtLeastBill | Estimate | Noted | Refused | Void | Covered | InDoubt
#: What else must hold: says what does not.
Check = Callable[[Case, Reply], list[str]]

#: The gateway that most vectors use.
PLAIN = "plain"
#: One that comments on silent streams and shuts failing targets as soon as it does by default.
KEEPALIVE = "keepalive"


@dataclass(frozen=True)
class Vector:
    """One case of the suite. Each runs on an account of its own."""

    name: str
    model: Model
    request: Request
    script: Script
    expect: Expectation
    customer: Customer = Customer()
    #: Where a request's price depends on what it asks for.
    prices: Prices | None = None
    credit: str = "100"
    key_limits: dict[str, Any] | None = field(default=None, hash=False)
    #: So many customers of the same account ask the same at one time.
    times: int = 1
    #: Of the answer, where it matters.
    status: int | None = None
    #: How many calls must reach the upstream.
    calls: int | None = None
    checks: tuple[Check, ...] = ()
    gateway: str = PLAIN

    @property
    def bill_prices(self) -> Prices:
        return self.prices or self.model.prices
