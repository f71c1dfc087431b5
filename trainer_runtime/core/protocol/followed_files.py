"""Which of a run's files are followed: copied to the client during the run."""

from __future__ import annotations

import re

JOURNAL = "supervisor.jsonl"
EVENTS = "events.jsonl"
TRAIN_LOG = "train.log"
SETUP_LOG = "setup.log"
DATA_CARD = "data_card.json"
# Append-only files; copying continues from the end of the copy.
APPENDED_IN_RUN = (JOURNAL,)
APPENDED_IN_ATTEMPT = (EVENTS, TRAIN_LOG, SETUP_LOG)
# Files that are always replaced and copied as a whole.
REPLACED_IN_RUN = ("state.json", "training_status.md", "checkpoints_index.json", DATA_CARD)
REPLACED_IN_ATTEMPT = ("config.json", "exit.json")
# How often the run's are copied while it runs. They are rewritten all the time, the events and the
# journal say the same, and to replace the copies is the dearest that the client's file system does
# for a run.
WHOLE_EVERY_S = 300.0
# A file that is replaced as a whole is no longer than this, or is left out.
LARGEST_WHOLE_BYTES = 16 << 20
# A run has some tens; a policy that restarts for weeks, thousands.
MOST_ATTEMPTS = 10_000
# This many bytes before the end of the copy are compared to detect that the original was replaced.
TAIL_BYTES = 64

_IN_ATTEMPT = re.compile(r"attempts/([1-9]\d{0,8})/([a-z]+\.[a-z]+)")


def attempt_of(name: str) -> int:
    """The attempt that a file of a run's folder belongs to; 0 for the run's own."""
    match = _IN_ATTEMPT.fullmatch(name)
    return int(match.group(1)) if match else 0


def is_appended(name: str) -> bool:
    """Whether `name`, as it stands in a run's folder, is followed from where its copy ends."""
    return _is_among(name, APPENDED_IN_RUN, APPENDED_IN_ATTEMPT)


def is_replaced(name: str) -> bool:
    """Whether `name`, as it stands in a run's folder, is copied as a whole."""
    return _is_among(name, REPLACED_IN_RUN, REPLACED_IN_ATTEMPT)


def _is_among(name: str, in_run: tuple[str, ...], in_attempt: tuple[str, ...]) -> bool:
    match = _IN_ATTEMPT.fullmatch(name)
    return match.group(2) in in_attempt if match else name in in_run
