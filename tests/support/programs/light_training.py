"""A training in plain Python: each step's values follow from all steps before, exactly.

Its state is a chain of digests over the data and the steps. One that resumes from another state, or
leaves a step out, has other losses from there on.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from report import report

SAVED_AND_STOPPED = 0


def main():
    given = _arguments()
    stops = []
    signal.signal(signal.SIGTERM, lambda *_: stops.append(True))
    attempt = Path(os.environ["TRAINMASTER_EVENTS"]).parent
    steps = json.loads((attempt / "config.json").read_text())["steps"]
    done, state = _begin(given)
    print(f"from step {done} of {steps}", flush=True)
    for step in range(done + 1, steps + 1):
        state = hashlib.sha256(state + step.to_bytes(8, "big")).digest()
        _report(step, state, given)
        saves = step % given.every == 0 or step == steps
        if saves:
            time.sleep(given.save_s)
            _save(step, state)
        _pause(step, int(attempt.name), given, stops)
        if stops:
            if not saves:
                _save(step, state)
            sys.exit(SAVED_AND_STOPPED)
    Path("out/final").mkdir(parents=True, exist_ok=True)
    Path("out/final/model.txt").write_text(state.hex())


def _arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--eval-s", type=float, default=0.0)
    parser.add_argument("--save-s", type=float, default=0.0)
    parser.add_argument("--step-s", type=float, default=0.0)
    parser.add_argument("--stands-at", type=int, default=sys.maxsize)
    parser.add_argument("--stands-in", type=int, nargs="*", default=[1])
    parser.add_argument("--stands-until", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--resume", type=Path)
    return parser.parse_args()


def _begin(given):
    if given.resume is not None:
        saved = json.loads(given.resume.read_text())
        return saved["step"], bytes.fromhex(saved["state"])
    digest = hashlib.sha256()
    if given.data is not None:
        files = sorted(given.data.rglob("*")) if given.data.is_dir() else [given.data]
        for path in filter(Path.is_file, files):
            digest.update(path.read_bytes())
    return 0, digest.digest()


def _report(step, state, given):
    noise = [int.from_bytes(state[n : n + 4], "big") / 2**32 for n in (0, 4, 8)]
    falling = 1 + 3 / (1 + step / 50)
    report(step, loss=falling + noise[0] / 5, grad_norm=0.1 + noise[1])
    print(f"step {step} | loss {falling + noise[0] / 5:.4f}", flush=True)
    if given.eval_every and step % given.eval_every == 0:
        time.sleep(given.eval_s)
        report(step, val_loss=falling + noise[2] / 5)


def _save(step, state):
    place = Path(f"out/step-{step:08d}.json")
    place.parent.mkdir(exist_ok=True)
    part = place.with_suffix(".part")
    part.write_text(json.dumps({"step": step, "state": state.hex()}))
    part.replace(place)
    report(step, checkpoint=str(place))


def _pause(step, attempt, given, stops):
    """What a step lasts; from the step on at which it is to stand, until it is stopped."""
    time.sleep(given.step_s)
    while step >= given.stands_at and attempt in given.stands_in and not stops:
        if given.stands_until is not None and given.stands_until.exists():
            break
        time.sleep(0.02)


main()
