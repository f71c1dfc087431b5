"""Pins the checkpoint that a rewind would return to, while its fault is still developing.

By the time a spike has lasted long enough to be rewound for, retention alone may have pruned the
newest checkpoint before it.
"""

from __future__ import annotations

from collections.abc import Collection

from trainer_runtime.box.files.files import write_json
from trainer_runtime.box.files.layout import RunFolder
from trainer_runtime.core.checkpoints.pinned_checkpoints import held_document, held_steps


class HeldCheckpoints:
    """A run's `held_checkpoints.json`, of which this is the only writer."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._held = held_steps(run.root)

    def hold(self, steps: Collection[int]) -> None:
        """Hold these, and none besides. A disk that takes no file is tried again next time."""
        wanted = frozenset(steps)
        if wanted == self._held:
            return
        try:
            write_json(self._run.held_checkpoints, held_document(wanted))
        except OSError:
            return
        self._held = wanted
