#!/usr/bin/env bash
# Takes the pictures of docs/tutorial.md again: drives both consoles in Chromium, as the tests do, and
# keeps what the tutorial shows. Needs what `bash .ci/install` installs.
set -euo pipefail
cd "$(dirname "$0")/../.."

taken=$(mktemp -d)
trap 'rm -rf "$taken"' EXIT
TOLLGATE_SCREENSHOTS="$taken" cargo test --test proofs -- --ignored console_browser operator_browser

grep -o 'tutorial/[a-z0-9-]*\.png' docs/tutorial.md | sort -u | while read -r picture; do
    cp "$taken/$(basename "$picture")" "docs/$picture"
done
ls -l docs/tutorial/*.png
