"""Has verified checkpoints copied to a second place of the host or to an object store, in the
background.

By the time a spike has lasted long enough to be rewound for, retention alone may have pruned the
newest checkpoint before it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from trainer_runtime.core.checkpoints.checkpoint_index import IndexEntry
from trainer_runtime.core.checkpoints.kept_checkpoints import pinned_document, pinned_steps
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.private import for_the_user, users_umask
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import secret_values

_ON_HOST = "host:"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 600.0
_POLL_EVERY_S = 1.0
_LONGEST_REASON = 300

# Writes an event of the journal: its kind and its fields.
Emit = Callable[[str, Mapping[str, object]], None]


class CheckpointMirror:
    """One copying process at a time, started where a verified checkpoint has no second copy.

    `poll` never waits. A failure is reported as a `mirror_failed` event and retried with growing
    pauses, and once more after the run's end. `mirrored_step`: the newest one reported as copied.
    """

    def __init__(
        self, run: RunFolder, clock: Callable[[], float], emit: Emit, mirrored_step: int | None
    ) -> None:
        self._run = run
        self._clock = clock
        self._emit = emit
        self._child: subprocess.Popen[bytes] | None = None
        self._asked: tuple[str, ...] = ()
        self._copied: tuple[str, ...] | None = None
        self._mirrored_step = mirrored_step
        self._pause_s = _FIRST_PAUSE_S
        self._due_t = 0.0

    def poll(
        self,
        config: RunConfig,
        entries: Callable[[], Sequence[IndexEntry]],
        *,
        last: bool = False,
    ) -> bool:
        """Start or check a copy; True when nothing is left to do. `last`: the run has ended,
        so that what fails now is not tried again."""
        place = config.checkpoint.mirror or ""
        if not place.startswith((_ON_HOST, *STORES)):
            return True
        if self._child is not None:
            self._check_child(self._child, last)
            return False
        if self._clock() < self._due_t and not last:
            return False
        wanted = tuple(f"step-{entry.step:08d}" for entry in entries() if entry.verified)
        if wanted in (self._copied, ()):
            self._due_t = self._clock() + _POLL_EVERY_S
            return True
        self._start(place.removeprefix(_ON_HOST), wanted)
        return False

    def close(self) -> None:
        """Detach from a copy under way; its process ends by itself."""
        self._child = None

    def _start(self, destination: str, wanted: tuple[str, ...]) -> None:
        self._asked = wanted
        secrets = secret_values(self._run) if destination.startswith(STORES) else {}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "trainer_runtime", "mirror", ".", destination, *wanted],
            cwd=self._run.root,
            env=for_the_user({**os.environ, **secrets}),
            umask=users_umask(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._child.pid, 10)

    def _check_child(self, child: subprocess.Popen[bytes], last: bool) -> None:
        if child.poll() is None:
            return
        output, errors = child.communicate()
        self._child = None
        if child.returncode == 0:
            self._copied, self._pause_s, self._due_t = self._asked, _FIRST_PAUSE_S, 0.0
            step = decode_fields(output, "the copy's answer").find_integer("step")
            if step != self._mirrored_step:
                self._mirrored_step = step
                self._emit("mirrored", {"step": step})
            return
        lines = [line for line in errors.splitlines() if line.strip()]
        reason = shown(lines[-1]) if lines else f"exit code {child.returncode}"
        self._emit("mirror_failed", {"reason": reason[:_LONGEST_REASON]})
        if last:
            self._copied = self._asked
        self._due_t = self._clock() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


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
