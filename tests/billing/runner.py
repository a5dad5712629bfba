"""Runs vectors against a gateway, and says what each came to."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal

from .adapter import Balance, Charge
from .arithmetic import nanodollars, rounded, show
from .customer import Reply
from .gateway import Gateway
from .script import Case
from .upstream import Upstream
from .vector import (
    AtLeastBill,
    Covered,
    Estimate,
    Exact,
    InDoubt,
    Noted,
    Refused,
    Vector,
    Void,
)

#: How long a call may take to be settled once its customer has gone and its upstream has ended.
SETTLED_S = 20.0
POLL_S = 0.02


@dataclass(frozen=True)
class Outcome:
    """What a vector came to; it passed when nothing is wrong."""

    name: str
    wrong: tuple[str, ...]
    seconds: float
    billed: int = 0
    charged: int = 0


@dataclass(frozen=True)
class Books:
    """What the gateway's operator sees when all is over."""

    balance: Balance
    charges: list[Charge]
    lost: int

    @property
    def held(self) -> int:
        """What was set aside for the calls, together."""
        return sum(charge.held for charge in self.charges)


@dataclass(frozen=True)
class Bench:
    """A gateway between scripted customers and the scripted upstream."""

    gateway: Gateway
    upstream: Upstream

    def run(self, vector: Vector) -> Outcome:
        """Runs one vector on an account of its own."""
        begun = time.monotonic()
        admin = self.gateway.admin
        account = admin.account(vector.credit)
        key = admin.key(account, vector.key_limits)
        case = self.upstream.case(vector.script)

        def call(_: int) -> Reply:
            return vector.customer.call(self.gateway.address, key, vector.request, case)

        if vector.times == 1:
            replies = [call(0)]
        else:
            with ThreadPoolExecutor(vector.times) as customers:
                replies = list(customers.map(call, range(vector.times)))
        may_stay = isinstance(vector.expect, InDoubt)
        books = self.books(account) if may_stay else self.settled(account, case)
        bill = rounded(sum((vector.bill_prices.cost(used) for used in case.bills()), Decimal(0)))
        wrong = [*judge(vector, books, bill, replies, case), *sound(books, vector.credit)]
        for check in vector.checks:
            wrong += check(case, replies[0])
        seconds = time.monotonic() - begun
        return Outcome(vector.name, tuple(wrong), seconds, bill, books.balance.cost)

    def books(self, account: str) -> Books:
        """The account's books as they are."""
        admin = self.gateway.admin
        balance = admin.balance(account)
        lost = sum(loss.amount for loss in admin.losses(account))
        return Books(balance, admin.charges(account), lost)

    def settled(self, account: str, case: Case | None = None) -> Books:
        """The account's books once nothing of it is under way."""
        admin = self.gateway.admin
        until = time.monotonic() + SETTLED_S
        while True:
            is_over = case is None or case.is_over()
            balance = admin.balance(account)
            if is_over and balance.held == 0:
                return self.books(account)
            if time.monotonic() > until:
                what = (
                    "the upstream still works" if not is_over else f"{show(balance.held)} is held"
                )
                raise TimeoutError(f"{what} after {SETTLED_S:.0f} s")
            time.sleep(POLL_S)


def judge(vector: Vector, books: Books, bill: int, replies: list[Reply], case: Case) -> list[str]:
    """What is wrong with a charge."""
    charged, wrong = books.balance.cost, []

    def expect(holds: bool, what: str) -> None:
        if not holds:
            seen = f"bill {show(bill)}, charged {show(charged)}, held {show(books.held)}"
            status = replies[0].status
            lost = f", lost {show(books.lost)}" if books.lost else ""
            wrong.append(f"{what} ({seen}{lost}, status {status}, {len(case.received)} calls)")

    match vector.expect:
        case Exact():
            expect(charged == bill, "the charge is not the bill")
        case AtLeastBill():
            expect(charged >= bill, "the charge is below the bill")
            expect(charged <= books.held, "the charge is above the hold")
        case Estimate(factor, floor, small):
            expect(charged >= bill * Decimal(floor), "the estimate is below the bill")
            expect(charged <= bill * Decimal(factor) + small, "the estimate is far above the bill")
        case Noted(known, factor, small):
            least = 0 if known is None else rounded(vector.bill_prices.cost(known))
            most = books.held if known is None else least * Decimal(factor) + small
            expect(charged >= least, f"the charge is below what is known, {show(least)}")
            expect(charged <= most, f"the charge is far above what is known, {show(least)}")
            expect(charged + books.lost >= bill, "some of the bill is nobody's")
            expect(charged + books.lost <= max(books.held, bill), "more is lost than was held")
        case Void():
            expect(charged == 0, "something is charged")
            expect(books.lost >= bill, "the bill is nobody's")
        case Covered():
            expect(charged + books.lost >= bill, "some of the bill is nobody's")
        case InDoubt():
            expect(books.balance.held > 0 or charged + books.lost >= bill, "it is nobody's")
        case Refused(status, code, names):
            expect(charged == 0, "a refusal is charged")
            expect(not case.received, "a refused request reached the upstream")
            wrong += [text for reply in replies for text in refusal(reply, status, code, names)]
    if vector.status is not None:
        expect(replies[0].status == vector.status, f"the status is not {vector.status}")
    if vector.calls is not None:
        expect(len(case.received) == vector.calls, f"not {vector.calls} calls reached the upstream")
    return wrong


def refusal(
    reply: Reply, status: int | tuple[int, ...], code: str | None, names: str | None
) -> list[str]:
    """What is wrong with a refusal."""
    error = reply.error
    if reply.status not in (status if isinstance(status, tuple) else (status,)):
        return [f"answered {reply.status} in the place of {status}: {reply.body[:300]!r}"]
    if code is not None and error.get("code") != code:
        return [f"the code is {error.get('code')!r}, not {code!r}: {reply.body[:300]!r}"]
    if names is not None and names not in f"{error.get('param')} {error.get('message')}":
        return [f"the error does not name {names!r}: {reply.body[:300]!r}"]
    return []


def sound(books: Books, credit: str) -> list[str]:
    """What is wrong with an account when all is over."""
    balance, wrong = books.balance, []
    if not balance.adds_up():
        wrong.append(f"the balance does not add up: {balance}")
    if balance.available < 0:
        wrong.append(f"the balance is below zero: {balance}")
    statement = sum(charge.charged for charge in books.charges)
    if statement != balance.cost:
        wrong.append(f"the statement says {show(statement)}, the balance {show(balance.cost)}")
    if balance.granted != nanodollars(credit):
        wrong.append(f"{show(balance.granted)} was granted, not ${credit}")
    return wrong


def run_all(
    benches: dict[str, Bench],
    vectors: list[Vector],
    jobs: int,
    report: Callable[[Outcome], None],
) -> list[Outcome]:
    """Runs vectors, `jobs` at a time, each on its gateway."""
    reporting = threading.Lock()

    def run(vector: Vector) -> Outcome:
        begun = time.monotonic()
        try:
            outcome = benches[vector.gateway].run(vector)
        except Exception as error:  # a vector that breaks has failed, and no other
            told = "".join(traceback.format_exception(error)[-2:])
            outcome = Outcome(vector.name, (told,), time.monotonic() - begun)
        with reporting:
            report(outcome)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(run, vectors))
