"""A gateway of the suite's own: its files, its process, and how to kill it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .adapter import Admin, TollgateAdmin
from .catalogue import Model, models_yaml

ADMIN_TOKEN = "admin-token-of-the-suite"
UPSTREAM_KEY = "sk-upstream-of-the-suite"
#: What is never there: every connection is refused.
NOWHERE = "127.0.0.1:1"
#: What vectors name of the operator's own: files, a store of files, a prompt.
SHARED_IDS = ["file-*", "v", "pmpt_*"]


@dataclass(frozen=True)
class Gateway:
    """Where customers and the operator reach a gateway."""

    address: tuple[str, int]
    admin: Admin


def upstreams(upstream: str) -> dict[str, Any]:
    """Every protocol, a spare of each for repeats, and odd ones."""

    def one(protocol: str, base: str, **more: Any) -> dict[str, Any]:
        base_url = f"http://{upstream}{base}"
        kept = {"shared_ids": SHARED_IDS}
        return {"protocol": protocol, "base_url": base_url, "credential": UPSTREAM_KEY} | kept | more

    bases = {
        "openai": "/v1",
        "anthropic": "",
        "dashscope": "",
        "ark": "",
        "xai": "",
        "voyage": "/v1",
        "gemini": "/v1beta",
    }
    listed = {name: one(name, base) for name, base in bases.items()}
    listed |= {f"{name}-spare": one(name, f"/spare{base}") for name, base in bases.items()}
    listed["openai-brief"] = one("openai", "/brief/v1", timeouts={"read": "400ms"})
    listed["openai-short"] = one("openai", "/short/v1", timeouts={"total": "700ms"})
    listed["openai-wide"] = one("openai", "/wide/v1", retries={"on": [504]})
    listed["nowhere"] = one("openai", "/v1") | {"base_url": f"http://{NOWHERE}/v1"}
    listed["nowhere-xai"] = one("xai", "") | {"base_url": f"http://{NOWHERE}"}
    return listed


def routes(
    upstream: str, with_rules: bool, keepalive: bool, store: dict[str, Any]
) -> dict[str, Any]:
    """`routes.yaml`."""
    listed = upstreams(upstream)
    if not with_rules:
        for one in listed.values():
            one.pop("retries", None)
            one.pop("shared_ids", None)
    limits: dict[str, Any] = {"body_max": "8MiB"}
    balancing: dict[str, Any] = {"retries": {"budget_percent": 100, "per_second_min": 10_000}}
    if keepalive:
        limits["sse_keepalive"] = "40ms"
    else:
        # Vectors fail upstreams on purpose, and share them.
        balancing["circuit"] = {"failures": 1000, "failure_percent": 100}
    return {
        "listeners": [{"address": "127.0.0.1:0"}],
        "admin": {"address": "127.0.0.1:0", "token": ADMIN_TOKEN},
        "store": store,
        "limits": limits,
        "balancing": balancing,
        # Vectors say what is held and billed; who cannot pay is refused rather than helped.
        "holds": {"means": []},
        "tasks": {"poll_min": "50ms", "poll_max": "100ms"},
        "upstreams": listed,
    }


def write_files(
    directory: Path,
    upstream: str,
    models: list[Model],
    *,
    with_rules: bool,
    keepalive: bool = False,
    store: dict[str, Any] | None = None,
) -> None:
    """Writes `routes.yaml` and `models.yaml`. JSON is YAML."""
    store = {"data_dir": str(directory / "data"), **(store or {})}
    text = routes(upstream, with_rules, keepalive, store)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "routes.yaml").write_text(json.dumps(text, indent=1) + "\n")
    (directory / "models.yaml").write_text(models_yaml(models, with_rules))


class Process:
    """A gateway that the suite starts, over files that `write_files` has written."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self.binary = binary
        self.directory = directory
        self.child: subprocess.Popen[str] | None = None

    def start(self) -> Gateway:
        """Starts it, and waits until it is ready."""
        log = (self.directory / "log").open("a")
        command = [self.binary, "serve", "--ready-json", "--log", "info"]
        files = [
            "--routes",
            self.directory / "routes.yaml",
            "--models",
            self.directory / "models.yaml",
        ]
        self.child = subprocess.Popen(
            [*command, *files], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit(
                f"the gateway did not start; see {self.directory / 'log'}:\n{self.log()}"
            )
        ready = json.loads(line)
        place = urllib.parse.urlsplit(ready["listeners"][0])
        assert place.hostname is not None and place.port is not None
        admin = TollgateAdmin(ready["admin_url"], ADMIN_TOKEN)
        return Gateway((place.hostname, place.port), admin)

    def log(self) -> str:
        """The end of its log."""
        return (self.directory / "log").read_text()[-4000:]

    def kill(self) -> None:
        """Ends it at once, as `kill -9` does."""
        if self.child is not None:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait()
            self.child = None

    def __enter__(self) -> Gateway:
        return self.start()

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.kill()
