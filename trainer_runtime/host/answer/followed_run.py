"""One run of the follower: which files are read, how often, in which order."""

from __future__ import annotations

import os
import random
import re
import stat
from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.protocol.followed_files import (
    EVENTS,
    JOURNAL,
    REPLACED_IN_ATTEMPT,
    REPLACED_IN_RUN,
    SETUP_LOG,
    TRAIN_LOG,
    WHOLE_EVERY_S,
)
from trainer_runtime.host.answer.followed_files import AppendedFile, Frames, ReplacedFile

# How often to read what hardly changes.
_SELDOM_S = 60.0
# An attempt that has a successor is not read any more after this long without changes.
_QUIET_S = 10.0
# So long the journal waits at most until the logs that are older than it have been read.
_LONGEST_WAIT_S = 5.0

Have = Mapping[str, Any]
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class FollowedRun:
    """What is new in a run's folder, read so that no news of an end precedes what it ended.

    The journal is read before all other files and sent after them, as far as it went then: it
    waits without bound for the attempts' events, and within bounds for their logs.
    """

    def __init__(self, run_id: str, folder: str, have: Have) -> None:
        self._run_id = run_id
        self._folder = folder
        self._have = have
        self._journal = _appended(run_id, folder, JOURNAL, have)
        self._replaced = [_replaced(run_id, folder, name, have) for name in REPLACED_IN_RUN]
        self._attempts: dict[int, _Attempt] = {}
        self._followed: list[_Attempt] = []
        self._newest = 0
        self._listed: tuple[int, int, int] | None = None
        self._events: list[AppendedFile] = []
        self._logs: list[AppendedFile] = []
        self._wholes: dict[str, ReplacedFile] = {}
        self._seldom_due = self._wholes_due = 0.0
        self._waits_since: float | None = None
        self.behind = False

    def refresh(self, now: float, *, thoroughly: bool) -> bool:
        """See what is new; True where there is anything to send. `now`: monotonic seconds."""
        seldom = thoroughly or now >= self._seldom_due
        has_changed = self._journal.refresh()
        self._list_attempts(now, again=seldom, thoroughly=thoroughly)
        self._events.clear()
        self._logs.clear()
        for attempt in self._followed:
            attempt.refresh(self._events, self._logs, now=now, seldom=seldom)
        if has_changed or seldom:
            for attempt in self._followed:
                self._wholes.update((file.name, file) for file in attempt.replaced)
            self._leave_quiet_attempts(now)
        if seldom:
            self._seldom_due = now + random.uniform(0.8, 1.2) * _SELDOM_S
        if thoroughly or now >= self._wholes_due:
            self._wholes.update((file.name, file) for file in self._replaced)
            self._wholes_due = now + random.uniform(0.8, 1.2) * WHOLE_EVERY_S
        return has_changed or bool(self._events or self._logs or self._wholes)

    def send(self, outbox: Frames, limit: int, now: float) -> None:
        """Send about `limit` bytes of what was found."""
        enough = outbox.sent_bytes + limit
        for file in (*self._events, *self._logs):
            if outbox.sent_bytes < enough:
                file.send(outbox, enough - outbox.sent_bytes)
        self._events = [file for file in self._events if file.behind]
        self._logs = [file for file in self._logs if file.behind]
        while self._wholes and outbox.sent_bytes < enough:
            self._wholes.popitem()[1].send_changed(outbox)
        if self._journal.behind and self._may_send_journal(now) and outbox.sent_bytes < enough:
            self._journal.send(outbox, enough - outbox.sent_bytes)
        self.behind = bool(self._events or self._logs or self._wholes) or self._journal.behind

    def _may_send_journal(self, now: float) -> bool:
        """Whether the journal may be sent: it reports ends."""
        if not self._events and not self._logs:
            self._waits_since = None
            return True
        self._waits_since = now if self._waits_since is None else self._waits_since
        return not self._events and now - self._waits_since > _LONGEST_WAIT_S

    def _leave_quiet_attempts(self, now: float) -> None:
        """Read those no more that are over and have been quiet."""
        for attempt in [*self._followed]:
            if attempt.number != self._newest and now - attempt.changed_t >= _QUIET_S:
                self._followed.remove(attempt)

    def _list_attempts(self, now: float, *, again: bool, thoroughly: bool) -> None:
        """Find new attempts; `thoroughly`: and read all of them."""
        path = f"{self._folder}/attempts"
        try:
            status = os.lstat(path)
            listed = (status.st_ino, status.st_mtime_ns, status.st_nlink)
            if (listed == self._listed and not again) or not stat.S_ISDIR(status.st_mode):
                return
            for entry in os.scandir(path):
                if _NUMBER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    self._add_attempt(int(entry.name), now)
        except OSError:
            return
        self._listed = listed
        if thoroughly:
            self._followed = [self._attempts[number] for number in sorted(self._attempts)]

    def _add_attempt(self, number: int, now: float) -> None:
        if number in self._attempts:
            return
        attempt = _Attempt(self._run_id, self._folder, number, self._have, now)
        self._attempts[number] = attempt
        self._followed = sorted([*self._followed, attempt], key=lambda followed: followed.number)
        self._newest = max(self._newest, number)


class _Attempt:
    """The files of one attempt."""

    def __init__(self, run_id: str, folder: str, number: int, have: Have, now: float) -> None:
        place = f"attempts/{number}"
        self.number = number
        self.changed_t = now
        self._events = _appended(run_id, folder, f"{place}/{EVENTS}", have)
        self._train_log = _appended(run_id, folder, f"{place}/{TRAIN_LOG}", have)
        self._setup_log = _appended(run_id, folder, f"{place}/{SETUP_LOG}", have)
        names = [f"{place}/{name}" for name in REPLACED_IN_ATTEMPT]
        self.replaced = [_replaced(run_id, folder, name, have) for name in names]

    def refresh(
        self,
        events: list[AppendedFile],
        logs: list[AppendedFile],
        *,
        now: float,
        seldom: bool,
    ) -> None:
        """Add to `events` and `logs` the files that have anything to send."""
        if self._events.refresh():
            events.append(self._events)
            self.changed_t = now
        if self._train_log.refresh():
            logs.append(self._train_log)
            self.changed_t = now
        # Preparing is over once the trainer has a log.
        if (seldom or not self._train_log.exists) and self._setup_log.refresh():
            logs.append(self._setup_log)
            self.changed_t = now


def _appended(run_id: str, folder: str, name: str, have: Have) -> AppendedFile:
    length, inode, tail = have.get(name) or (0, None, "")
    position = (int(length), inode, tail.encode("latin-1"))
    return AppendedFile(run_id, f"{folder}/{name}", name, position)


def _replaced(run_id: str, folder: str, name: str, have: Have) -> ReplacedFile:
    stamp = have.get(name)
    return ReplacedFile(run_id, f"{folder}/{name}", name, tuple(stamp[:2]) if stamp else None)
