"""`python3 -m trainer_runtime follow`: streams new data of any number of runs over one channel.

Asked by a line of JSON on standard input: `{"scan": n, "limit": bytes, "add": {run: {"folder":
path, "have": {name: [length, inode or null, last bytes]}}}, "drop": [runs], "over": [runs]}`. Of a
file that is replaced as a whole, `have` is `[size, modification time in ns]`; runs that are `over`
are scanned in full. Answered by packets and by `{"scanned": n, "now": unix seconds, "more": bool}`.
A packet is `{"frames": [{"run", "file", "n", ...}, ...]}` on a line, then the n raw bytes of each
frame. An appended file's frame has `at` (its first byte's place), `inode` where that is news, and
`reset` where a new generation of the file begins; a replaced one's has `mtime_ns`.

Only answers requests, so the client sets the pace. Ends with its standard input, or when nothing
was requested or read for a minute: then the connection hangs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, Fields, decode_fields
from trainer_runtime.host.answer.followed_files import Outbox
from trainer_runtime.host.answer.followed_run import FollowedRun

_MOST_BYTES = 8 << 20
_LEAST_SHARE_BYTES = 16 << 10
_LINK_HANGS_S = 60


def follow(source: int, target: int) -> int:
    """Answer scans from one descriptor on another until the first one ends; the exit code."""
    scanner = Scanner(Outbox(target, _show_life))
    try:
        for line in _lines(source):
            scanner.scan(decode_fields(line, "a request", max_bytes=MAX_DOCUMENT_BYTES).values)
    except BrokenPipeError:
        return 0
    return 0


class Scanner:
    """The runs that are followed, and whose turn it is."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._runs: dict[str, FollowedRun] = {}

    def scan(self, fields: Mapping[str, object]) -> None:
        """Answer one request: every run gets its share, and what is left over goes to who needs it.

        `more` says that something did not fit; runs without a turn come first in the next scan.
        """
        request = Fields(fields, "a request")
        added = request.section("add")
        for run_id in (*request.texts("drop"), *added.values):
            self._runs.pop(run_id, None)
        for run_id in added.values:
            run_fields = added.section(run_id)
            self._runs[run_id] = FollowedRun(
                run_id, run_fields.text("folder"), run_fields.open_map("have")
            )
        left = min(request.integer("limit", _MOST_BYTES), _MOST_BYTES)
        more = self._answer(left, frozenset(request.texts("over")))
        self._outbox.end({"scanned": fields["scan"], "now": time.time(), "more": more})

    def _answer(self, limit: int, over: frozenset[str]) -> bool:
        end = self._outbox.sent_bytes + limit
        share = max(limit // max(1, len(self._runs)), _LEAST_SHARE_BYTES)
        now = time.monotonic()
        behind: list[FollowedRun] = []
        for run_id, run in list(self._runs.items()):
            if self._outbox.sent_bytes >= end:
                return True
            self._runs[run_id] = self._runs.pop(run_id)  # to the end of the queue
            if run.refresh(now, thoroughly=run_id in over):
                run.send(self._outbox, min(share, end - self._outbox.sent_bytes), now)
                if run.behind:
                    behind.append(run)
        while behind and self._outbox.sent_bytes < end:
            for run in behind:
                if self._outbox.sent_bytes < end:
                    run.send(self._outbox, min(share, end - self._outbox.sent_bytes), now)
            behind = [run for run in behind if run.behind]
        return bool(behind)


def _lines(source: int) -> Iterator[bytes]:
    rest = b""
    _show_life()
    while data := os.read(source, 1 << 20):
        _show_life()
        *whole, rest = (rest + data).split(b"\n")
        yield from whole


def _show_life() -> None:
    signal.alarm(_LINK_HANGS_S)
