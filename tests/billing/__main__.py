"""`python -m billing`: runs the suite against a gateway, and prints what is wrong and a summary."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from . import gateway
from .adapter import adapter
from .runner import Bench, Outcome, run_all
from .scenarios import Scenario, all_scenarios
from .upstream import Upstream
from .vector import KEEPALIVE, PLAIN, Vector
from .vectors import all_vectors
from .wild import random_vectors


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="billing", description=__doc__)
    aim = parser.add_argument_group("the gateway")
    aim.add_argument(
        "--binary", type=Path, help="start this gateway, with files of the suite's own"
    )
    aim.add_argument("--base-url", help="call the gateway that runs here")
    aim.add_argument("--admin", help="its operator: tollgate:URL, or module.Class:URL")
    aim.add_argument("--token", default="", help="the operator's token")
    aim.add_argument("--upstream-port", type=int, default=0, help="where the upstream listens")
    aim.add_argument("--write-config", type=Path, help="write routes.yaml and models.yaml, and end")
    aim.add_argument(
        "--today", action="store_true", help="without the fields of the rules in the files"
    )
    what = parser.add_argument_group("what is run")
    what.add_argument("--only", action="append", default=[], help="names that have this in them")
    what.add_argument(
        "--random", type=int, default=0, metavar="N", help="so many random vectors too"
    )
    what.add_argument("--seed", type=int, help="of the random vectors; printed when it is drawn")
    what.add_argument("--list", action="store_true", help="print the names, and end")
    what.add_argument("--jobs", type=int, default=24, help="vectors at a time")
    what.add_argument("--slowest", type=int, default=0, help="print so many of the slowest")
    return parser.parse_args()


@contextlib.contextmanager
def benches(chosen: argparse.Namespace, vectors: list[Vector]) -> Iterator[dict[str, Bench]]:
    """The gateways, by the names that vectors have for them: the one that runs, or the suite's own."""
    upstream = Upstream(chosen.upstream_port)
    with contextlib.ExitStack() as stack:
        stack.callback(upstream.close)
        if chosen.binary is None:
            admin = adapter(chosen.admin, chosen.token)
            place = urllib.parse.urlsplit(chosen.base_url)
            running = gateway.Gateway((place.hostname, place.port), admin)
            yield {PLAIN: Bench(running, upstream)}
            return
        found = {}
        for name in (PLAIN, KEEPALIVE):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            gateway.write_files(
                directory,
                upstream.address,
                [vector.model for vector in vectors],
                with_rules=not chosen.today,
                keepalive=name == KEEPALIVE,
            )
            process = gateway.Process(chosen.binary, directory)
            found[name] = Bench(stack.enter_context(process), upstream)
        yield found


def wanted(name: str, only: list[str]) -> bool:
    return not only or any(text in name for text in only)


def report(outcome: Outcome) -> None:
    if outcome.wrong:
        told = [wrong.rstrip().replace("\n", "\n       ") for wrong in outcome.wrong]
        print("\n       ".join([f"FAILED {outcome.name}", *told]), flush=True)


def main() -> int:
    chosen = options()
    seed = secrets.randbelow(2**32) if chosen.seed is None else chosen.seed
    fixed = all_vectors()
    wild = random_vectors(chosen.random, seed)
    vectors = [vector for vector in fixed + wild if wanted(vector.name, chosen.only)]
    scenarios = [one for one in all_scenarios() if wanted(one.name, chosen.only)]
    if chosen.list:
        print("\n".join(one.name for one in [*vectors, *scenarios]))
        return 0
    if chosen.write_config is not None:
        upstream = f"127.0.0.1:{chosen.upstream_port}"
        models = [vector.model for vector in fixed + wild]
        gateway.write_files(chosen.write_config, upstream, models, with_rules=not chosen.today)
        return 0
    begun = time.monotonic()
    with benches(chosen, fixed + wild) as found:
        here = [vector for vector in vectors if vector.gateway in found]
        outcomes = run_all(found, here, chosen.jobs, report)
    if chosen.binary is not None:
        with ThreadPoolExecutor(4) as pool:
            play = partial(Scenario.outcome, binary=chosen.binary, with_rules=not chosen.today)
            outcomes += pool.map(partial(play, report=report), scenarios)
    skipped = len(vectors) - len(here) + (len(scenarios) if chosen.binary is None else 0)
    for outcome in sorted(outcomes, key=lambda one: -one.seconds)[: chosen.slowest]:
        print(f"{outcome.seconds:6.2f} s {outcome.name}")
    if wild:
        print(f"random: {len(wild)} of seed {seed}")
    failed = sum(bool(outcome.wrong) for outcome in outcomes)
    seconds = time.monotonic() - begun
    counts = (
        f"{len(outcomes)} run, {len(outcomes) - failed} passed, {failed} failed, {skipped} skipped"
    )
    print(f"billing: {counts} in {seconds:.1f} s")
    return 1 if failed else 0


sys.exit(main())
