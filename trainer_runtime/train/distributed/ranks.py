"""One rank of an attempt: joint decisions of all ranks, and how each rank exits.

`broadcast` uses the launcher's own store, which needs no device and exists before the framework's
process groups; the decisions of every step use the framework's group.
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import json
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from trainer_runtime.core.diagnosis.stacks.names import RANK_VARIABLE, WORLD_VARIABLE
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.processes.parent_death import descends_from, die_with_parent
from trainer_runtime.core.processes.rank_exits import (
    FOLDER_VARIABLE,
    WATCHER_VARIABLE,
    end_file,
    log_file,
)
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.distributed.rank_log import keep_log

# Verifying a large checkpoint takes long.
_BROADCAST_TIMEOUT = timedelta(hours=12)
_LOCAL_WORLD_VARIABLE = "LOCAL_WORLD_SIZE"
# Longer than a network file system may go by what it has listed before.
_SHOWS_UP_WITHIN_S = 120.0
_APART = b"apart"


@dataclass(frozen=True, slots=True)
class Ranks:
    """The number of ranks, and this process's own."""

    rank: int
    size: int

    @classmethod
    def of_environment(cls) -> Ranks:
        """As the launcher set them; a single rank without a launcher."""
        environment = os.environ
        return cls(
            int(environment.get(RANK_VARIABLE, "0")), int(environment.get(WORLD_VARIABLE, "1"))
        )

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that records."""
        return self.rank == 0

    def broadcast(self, name: str, decide: Callable[[], Any]) -> Any:
        """Rank 0's decision, as JSON; every rank has to call it. `name` is used once per process.

        Raises:
            ConfigError: rank 0 raised it; every rank raises it too.
        """
        if self.size == 1:
            return decide()
        store = _store()
        if self.is_main:
            store.set(f"trainmaster/{name}", json.dumps(_decided(decide)))
        return _decision_in(store.get(f"trainmaster/{name}"))

    @property
    def machines(self) -> int:
        """The number of machines that the ranks are on, the same number of them on each."""
        return self.size // self._per_machine

    @property
    def machine(self) -> int:
        """The number of the machine that this rank is on."""
        return self.rank // self._per_machine

    @property
    def leads(self) -> int | None:
        """The number of the machine whose first rank this is; None for its other ranks."""
        return None if self.rank % self._per_machine else self.machine

    def on_each_machine(self, name: str, act: Callable[[], None]) -> None:
        """Have the first rank of each machine act, which the others wait for; every rank has to
        call it. `name` is used once per process.

        Raises:
            ConfigError: one of them raised it; every rank raises it too.
        """
        if self.size == 1:
            act()
            return
        store = _store()
        if self.leads is not None:
            store.set(f"trainmaster/{name}/{self.leads}", json.dumps(_decided(act)))
        for machine in range(self.machines):
            _decision_in(store.get(f"trainmaster/{name}/{machine}"))

    def machines_apart(self, folder: Path) -> list[int]:
        """The machines where `folder` is not rank 0's, as it is on a disk that they share; every
        rank has to call it, once per process."""
        store, name = _store(), "trainmaster/machines"
        if self.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            mark = folder / f".mark-{secrets.token_hex(8)}"
            mark.touch()
            store.set(f"{name}/mark", mark.name)
            others = range(1, self.machines)
            apart = [other for other in others if store.get(f"{name}/{other}") == _APART]
            mark.unlink()
            store.set(f"{name}/apart", json.dumps(apart))
        elif (machine := self.leads) is not None:
            sees = (folder / store.get(f"{name}/mark").decode()).exists()
            store.set(f"{name}/{machine}", "shared" if sees else _APART)
        return list(json.loads(store.get(f"{name}/apart")))

    def await_files(self, folder: Path, apart: list[int]) -> None:
        """Wait until rank 0 sees in `folder` what ranks of machines that share it have written;
        network file systems list new files late. Every rank has to call it."""
        store, name = _store(), f"trainmaster/seen/{folder.name}"
        shared = [other for other in range(1, self.machines) if other not in apart]
        if self.leads in shared:
            store.set(f"{name}/{self.leads}", json.dumps(_sizes(folder)))
        elif self.is_main:
            for machine in shared:
                _await_sizes(folder, json.loads(store.get(f"{name}/{machine}")))
                store.delete_key(f"{name}/{machine}")

    def gather_files(self, folder: Path, apart: list[int]) -> None:
        """Have in rank 0's `folder` what ranks of the machines `apart` have written below theirs,
        and nothing of it there; every rank has to call it, once all have finished writing.

        Such files are small: what is large, rank 0 writes, or the node's member sends.
        """
        store, name = _store(), f"trainmaster/files/{folder.name}"
        if self.leads in apart:
            store.set(f"{name}/{self.leads}", json.dumps(_encoded(folder)))
            shutil.rmtree(folder, ignore_errors=True)
        elif self.is_main:
            for machine in apart:
                _write_missing(folder, json.loads(store.get(f"{name}/{machine}")))
                store.delete_key(f"{name}/{machine}")

    def any_of(self, *flags: bool, device: torch.device) -> tuple[bool, ...]:
        """For each flag whether any rank has it set; every rank has to call it."""
        return self.share(*flags, own=0.0, device=device)[0]

    def share(
        self, *flags: bool, own: float, device: torch.device
    ) -> tuple[tuple[bool, ...], list[float]]:
        """For each flag whether any rank has it set, and each rank's `own`, which is not negative;
        every rank has to call it."""
        if self.size == 1:
            return flags, [own]
        values = [own if rank == self.rank else 0.0 for rank in range(self.size)]
        shared = torch.tensor([*flags, *values], dtype=torch.float32, device=device)
        distributed.all_reduce(shared, op=distributed.ReduceOp.MAX)
        reduced = shared.tolist()
        return tuple(flag > 0 for flag in reduced[: len(flags)]), reduced[len(flags) :]

    @property
    def _per_machine(self) -> int:
        return min(self.size, int(os.environ.get(_LOCAL_WORLD_VARIABLE, str(self.size))))

    def leave(self) -> None:
        """Waits for all ranks, then destroys the framework's process groups.

        At interpreter exit instead, one rank's connections would break while another still uses
        them and aborts.
        """
        if self.size > 1 and distributed.is_initialized():
            distributed.barrier()
            distributed.destroy_process_group()


def join() -> None:
    """Binds this process's life to its launcher's, and keeps a log of its own; to be called first.

    Does nothing if no process watches the launcher.
    """
    watcher = os.environ.get(WATCHER_VARIABLE, "")
    if not watcher.isdigit():
        return
    die_with_parent()
    if not descends_from(os.getpid(), int(watcher)):  # the launcher ended already
        os.kill(os.getpid(), signal.SIGKILL)
    _write(None)
    if folder := os.environ.get(FOLDER_VARIABLE):
        keep_log(Path(folder, log_file(_own_number())))


def record_exit(code: int) -> int:
    """Records how this rank ends; returns the code that its process has to exit with.

    Under a watcher that is 0: with any other code the launcher would end the other ranks.
    """
    if not os.environ.get(WATCHER_VARIABLE):
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        _write(code)
    except OSError:
        return code
    return 0


def end_process(code: int) -> None:
    """Ends this process with what `record_exit` returned, once all that is registered for its exit
    is done. Does nothing without a watcher.

    What Python and libraries destroy after that can only spoil it: where a thread of gloo is still
    there, the process aborts, and the launchers of other machines wait for this one for minutes.
    """
    if not os.environ.get(WATCHER_VARIABLE):
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(code)


def _store() -> Any:
    """The launcher's own store."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return distributed.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=False, timeout=_BROADCAST_TIMEOUT
    )


def _sizes(folder: Path) -> dict[str, int]:
    """The finished files below a folder; others may still be on their way to it."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }


def _await_sizes(folder: Path, sizes: dict[str, int]) -> None:
    """Raises: OSError: a file does not show up."""
    deadline = time.monotonic() + _SHOWS_UP_WITHIN_S
    for name, size in sizes.items():
        path = folder / name
        while not path.is_file() or path.stat().st_size != size:
            if time.monotonic() > deadline:
                raise OSError(f"{path}, which another machine has written, can't be seen here")
            time.sleep(0.05)


def _encoded(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _write_missing(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(text))


def _decided(decide: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"decided": decide()}
    except ConfigError as error:
        return {"refused": str(error)}


def _decision_in(decided: bytes) -> Any:
    """Raises: ConfigError: what was decided is a refusal."""
    answer = json.loads(decided)
    if "refused" in answer:
        raise ConfigError(answer["refused"])
    return answer["decided"]


def _write(code: int | None) -> None:
    if folder := os.environ.get(FOLDER_VARIABLE):
        end = {"pid": os.getpid(), "code": code, "t": time.time()}
        write_atomic(Path(folder, end_file(_own_number())), json.dumps(end).encode() + b"\n")


def _own_number() -> int:
    return int(os.environ.get(RANK_VARIABLE, "0"))
