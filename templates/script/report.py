"""Reports a training's steps to Trainmaster, and says when to save and end. Copy it as it is.

Without Trainmaster around it does nothing.
"""

import json
import os
import time


def report(step=None, **values):
    """Report metrics of a step: report(step, loss=…, val_loss=…). `target` is the last step,
    `checkpoint` the path of a checkpoint that is whole."""
    path = os.environ.get("TRAINMASTER_EVENTS")
    if path is None or os.environ.get("RANK", "0") != "0":
        return
    line = {"t": time.time(), **({} if step is None else {"step": int(step)}), **values}
    with open(path, "a") as file:
        file.write(json.dumps(line, default=float) + "\n")


def should_stop():
    """Whether to save a checkpoint and end. Called once, no signal comes any more."""
    if not _watched:
        _watched.append(True)
        report(watches_stop=True)
    return os.path.exists(os.environ.get("TRAINMASTER_STOP", "/nonexistent"))


_watched = []
