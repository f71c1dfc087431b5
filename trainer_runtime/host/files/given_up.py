"""Gives a run up: `given_up.json`, by which its supervisor fails it."""

from __future__ import annotations

from trainer_runtime.host.files.files import read_fields, write_json
from trainer_runtime.host.files.layout import RunFolder


def give_up(run: RunFolder, reason: str, message: str) -> None:
    """Have the run fail for this reason, instead of another attempt or job for its newest
    request."""
    desired = read_fields(run.desired)
    generation = 0 if desired is None else desired.integer("generation", 0)
    write_json(run.given_up, {"generation": generation, "reason": reason, "message": message})
