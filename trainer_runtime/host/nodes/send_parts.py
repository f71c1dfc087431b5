"""A member's way of sending what its node's ranks have written of sharded checkpoints."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from trainer_runtime.core.files.parts import Part, handed_over, part_folder, remove_parts
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.link import Link, LinkError, file_size

_AGAIN_S = 1.0
# Node 0 flushes nothing before it answers; a disk that is busy may still take long.
_ANSWERS_S = 120.0


class PartSender:
    """Sends the parts that lie on this node in a thread of its own, oldest first, each until
    node 0 has it whole."""

    def __init__(self, run: RunFolder, connect: Callable[[], Link]) -> None:
        """`connect`: makes a connection for parts."""
        self._run, self._connect = run, connect
        self._sent: set[Part] = set()
        self._thread: threading.Thread | None = None
        self._begins_s = 0.0

    def poll(self, kept: Collection[int]) -> None:
        """Begin to send what is there; remove the parts of checkpoints that node 0 does not keep.

        Returns at once.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        remove_parts(self._run.checkpoints, kept)
        waiting = [part for part in handed_over(self._run.checkpoints) if part not in self._sent]
        if waiting and time.monotonic() >= self._begins_s:
            self._begins_s = time.monotonic() + _AGAIN_S
            self._thread = threading.Thread(
                target=self._send, args=(waiting,), name="parts", daemon=True
            )
            self._thread.start()

    def _send(self, parts: list[Part]) -> None:
        try:
            link = self._connect()
            try:
                for part in parts:
                    if send_part(link, part, part_folder(self._run.checkpoints, part)):
                        self._sent.add(part)
            finally:
                link.close()
        except (OSError, ValueError) as error:  # tried again
            print(f"member: {error}", file=sys.stderr, flush=True)


def send_part(link: Link, part: Part, folder: Path) -> bool:
    """Send those files of a part that node 0 lacks; whether it has all of them now.

    False where node 0 does not await the part, or not yet.

    Raises:
        OSError: it can't be sent, or read.
    """
    sizes = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    files = [{"path": path, "size": size} for path, size in sizes.items()]
    link.send({"part": part.name, "files": files})
    answer = link.receive(_ANSWERS_S)
    if answer is None:
        raise LinkError("the first node is silent")
    if not answer.flag("awaited"):
        return answer.flag("has")
    for path in answer.texts("wanted"):
        if path not in sizes:
            raise LinkError(f"the first node asks for {path!r}, which is not a file of the part")
        with (folder / path).open("rb") as file:
            link.send_file(file, file_size(file))
    done = link.receive(_ANSWERS_S)
    if done is None:
        raise LinkError("the first node is silent")
    return done.flag("has")
