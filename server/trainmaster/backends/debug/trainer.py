"""A simulated trainer: writes what a real one writes, in a thread, from a formula for the loss."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from trainer_runtime.core.checkpoints.kept_checkpoints import pinned_steps
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.manifest import (
    ChunkHasher,
    Manifest,
    ManifestError,
    build,
    read,
    verify,
)
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.host.files.files import AppendedLog, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.train.checkpoints.retention import Retention, Stored
from trainer_runtime.train.loop.phase_borders import PhaseBorders
from trainmaster.backends.debug.faults import (
    FAULTS_VARIABLE,
    STEP_VARIABLE,
    Fault,
    PlantedFaults,
)

_DEFAULT_STEP_S = 0.01
# What each other trainer of the process adds to the shortest step: a tenth of a core for all.
_STEP_S_FOR_OTHERS = 0.002
_PARAMETER_BYTES = 4096
_SIGKILL = 9
_SPIKE_STEPS = 80
_OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.06 GiB is free."
)
_HANGS = {"hang": "_stand_still", "hangdata": "next_batch", "hangsave": "save_checkpoint"}


class _Killed(Exception):
    """The trainer is no more: nothing after this is written."""


class _Ended(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def thread_name(run_id: str, attempt: int) -> str:
    """The name of an attempt's thread, used as its marker."""
    return f"trainer-{run_id}-{attempt}"


class SimulatedTrainer(threading.Thread):
    """One attempt. `asked_to_end` is its SIGTERM, `killed` its SIGKILL."""

    _living: ClassVar[set[str]] = set()

    def __init__(self, folder: Path, attempt: int) -> None:
        super().__init__(name=thread_name(folder.name, attempt), daemon=True)
        run = RunFolder(folder)
        self._run = run
        self._number = attempt
        self._attempt = run.attempt(attempt)
        self._config = config = RunConfig.parse(self._attempt.config.read_bytes())
        self._curriculum = Curriculum.of(config)
        variables = config.env
        self._step_s = float(variables.get(STEP_VARIABLE, _DEFAULT_STEP_S))
        self._faults = PlantedFaults(variables.get(FAULTS_VARIABLE, ""), folder)
        self._step = 0
        self._saved_by: int | None = None
        self._evaluated = (-1, math.nan)
        self._skipped_sequences = 0
        self._spike_until = 0
        self._saved_t = time.monotonic()
        self._retention = Retention.of(config)
        self._phases = PhaseBorders(
            self._curriculum, lambda kind, **fields: self._emit(kind, fields)
        )
        self.asked_to_end = threading.Event()
        self.killed = threading.Event()

    def run(self) -> None:
        self._living.add(self.name)
        try:
            self._attempt_to_train()
        except FileNotFoundError:
            if self._attempt.exit.parent.exists():
                raise
            # The run was removed: a process would end with its last words in nobody's log.
        finally:
            self._living.discard(self.name)

    def _attempt_to_train(self) -> None:
        self._events = AppendedLog(self._attempt.events, 0)
        with self._attempt.train_log.open("a") as self._log:
            try:
                self._train()
                code, signal = int(ExitCode.COMPLETE), None
            except _Ended as end:
                code, signal = end.code, None
            except _Killed:
                code, signal = None, _SIGKILL
        self._events.close()
        write_json(self._attempt.exit, {"code": code, "signal": signal, "t": time.time()})

    def _train(self) -> None:
        self._resume()
        target = self._config.steps
        if self._phases.needs_start_value(self._step):
            self._evaluate()
        while self._step < target:
            self._take_step()
            if self._phases.evaluation_is_due(self._step):
                self._evaluate()
            is_border = self._phases.is_border(self._step)
            if self._save_is_due() or is_border or self._step == target:
                self._save()
            if is_border:
                self._leave_if_missed(self._phases.end(self._step))
        final = self._run.root / "final"
        final.mkdir(exist_ok=True)
        (final / "model.bin").write_bytes(_parameters(self._step))
        self._emit("completed", {"step": target, "final": "final"})

    def _resume(self) -> None:
        skipped = []
        resumed_from = None
        for step in self._config.attempt.resume.candidates or ():
            problems = verify(self._folder(step))
            if not problems:
                state = json.loads((self._folder(step) / "state.json").read_bytes())
                self._step, self._skipped_sequences = step, state["skipped_sequences"]
                resumed_from, self._saved_by = step, read(self._folder(step)).attempt
                break
            skipped.append({"step": step, "reason": "; ".join(problems)})
            self._emit(
                "decision",
                {"what": "skip_checkpoint", "value": step, "reason": "; ".join(problems)},
            )
        if resumed_from is None and self._config.attempt.resume.mode == "step":
            self._say("the checkpoint that was asked for can't be used")
            raise _Ended(ExitCode.UNUSABLE)
        self._emit("started", self._description(resumed_from, skipped))
        metrics = {} if resumed_from is None else read(self._folder(resumed_from)).metrics
        is_by_user = self._config.attempt.is_by_user
        self._leave_if_missed(self._phases.begin(self._step, metrics, by_user=is_by_user))

    def _description(self, resumed_from: int | None, skipped: list[Any]) -> dict[str, Any]:
        return {
            "attempt": self._number,
            "pid": os.getpid(),
            "step": self._step,
            "target_step": self._config.steps,
            "resumed_from": resumed_from,
            "saved_by": self._saved_by,
            "skipped": skipped,
            "parameters": self._config.derived.parameters,
            "device": "simulated",
            "precision": self._config.precision,
            "tokens_per_step": self._config.batch.tokens,
        }

    def _take_step(self) -> None:
        for skip in self._config.data.skip:
            if skip.at_step == self._step:
                self._skipped_sequences += skip.sequences
        self._pause()
        self._step += 1
        fault = self._faults.due(self._step)
        if fault is not None:
            self._strike(fault)
        self._report(self._loss())

    def _leave_if_missed(self, why: str | None) -> None:
        """`why`: what of a phase the supervisor has to act on; judged as of a real training."""
        if why is not None:
            self._say(why)
            raise _Ended(ExitCode.PHASE_MISSED)

    def _pause(self) -> None:
        self.killed.wait(max(self._step_s, _STEP_S_FOR_OTHERS * (len(self._living) - 1)))
        if self.killed.is_set():
            raise _Killed
        if self.asked_to_end.is_set():
            self._save()
            raise _Ended(ExitCode.SAVED_ON_SIGTERM)

    def _strike(self, fault: Fault) -> None:
        self._say(f"planted fault {fault.name}")
        if fault.kind == "kill":
            raise _Killed
        if fault.kind == "damage":
            self._damage_newest()
            raise _Killed
        if fault.kind == "spike":
            self._spike_until = self._step + _SPIKE_STEPS
            return
        if fault.kind == "oom":
            self._say(_OUT_OF_MEMORY)
        if fault.kind in _HANGS:
            getattr(self, _HANGS[fault.kind])()
        if fault.kind == "nan":
            self._report(math.nan)
            warning = {"code": "nan_loss", "step": self._step, "message": "the loss is NaN"}
            self._emit("warning", {**warning, "values": {"loss": math.nan}})
            raise _Ended(ExitCode.GUARD)
        if fault.kind == "preempt":
            self._report(self._loss())
            self._save()
            raise _Ended(ExitCode.SAVED_ON_SIGTERM)
        codes = {"crash": 1, "oom": 1, "exit": 0, "unusable": int(ExitCode.UNUSABLE)}
        raise _Ended(codes[fault.kind])

    def _stand_still(self) -> None:
        """As a real trainer that hangs: nothing but SIGKILL ends it."""
        self.killed.wait()
        raise _Killed

    def next_batch(self) -> None:
        """Named as in a real trainer: its stack shows that it waits for data."""
        self._stand_still()

    def save_checkpoint(self) -> None:
        """So with a save."""
        self._stand_still()

    def _report(self, loss: float) -> None:
        tokens = self._curriculum.tokens(self._step)
        lr = self._curriculum.rate(self._step)
        self._emit(
            "metric",
            {
                "step": self._step,
                "values": {
                    "loss": loss,
                    "lr": lr,
                    "grad_norm": 1.0 / math.sqrt(self._step),
                    "tokens": self._curriculum.tokens_before(self._step),
                    "tokens_per_s": tokens / max(self._step_s, 1e-6),
                    "step_time_s": self._step_s,
                },
            },
        )
        self._say(f"step {self._step}/{self._config.steps} | loss {loss:.4f} | lr {lr:.2e}")

    def _loss(self) -> float:
        """Falls from 6 towards 2 with noise that depends on step, seed and skipped data alone."""
        seed = f"{self._config.seed}:{self._step}:{self._skipped_sequences}"
        noise = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") / 2**32
        factor = 4.0 if self._step < self._spike_until else 1.0
        return factor * (2.0 + 4.0 * math.exp(-self._step / 50.0) + 0.1 * noise)

    def _evaluate(self) -> None:
        loss = 2.0 + 4.0 * math.exp(-self._step / 50.0)
        self._evaluated = (self._step, loss)
        batches = self._config.evaluation.batches
        values = {"val_loss": loss, "val_perplexity": math.exp(loss)}
        sources = self._config.data.evaluated
        if len(sources) > 1:
            values |= {f"val_loss/{source.name}": loss for source in sources}
        self._emit(
            "eval", {"step": self._step, "values": values, "batches": batches, "seconds": 0.0}
        )
        self._phases.evaluated(self._step, values)

    def _save_is_due(self) -> bool:
        every = self._config.checkpoint.every
        if isinstance(every, int):
            return self._step % every == 0
        return time.monotonic() - self._saved_t >= parse_duration(every)

    def _save(self) -> None:
        folder = self._folder(self._step)
        step, loss = self._evaluated
        metrics = {"val_loss": loss} if step == self._step else {}
        metrics |= self._phases.checkpoint_metrics
        files = {
            "model.bin": _parameters(self._step),
            "state.json": json.dumps({"skipped_sequences": self._skipped_sequences}).encode(),
        }
        size = _write_checkpoint(folder, self._step, self._number, metrics, files)
        self._saved_t = time.monotonic()
        saved = {"step": self._step, "path": f"checkpoints/{folder.name}", "size_bytes": size}
        self._emit("checkpoint", {"action": "saved", **saved, "metrics": metrics})
        problems = verify(folder)
        action = "failed" if problems else "verified"
        self._emit("checkpoint", {"action": action, **saved, "reason": "; ".join(problems)})
        self._prune()

    def _prune(self) -> None:
        stored = [_stored(folder) for folder in sorted(self._run.checkpoints.glob("step-*"))]
        left = {entry.step for entry in stored if entry.step > self._step}
        held = pinned_steps(self._run.root) - left
        for step in self._retention.to_prune(stored, self._step, left, held, self._is_whole):
            shutil.rmtree(self._folder(step))
            self._emit("checkpoint", {"action": "pruned", "step": step})

    def _is_whole(self, step: int) -> bool:
        return not verify(self._folder(step))

    def _damage_newest(self) -> None:
        saved = sorted(self._run.checkpoints.glob("step-*/model.bin"))
        if saved:
            data = bytearray(saved[-1].read_bytes())
            data[len(data) // 2] ^= 1
            saved[-1].write_bytes(bytes(data))

    def _folder(self, step: int) -> Path:
        return self._run.checkpoints / f"step-{step:08d}"

    def _emit(self, kind: str, fields: Mapping[str, Any]) -> None:
        if self.killed.is_set():
            raise _Killed
        self._events.append(time.time(), kind, fields)

    def _say(self, text: str) -> None:
        self._log.write(text + "\n")
        self._log.flush()


def _stored(folder: Path) -> Stored:
    try:
        metrics = read(folder).metrics
    except ManifestError:
        metrics = {}
    return Stored(int(folder.name[5:]), metrics)


def _parameters(step: int) -> bytes:
    return hashlib.shake_128(str(step).encode()).digest(_PARAMETER_BYTES)


def _write_checkpoint(
    folder: Path, step: int, attempt: int, metrics: Mapping[str, float], files: Mapping[str, bytes]
) -> int:
    """Write a checkpoint as a trainer does, manifest last, renamed when whole; its bytes."""
    writing = folder.with_name(f".writing-{folder.name}")
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir(parents=True)
    entries = []
    for name, data in files.items():
        (writing / name).write_bytes(data)
        hasher = ChunkHasher()
        hasher.update(data)
        entries.append(hasher.entry(name))
    manifest = Manifest(
        step=step,
        attempt=attempt,
        time_s=time.time(),
        metrics=metrics,
        tags=(),
        config_sha256="",
        files=tuple(entries),
    )
    (writing / "manifest.json").write_bytes(build(manifest))
    sync_folder(writing)
    shutil.rmtree(folder, ignore_errors=True)
    writing.rename(folder)
    return manifest.size_bytes
