#!/bin/sh
# Prepares the data and trains, by hand and without Trainmaster: sh train.sh
# Run anew, it goes on from the newest checkpoint that is whole. Every value stands in config.json; a
# framework's own file beside it (training_args.yaml, litgpt.yaml) holds its share: change both.
# PYTHON names the interpreter; it needs what requirements.txt lists. Without it, one that can train
# is looked for, or built in the cache, and recorded in environment.json.
set -eu
cd "$(dirname "$0")"
PYTHON="${PYTHON:-}"
export PYTHON

if [ -n "$PYTHON" ]; then
    "$PYTHON" -m trainer_runtime prepare --data-only config.json
else
    python3 -m trainer_runtime prepare config.json
fi

# The config's variables and thread count become the trainer's environment.
exec "${PYTHON:-python3}" -c '
import fcntl, json, os, sys

# Inherited by the trainer: as long as it lives, nobody starts another one in this folder.
lock = os.open(".trainer.lock", os.O_RDWR | os.O_CREAT, 0o644)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("A trainer of this run is running already.")
os.set_inheritable(lock, True)
with open("config.json", encoding="utf-8") as file:
    config = json.load(file)
os.environ.setdefault("OMP_NUM_THREADS", str(config["compute"]["threads"]))
os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # threads that spin on starve their neighbours
interpreter = sys.executable
if not os.environ["PYTHON"] and os.path.exists("environment.json"):
    with open("environment.json", encoding="utf-8") as file:
        settled = json.load(file)
    interpreter = settled["python"]
    for name, value in settled["variables"].items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
os.environ.update(config["env"])
{% if launcher == "python" %}
os.execv(interpreter, [interpreter, "train.py", "config.json"])
{% else %}
{% if launcher == "accelerate" %}
# accelerate launch --config_file accelerate_config.yaml train.py config.json
launch = ["-m", "accelerate.commands.launch", "--config_file", "accelerate_config.yaml"]
{% else %}
# torchrun --standalone --nproc-per-node RANKS train.py config.json
launch = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
launch += ["--nproc-per-node", str(config["compute"]["processes"])]
{% endif %}
# By itself it gives its ranks half a minute to save; so what asks for an end goes to them directly.
ranks = ["-m", "trainer_runtime", "ranks", "config.json", "--"]
os.execv(interpreter, [interpreter, *ranks, interpreter, *launch, "train.py", "config.json"])
{% endif %}
'
