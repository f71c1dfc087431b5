#!/bin/sh
# Prepares the data and trains, by hand and without Trainmaster: sh train.sh
# Run again, it continues from the newest checkpoint that verifies. Every value is in config.json;
# a framework's own file next to it (training_args.yaml, litgpt.yaml) repeats some: change both.
# Several ranks are started by `accelerate launch` or `torchrun`, as config.json's `compute` asks.
# PYTHON names an interpreter with the packages of requirements.txt. Without it, the runtime finds one
# that can train, or builds one in the cache, and records it in environment.json.
set -eu
cd "$(dirname "$0")"

if [ -n "${PYTHON:-}" ]; then
    "$PYTHON" -m trainer_runtime prepare --data-only config.json
    exec "$PYTHON" -m trainer_runtime train --this-python config.json
fi
python3 -m trainer_runtime prepare config.json
exec python3 -m trainer_runtime train config.json
