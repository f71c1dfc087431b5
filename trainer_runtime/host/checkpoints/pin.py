"""Pins the checkpoint that a rewind would return to, while its fault is still developing.

By the time a spike has lasted long enough to be rewound for, retention alone may have pruned the
newest checkpoint before it.
"""

from __future__ import annotations

from collections.abc import Collection

from trainer_runtime.core.checkpoints.pinned_checkpoints import pinned_document, pinned_steps
from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.files.layout import RunFolder


class PinnedCheckpoints:
    """A run's `held_checkpoints.json`, of which this is the only writer."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._pinned = pinned_steps(run.root)

    def pin(self, steps: Collection[int]) -> None:
        """Pin these and unpin all others. If the disk takes no file, the next call tries again."""
        wanted = frozenset(steps)
        if wanted == self._pinned:
            return
        try:
            write_json(self._run.held_checkpoints, pinned_document(wanted))
        except OSError:
            return
        self._pinned = wanted
