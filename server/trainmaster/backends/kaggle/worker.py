"""The worker process for Kaggle's client: one JSON request per input line, one reply per line.

Its standard output and errors are discarded, since the client prints and prompts there. Requests
run concurrently. It ends with its input, and so with its parent.
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
    """`answers`: the stream for replies, instead of standard output."""

    def __init__(self, answers: io.RawIOBase) -> None:
        self._answers = answers
        self._writing = threading.Lock()
        self._opening = threading.Lock()
        self._official: Any = None

    def take(self, line: bytes) -> None:
        """Start a request; its reply is written when it is done."""
        request = json.loads(line)
        threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def _answer(self, request: dict[str, Any]) -> None:
        try:
            call: Callable[..., Any] = getattr(self._open(), request["do"])
            answer = {"id": request["id"], "found": call(**request["with"])}
        except BaseException as error:  # also SystemExit, which the client raises
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
    os._exit(0)  # pending requests have no reader


if __name__ == "__main__":
    main()
