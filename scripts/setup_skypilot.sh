#!/usr/bin/env bash
# Installs SkyPilot into .venv/skypilot, apart from all other since it wants versions of its own: the
# tests give its client the tasks that `trainmaster export` writes. By digest, and nothing but what
# tests/support/plan/skypilot.lock names (scripts/make_locks.py). Quick where nothing is to be done.
set -euo pipefail
cd "$(dirname "$0")/.."

lock=tests/support/plan/skypilot.lock
folder=.venv/skypilot
stamp=$folder/.installed
wanted=$(cksum < "$lock")
if [ -x "$folder/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
printf '%s\n' 'Installing SkyPilot into .venv/skypilot (300 MB) ...' >&2
.venv/bin/python -m venv --clear --without-pip "$folder"
# Compiled when it is imported first: most of it never is.
.venv/bin/python -m pip --python "$folder/bin/python" install --quiet --disable-pip-version-check \
    --no-compile --no-deps --require-hashes --requirement "$lock"
printf '%s\n' "$wanted" > "$stamp"
