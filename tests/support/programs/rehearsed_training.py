"""A training in plain Python that descends by momentum, with a fault where one is asked for."""

import argparse
import json
import os
import random
import resource
import sys
import time
from pathlib import Path

from report import report

OWN_STEPS, SAVES_EVERY, EVALUATES_EVERY, STEP_S = 5000, 5, 4, 0.05


class UsageError(Exception):
    """As the client of a tracker raises it."""


def main():
    given = _arguments()
    if given.fault == "package":
        import surely_no_such_package  # noqa: F401
    if given.fault == "credential":
        raise UsageError("api_key not configured (no-tty). call wandb.login(key=[your_api_key])")
    rate = 0.0 if given.fault == "rate" else 0.05
    done, weight, speed, noise = _begin(given)
    for step in range(done + 1, _steps(given) + 1):
        time.sleep(STEP_S)
        gradient = weight * (1 if given.fault != "explosion" else 1.6**step)
        loss = 1 + weight * weight / 2 + noise.random() / 50
        if given.fault == "nan" and step >= 12:
            loss = float("nan")
        if given.fault == "labels":  # of other rows: what is learnt does not show in the loss
            loss = 5 + noise.random() / 50
        if given.fault == "masked":
            loss = gradient = 0.0
        if given.fault == "memory" and step >= 6:
            _take_too_much()
        if given.fault == "vocabulary" and step >= 6:
            _embed()
        report(step, loss=loss, grad_norm=loss and abs(gradient) / 2 + 0.1, lr=rate)
        speed = 0.7 * speed + weight
        weight -= rate * speed
        if step % EVALUATES_EVERY == 0:
            _evaluate(step, weight, given)
        if step % SAVES_EVERY == 0:
            _save(step, weight, speed, noise, given)
    _export(weight, given)


def _arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--own-steps", action="store_true")
    parser.add_argument("--resume", type=Path)
    return parser.parse_args()


def _steps(given):
    attempt = Path(os.environ["TRAINMASTER_EVENTS"]).parent
    config = json.loads((attempt / "config.json").read_text())
    return OWN_STEPS if given.own_steps else config["steps"]


def _begin(given):
    noise = random.Random(1)
    if given.resume is None:
        return 0, 3.0, 0.0, noise
    if given.fault == "resume":
        raise KeyError("optimizer")
    saved = json.loads(given.resume.read_text())
    if given.fault != "state":
        drawn = saved["noise"]
        noise.setstate((drawn[0], tuple(drawn[1]), drawn[2]))
    return saved["step"], saved["weight"], 0.0 if given.fault == "state" else saved["speed"], noise


def _take_too_much():
    most = 2 << 30
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    bytearray(2 * most)


def _embed():
    rows = [0.1] * 256
    for token in (7, 256):  # the tokenizer has an end of text besides its bytes
        if token >= len(rows):
            raise IndexError("index out of range in self")  # as PyTorch's embedding does


def _evaluate(step, weight, given):
    if given.fault == "evaluation" and step > EVALUATES_EVERY:
        raise ValueError("the held-out data has no rows")
    report(step, val_loss=1 + weight * weight / 2)


def _save(step, weight, speed, noise, given):
    if given.fault == "disk":
        Path("/dev/full").write_text("as on a disk without room")
    place = Path(f"out/step-{step:08d}.json")
    place.parent.mkdir(exist_ok=True)
    part = place.with_suffix(".part")
    state = {"step": step, "weight": weight, "speed": speed, "noise": noise.getstate()}
    part.write_text(json.dumps(state))
    part.replace(place)
    report(step, checkpoint=str(place))


def _export(weight, given):
    if given.fault == "export":
        sys.exit("the model can't be exported")
    Path("out/final").mkdir(parents=True, exist_ok=True)
    Path("out/final/model.txt").write_text(str(weight))


main()
