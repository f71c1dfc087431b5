"""Uploads a run's checkpoints to an object store, or brings one of them from there.

`python -m trainer_runtime.train.checkpoints.store_mirror REQUEST`, started by
`host.prepare.store_mirror` in the training's environment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, Fields, decode_fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.checkpoints.stored_checkpoints import NotWholeError, StoredCheckpoints
from trainer_runtime.train.data.stored_objects import StoreError

_NOT_NOW = 1


def main(request_path: str) -> int:
    """Carry out a request. Returns 77 for permanent failures, 1 for temporary ones."""
    request = decode_fields(
        Path(request_path).read_bytes(), "request", max_bytes=MAX_DOCUMENT_BYTES
    )
    try:
        address = StoreAddress.find(request.text("mirror"))
        if address is None:
            raise NotWholeError(f"{request.text('mirror')} is not an address of an object store")
        _carry_out(request, StoredCheckpoints(address))
    except StoreError as error:
        print(error, flush=True)
        return ExitCode.UNUSABLE if error.obstacle.is_for_good else _NOT_NOW
    except NotWholeError as error:
        print(error, flush=True)
        return ExitCode.UNUSABLE
    return 0


def _carry_out(request: Fields, stored: StoredCheckpoints) -> None:
    folder, answer = Path(request.text("checkpoints")), request.find_text("answer")
    if answer is not None:
        stored.upload(folder, request.texts("names"))
        write_atomic(Path(answer), json.dumps({"step": max(stored.steps(), default=None)}).encode())
        return
    stored.try_writing()
    steps = [int(step) for step in request.texts("steps")]
    if steps:
        print(f"step {stored.download(folder, steps)} is here", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
