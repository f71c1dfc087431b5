#!/bin/sh
# Prepares the data and trains, by hand and without Trainmaster: sh train.sh
# Run again, it continues from the newest checkpoint that verifies. Every value stands in config.json;
# a framework's own file beside it (training_args.yaml, litgpt.yaml) holds its share: change both.
# Several ranks are started by `accelerate launch` or `torchrun`, as config.json's `compute` asks.
# PYTHON names the interpreter; it needs what requirements.txt lists. Without it, one that can train
# is found, or built in the cache, and recorded in environment.json.
set -eu
cd "$(dirname "$0")"

if [ -n "${PYTHON:-}" ]; then
    "$PYTHON" -m trainer_runtime prepare --data-only config.json
    exec "$PYTHON" -m trainer_runtime train --this-python config.json
fi
python3 -m trainer_runtime prepare config.json
exec python3 -m trainer_runtime train config.json
