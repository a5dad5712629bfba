"""A public conformance kit, llm-comply, in every cell that is translated.

What it finds wrong is in `conformance_differences.json`, with the reason why it is so; anything else fails,
and so does a difference that is none any more.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from test_translation import CHAT_ONLY, CLAUDE, RESPONSES

DIFFERENCES = json.loads((Path(__file__).parent / "conformance_differences.json").read_text())
CELLS = [
    ("openai-chat", "chat over messages", CLAUDE),
    ("openai-chat", "chat over responses", RESPONSES),
    ("anthropic", "messages over chat", CHAT_ONLY),
    ("anthropic", "messages over responses", RESPONSES),
    ("open-responses", "responses over messages", CLAUDE),
    ("open-responses", "responses over chat", CHAT_ONLY),
]
# A run of fewer has lost some.
TESTS_MIN = {"openai-chat": 5, "anthropic": 5, "open-responses": 5}


@pytest.mark.parametrize(("kit", "cell", "model"), CELLS)
def test_a_cell_conforms_but_for_what_is_explained(customer, kit, cell, model):
    run = [sys.executable, "-c", "from llm_comply.cli import main; raise SystemExit(main())", "run"]
    base_url = customer.base_url
    asked = ["--format", kit, "-u", base_url, "-k", customer.key, "-m", model, "--json"]
    if kit == "anthropic":
        asked += ["--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01"]
    told = subprocess.run(run + asked, capture_output=True, text=True, check=False)
    report = json.loads(told.stdout)
    results = {result["id"]: result for result in report["results"]}
    assert len(results) >= TESTS_MIN[kit], told.stdout
    failed = {name: result for name, result in results.items() if result["status"] == "failed"}
    explained = {one["test"] for one in DIFFERENCES if one["kit"] == kit and cell in one["cells"]}
    assert all(one["why"].endswith(".") for one in DIFFERENCES)
    assert set(failed) == explained, json.dumps(failed, indent=1)
