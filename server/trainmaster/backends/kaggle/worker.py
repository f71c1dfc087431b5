"""The process that talks to Kaggle: a request in JSON a line in, an answer a line out.

Its own standard output and errors lead nowhere: the client prints there, and asks people. Requests
are done side by side. It ends with its input, thus with whoever started it.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from trainmaster.backends.kaggle.error_mapping import coded


class Worker:
    """`answers`: where they go, in place of standard output."""

    def __init__(self, answers: io.RawIOBase) -> None:
        self._answers = answers
        self._writing = threading.Lock()
        self._opening = threading.Lock()
        self._official: Any = None

    def take(self, line: bytes) -> None:
        """Begin with a request; the answer comes when it comes."""
        request = json.loads(line)
        threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def _answer(self, request: dict[str, Any]) -> None:
        try:
            call: Callable[..., Any] = getattr(self._open(), request["do"])
            answer = {"id": request["id"], "found": call(**request["with"])}
        except BaseException as error:  # also SystemExit, by which the client gives up
            answer = {"id": request["id"], "error": coded(error).to_dict()}
        data = json.dumps(answer).encode() + b"\n"
        with self._writing:
            while data:
                data = data[self._answers.write(data) :]

    def _open(self) -> Any:
        with self._opening:
            if self._official is None:
                from trainmaster.backends.kaggle.official import Official

                self._official = Official()
            return self._official


def main() -> None:
    """Serve until the input ends."""
    answers = io.FileIO(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    requests = io.BufferedReader(io.FileIO(os.dup(0)))
    os.dup2(nowhere, 0)
    sys.argv = ["trainmaster"]
    worker = Worker(answers)
    for line in requests:
        worker.take(line)
    os._exit(0)  # what is on its way has nobody left to hear of it


if __name__ == "__main__":
    main()
