"""What takes more than one call: names that nobody knows, debts, a stop and a kill in the middle.

Each runs on a gateway of its own, which the suite starts.
"""

from __future__ import annotations

import json
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from .adapter import Balance
from .arithmetic import Units, nanodollars, rounded, show
from .catalogue import CHAT, CHAT_TIGHT, MESSAGES_PATTERN, RESPONSES, Model
from .customer import FIRST_TEXT, Customer, Reply, Request
from .dialects import (
    chat,
    chat_document,
    chat_stream,
    document,
    messages,
    messages_document,
    responses,
    responses_document,
)
from .gateway import Gateway, Process, write_files
from .runner import Bench, Outcome
from .script import Answer, Case, Pause, Script
from .upstream import Upstream
from .vectors import asking
from .vectors.leaving import HIDDEN, PROMPT_TOKENS, STORY_TOKENS, chat_usage, usage


class WrongError(Exception):
    """Something did not happen as it must."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise WrongError(what)


@dataclass
class Stage:
    """A gateway of a scenario's own, its upstream and its files."""

    process: Process
    upstream: Upstream
    gateway: Gateway

    @property
    def bench(self) -> Bench:
        return Bench(self.gateway, self.upstream)

    def call(
        self, key: str, request: Request, answer: Answer, customer: Customer | None = None
    ) -> tuple[Reply, Case]:
        """One call; its answer is scripted."""
        case = self.upstream.case(Script((answer,)))
        return (customer or Customer()).call(self.gateway.address, key, request, case), case

    def balance(self, account: str) -> Balance:
        return self.gateway.admin.balance(account)


@dataclass(frozen=True)
class Scenario:
    """A play in several acts."""

    name: str
    models: tuple[Model, ...]
    play: Callable[[Stage], None]
    #: Further fields of `routes.yaml`.
    store: dict[str, Any] | None = None

    def outcome(self, binary: Path, with_rules: bool, report: Callable[[Outcome], None]) -> Outcome:
        begun = time.monotonic()
        wrong: tuple[str, ...] = ()
        try:
            self.run(binary, with_rules)
        except WrongError as error:
            wrong = (str(error),)
        except Exception as error:  # a scenario that breaks has failed, and no other
            wrong = ("".join(traceback.format_exception(error)[-2:]),)
        outcome = Outcome(self.name, wrong, time.monotonic() - begun)
        report(outcome)
        return outcome

    def run(self, binary: Path, with_rules: bool) -> None:
        upstream = Upstream()
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            # The one with the circuits as they are by default.
            write_files(
                place,
                upstream.address,
                list(self.models),
                with_rules=with_rules,
                keepalive=True,
                store=self.store,
            )
            process = Process(binary, place)
            with process as gateway:
                self.play(Stage(process, upstream, gateway))
        upstream.close()


def all_scenarios() -> list[Scenario]:
    return [
        Scenario("scenarios / a name that no upstream knows", (MESSAGES_PATTERN,), unknown_names),
        Scenario("scenarios / one customer's failures are no other's", (CHAT,), circuits),
        Scenario("scenarios / a debt stops calls, and the next grant pays it", (CHAT_TIGHT,), debts),
        Scenario("scenarios / a debt of many at one time", (CHAT_TIGHT,), debts_of_many),
        Scenario("scenarios / kept answers are their account's", (RESPONSES,), kept_answers),
        Scenario("scenarios / a stop waits for who has left", (CHAT,), stopped),
        Scenario("scenarios / kill -9, and doubts are void", (CHAT,), killed, {"recovery": "void"}),
        Scenario("scenarios / kill -9, and doubts pay their input", (CHAT,), killed,
                 {"recovery": "floor"}),
        Scenario("scenarios / kill -9 in a crowd", (CHAT,), killed_in_a_crowd, {"recovery": "void"}),
    ]  # fmt: skip


def unknown_names(stage: Stage) -> None:
    """Calls for nonsense behind a pattern are the customer's matter, and shut the model for nobody."""
    admin = stage.gateway.admin
    account = admin.account("10")
    key = admin.key(account)
    body = {"type": "error", "error": {"type": "not_found_error", "message": "model: nonsense"}}
    unknown = document(body, Units(), status=404)
    for at in range(8):
        name = f"messages-family-nonsense-{at % 4}"
        reply, _ = stage.call(key, asking.ask(asking.MESSAGES, name, messages()), unknown)
        expect(reply.status == 404, f"an unknown name was answered {reply.status}")
        expect(reply.error.get("code") == "model_not_found", f"the code is {reply.error}")
    used = Units(input=24, output=90)
    good = messages_document(usage(24, 90), used)
    request = asking.ask(asking.MESSAGES, "messages-family-real", messages())
    reply, _ = stage.call(admin.key(admin.account("1")), request, good)
    expect(reply.status == 200, f"a name that is known was answered {reply.status}: {reply.body!r}")
    cost = stage.bench.settled(account).balance.cost
    expect(cost == 0, f"nonsense cost {show(cost)}")


def circuits(stage: Stage) -> None:
    """Requests that make an upstream fail, all of one account, leave it open for the others."""
    admin = stage.gateway.admin
    rogue, other = (admin.key(admin.account("10")) for _ in range(2))
    failure = document({"error": {"message": "no", "type": "api_error"}}, Units(), status=500)
    request = asking.ask(asking.CHAT, CHAT, chat())
    for _ in range(12):
        stage.call(rogue, request, failure)
    good = chat_document(chat_usage(24, 90), Units(input=24, output=90))
    reply, _ = stage.call(other, request, good)
    expect(reply.status == 200, f"another customer was answered {reply.status}: {reply.body!r}")


def kept_answers(stage: Stage) -> None:
    """What an upstream keeps of one customer's is input for that customer alone."""
    admin = stage.gateway.admin
    key, stranger = (admin.key(admin.account("10")) for _ in range(2))
    first = responses_document(usage(24, 90), Units(input=24, output=90))
    reply, _ = stage.call(key, asking.ask(asking.RESPONSES, RESPONSES, responses()), first)
    kept = json.loads(reply.body)["id"]
    body = responses(previous_response_id=kept)
    request = asking.ask(asking.RESPONSES, RESPONSES, body)
    second = responses_document(usage(60_000, 90), Units(input=60_000, output=90))
    reply, case = stage.call(stranger, request, second)
    expect(reply.status == 400, f"a stranger was answered {reply.status}")
    expect(not case.received, "a stranger's request reached the upstream")
    account = admin.account("10")
    request_of_none = asking.ask(
        asking.RESPONSES, RESPONSES, responses(previous_response_id="resp_of_nobody")
    )
    reply, case = stage.call(admin.key(account), request_of_none, second)
    expect(reply.status == 400, f"an id of nobody's was answered {reply.status}")
    reply, _ = stage.call(key, request, second)
    expect(reply.status in (200, 400), f"its owner was answered {reply.status}")


#: A tight model's hold is a cent; this is what its upstream bills all the same.
DEAR = Units(input=24, output=400_000)


def debts(stage: Stage) -> None:
    admin = stage.gateway.admin
    account = admin.account("1")
    key = admin.key(account)
    bill = rounded(CHAT_TIGHT.prices.cost(DEAR))
    request = asking.ask(asking.CHAT, CHAT_TIGHT, chat())
    dear = chat_document(chat_usage(DEAR.input, DEAR.output), DEAR)
    reply, _ = stage.call(key, request, dear)
    expect(reply.status == 200, f"answered {reply.status}")
    balance = stage.bench.settled(account).balance
    owed = bill - nanodollars("1")
    expect(balance.debt == owed, f"the debt is {show(balance.debt)}, not {show(owed)}")
    expect(balance.available == 0, f"{show(balance.available)} is available beside a debt")
    reply, case = stage.call(key, request, dear)
    expect(reply.status == 402, f"a debtor was answered {reply.status}")
    expect(reply.error.get("code") == "insufficient_balance", f"the code is {reply.error}")
    expect(not case.received, "a debtor's call reached the upstream")
    admin.grant(account, "2", "second")
    balance = stage.balance(account)
    left = owed - nanodollars("2")
    expect(balance.debt == left, f"a grant left {show(balance.debt)} of debt, not {show(left)}")
    reply, _ = stage.call(key, request, dear)
    expect(reply.status == 402, f"who still owes was answered {reply.status}")
    admin.grant(account, "2", "third")
    balance = stage.balance(account)
    expect(balance.debt == 0, f"{show(balance.debt)} is still owed")
    rest = nanodollars("5") - bill
    expect(balance.available == rest, f"{show(balance.available)} is left, not {show(rest)}")
    cheap = chat_document(chat_usage(24, 90), Units(input=24, output=90))
    reply, _ = stage.call(key, request, cheap)
    expect(reply.status == 200, f"who has paid was answered {reply.status}")
    books = stage.bench.settled(account)
    expect(books.balance.adds_up(), f"it does not add up: {books.balance}")


def debts_of_many(stage: Stage) -> None:
    """16 calls whose bills are far above their holds: charges and debt are all of the bills."""
    admin = stage.gateway.admin
    account = admin.account("0.5")
    key = admin.key(account)
    request = asking.ask(asking.CHAT, CHAT_TIGHT, chat())
    dear = chat_document(chat_usage(DEAR.input, DEAR.output), DEAR)
    case = stage.upstream.case(Script((replace(dear, before=(Pause(0.2),)),)))
    customers = [
        threading.Thread(target=Customer().call, args=(stage.gateway.address, key, request, case))
        for _ in range(16)
    ]
    for customer in customers:
        customer.start()
    for customer in customers:
        customer.join()
    books = stage.bench.settled(account, case)
    bill = rounded(sum((CHAT_TIGHT.prices.cost(used) for used in case.bills()), Decimal(0)))
    expect(bill > nanodollars("8"), f"the upstream billed {show(bill)}: too few were served")
    cost, debt = books.balance.cost, books.balance.debt
    expect(cost + books.lost >= bill, f"{show(cost)} of {show(bill)} is somebody's")
    expect(debt == bill - nanodollars("0.5"), f"the debt is {show(debt)}")
    expect(books.balance.available == 0, f"{show(books.balance.available)} is available")


ORPHAN = Units(input=PROMPT_TOKENS, output=HIDDEN + STORY_TOKENS)


def orphans(stage: Stage, account: str, silence_s: float) -> list[Case]:
    """Customers who have left calls at which the upstream works on, each in another way."""
    key = stage.gateway.admin.key(account)
    told = chat_usage(ORPHAN.input, ORPHAN.output)
    whole = chat_document(told, ORPHAN, "arrived")
    whole = replace(whole, before=(*whole.before, Pause(silence_s)))
    stream = chat_stream(told, ORPHAN, "first", hidden=HIDDEN)
    at = 3
    steps = (*stream.steps[:at], Pause(silence_s), *stream.steps[at:])
    stream = replace(stream, steps=steps)
    cases = []
    for how, http in (("reset", 1), ("close", 1), ("reset", 2)):
        for fields, answer, sign in (
            ({}, whole, "arrived"),
            ({"stream": True}, stream, FIRST_TEXT),
        ):
            request = asking.ask(asking.CHAT, CHAT, chat(**fields))
            customer = Customer(leaves=sign, how=how, http=http)
            _, case = stage.call(key, request, answer, customer)
            cases.append(case)
    return cases


def stopped(stage: Stage) -> None:
    """SIGTERM while upstreams work for who has left: the gateway waits for them, and bills them."""
    account = stage.gateway.admin.account("10")
    cases = orphans(stage, account, 1.0)
    child = stage.process.child
    assert child is not None
    child.send_signal(signal.SIGTERM)
    child.wait(timeout=30)
    expect(child.returncode == 0, f"it ended with {child.returncode}")
    stage.gateway = stage.process.start()
    books = stage.bench.settled(account)
    bill = rounded(CHAT.prices.cost(ORPHAN)) * len(cases)
    cost = books.balance.cost
    expect(cost == bill, f"{len(cases)} calls cost {show(cost)}, not {show(bill)}")


def killed(stage: Stage) -> None:
    """kill -9 while upstreams work for who has left: in doubt, listed once, resolved once."""
    admin = stage.gateway.admin
    account = admin.account("10")
    cases = orphans(stage, account, 20.0)
    held = admin.open_holds(account)
    expect(len(held) == len(cases), f"{len(held)} of {len(cases)} are held before the kill")
    stage.process.kill()
    stage.gateway = stage.process.start()
    check_doubts(stage, account, set(held))


def killed_in_a_crowd(stage: Stage) -> None:
    """kill -9 while calls begin, end and are left: each is settled or in doubt, and none is both."""
    admin = stage.gateway.admin
    account = admin.account("50")
    key = admin.key(account)
    told = chat_usage(ORPHAN.input, ORPHAN.output)
    stop = threading.Event()

    def crowd(number: int) -> None:
        answers = (
            (chat_document(told, ORPHAN), Customer()),
            (chat_document(told, ORPHAN, "arrived"), Customer(leaves="arrived")),
            (chat_stream(told, ORPHAN, "first", hidden=HIDDEN), Customer(leaves=FIRST_TEXT)),
        )
        answer, customer = answers[number % 3]
        body = chat(stream=True) if number % 3 == 2 else chat()
        while not stop.is_set():
            try:
                stage.call(key, asking.ask(asking.CHAT, CHAT, body), answer, customer)
            except OSError:
                return

    threads = [threading.Thread(target=crowd, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    stage.process.kill()
    stop.set()
    for thread in threads:
        thread.join()
    stage.gateway = stage.process.start()
    admin = stage.gateway.admin
    charges = admin.charges(account)
    doubts = {hold for of, hold in admin.doubts() if of == account}
    ended = [charge.hold for charge in charges]
    expect(len(set(ended)) == len(ended), "a call has ended twice")
    in_doubt = {charge.hold for charge in charges if charge.kind == "in_doubt"}
    expect(doubts == in_doubt, f"the list has {len(doubts)} doubts, the statement {len(in_doubt)}")
    whole = [charge for charge in charges if charge.kind == "settlement"]
    bill = rounded(CHAT.prices.cost(ORPHAN))
    wrong = [charge.charged for charge in whole if charge.charged != bill]
    expect(bool(whole), "nothing was settled before the kill")
    expect(not wrong, f"calls were charged {wrong[:3]}, not {bill}")
    check_doubts(stage, account, doubts)


def check_doubts(stage: Stage, account: str, held: set[str]) -> None:
    """What was held is in doubt, once and for all; resolving works once; everything adds up."""
    admin = stage.gateway.admin
    listed = [hold for of, hold in admin.doubts() if of == account]
    expect(len(listed) == len(set(listed)), "a doubt is listed twice")
    expect(set(listed) == held, f"{len(listed)} are in doubt of {len(held)} that were held")
    expect(not admin.open_holds(account), "a hold is still open")
    before = admin.balance(account)
    expect(before.held == 0, f"{show(before.held)} is held after the start")
    expect(before.adds_up(), f"it does not add up: {before}")
    # Another kill changes nothing of what is known.
    stage.process.kill()
    stage.gateway = stage.process.start()
    admin = stage.gateway.admin
    again = [hold for of, hold in admin.doubts() if of == account]
    expect(sorted(again) == sorted(listed), "a second start has changed the doubts")
    expect(admin.balance(account) == before, "a second start has changed the balance")
    for hold in listed:
        expect(admin.resolve(hold), f"{hold} could not be resolved")
        expect(not admin.resolve(hold), f"{hold} was resolved twice")
    left = [hold for of, hold in admin.doubts() if of == account]
    expect(not left, f"{left} are still in doubt")
    expect(admin.balance(account) == before, "resolving without a refund has moved money")
