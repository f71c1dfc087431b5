"""`python3 rootless_container.py FOLDER IMAGE`: a container as an ordinary user's hold runs it.

FOLDER/run has the runtime and a configuration. Runs with the system's interpreter, as that user;
prints what the user sees of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.host.containers.container import Container, Image, containers
from trainer_runtime.host.containers.engine import find_engine
from trainer_runtime.host.processes import contained
from trainer_runtime.host.processes.identity import carriers, send

_TRAINER = """\
import os, time
print("inside", open("../read/by-group").read(), flush=True)
open("pid", "w").write(str(os.getpid()))
time.sleep(3600)
"""
_BOUND_S = 120.0


def main(folder: Path, image: str) -> None:
    engine = find_engine(os.environ)
    run = folder / "run"
    for needed in (run / "logs", folder / "cache"):
        needed.mkdir()
    (run / "train.py").write_text(_TRAINER)
    config = RunConfig.parse((run / "config.json").read_bytes())
    marker = {"TRAINMASTER_ATTEMPT": "boxed/1"}
    found = Image(engine, image, image, "/usr/bin/python3")
    container = Container(found, run, config, Path("config.json"), marker)
    lock = try_lock(run / ".trainer.lock")
    assert lock is not None
    seen: dict[str, object] = {"rootless": engine.rootless}
    pids: list[int] = []
    codes: list[int | None] = []

    def train() -> None:
        codes.append(contained.train(container, 1, Path("logs/train.log"), lock, pids.append))

    thread = threading.Thread(target=train)
    thread.start()
    deadline = time.monotonic() + _BOUND_S
    while not (run / "pid").exists() or not (run / "pid").read_text() or not pids:
        assert thread.is_alive() and time.monotonic() < deadline
        time.sleep(0.05)
    (process,) = carriers("TRAINMASTER_ATTEMPT=boxed/1")
    seen["owner"] = (run / "pid").stat().st_uid
    seen["same_pid"] = [process.pid] == pids == [int((run / "pid").read_text())]
    seen["log"] = (run / "logs/train.log").read_text()
    seen["signalled"] = send(process, signal.SIGTERM)
    thread.join()
    seen["code"] = codes[0]
    seen["left"] = containers(engine, config.run_id)
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
