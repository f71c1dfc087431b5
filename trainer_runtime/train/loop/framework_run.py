"""One attempt at a training whose loop is a framework's: HF Trainer, TRL, LitGPT.

The framework's callbacks report to a `FrameworkRun`, which records events, guards against
non-finite values, decides when to save and to stop, and seals the folders that the framework wrote
into verified checkpoints. Only rank 0 records; every rank has to call it, so that all decide the
same.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer_runtime.core.config import SamplesConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.frameworks.framework import WRITING
from trainer_runtime.train.attempt import nan_guard
from trainer_runtime.train.attempt.config import (
    RunConfig,
    read_run_config,
    refuse_another_script,
)
from trainer_runtime.train.attempt.device import Device
from trainer_runtime.train.attempt.events import events_of
from trainer_runtime.train.attempt.exit_codes import (
    NotSavedError,
    PhaseMissedError,
    StopRequestedError,
    ending,
)
from trainer_runtime.train.attempt.objective import Objective
from trainer_runtime.train.checkpoints import random_state
from trainer_runtime.train.checkpoints.checkpointer import FINAL
from trainer_runtime.train.distributed import ranks
from trainer_runtime.train.loop import startup
from trainer_runtime.train.loop.averaged_weights import AveragedWeights
from trainer_runtime.train.loop.checkpoint_metrics import CheckpointMetrics
from trainer_runtime.train.loop.drawing import TextModel
from trainer_runtime.train.loop.early_stopping import EarlyStopping
from trainer_runtime.train.loop.framework_checkpoints import FrameworkCheckpoints
from trainer_runtime.train.loop.phase_borders import PhaseBorders
from trainer_runtime.train.loop.range_test import RangeTest, ran_whole
from trainer_runtime.train.loop.rank_paces import RankPaces
from trainer_runtime.train.loop.recorded_samples import sample_if_due
from trainer_runtime.train.loop.report import perplexity
from trainer_runtime.train.loop.signals import StopSignal
from trainer_runtime.train.loop.speed import Cost, StepClock
from trainer_runtime.train.loop.started import record_start
from trainer_runtime.train.loop.step_profiler import StepProfiler
from trainer_runtime.train.loop.step_values import StepValues
from trainer_runtime.train.loop.thread_waiting import ThreadWaiting

# The methods whose loss is the mean negative log-likelihood per token.
_PER_TOKEN = ("pretrain", "sft")


@dataclass(frozen=True, slots=True)
class Due:
    """The actions due after a step. `stop`: save, then end."""

    save: bool
    stop: bool


def run(train: Callable[[FrameworkRun], None], config_path: Path, **choices: str) -> int:
    """Runs one attempt with the run's folder as working folder; returns the process's exit code.
    A rank that ends in order ends its process.

    `choices` are those that the script was rendered with; a config with others is refused.
    """
    startup.end_imports()
    stop = StopSignal()
    stop.install()

    def whole() -> None:
        attempt = FrameworkRun(config_path, stop)
        try:
            refuse_another_script(attempt.config, choices)
            if ran_whole(attempt.config, lambda: train(attempt)):
                attempt.check_end()
            else:
                attempt.end_range_test()
        finally:
            attempt.close()

    ranks.join()
    try:
        code = ranks.record_exit(ending(whole))
    except (Exception, SystemExit):
        ranks.record_exit(1)
        raise
    finally:
        stop.ignore()
        # Otherwise the interpreter's last garbage collection takes seconds.
        gc.freeze()
    ranks.end_process(code)
    return code


class FrameworkRun:
    """The state of one attempt. `step` counts finished optimizer steps.

    `folder` holds config.json and, beside it, the framework's own files (`core.frameworks`).
    """

    def __init__(self, config_path: Path, stop: StopSignal) -> None:
        """Raises: ConfigError: see `read_run_config`, `Device`."""
        self.folder = config_path.parent
        self.config: RunConfig = read_run_config(config_path)
        self.curriculum = Curriculum.of(self.config)
        self.objective = Objective(self.config.optimizer)
        self.ranks = ranks.Ranks.of_environment()
        self.rank, self.world_size = self.ranks.rank, self.ranks.size
        self._hardware = Device.choose(self.config)
        self._stop = stop
        self._events = (
            events_of(self.config, self.folder / "events.jsonl") if self.is_main else None
        )
        self._metrics = CheckpointMetrics(self.config.checkpoint.metric)
        self._phases = PhaseBorders(self.curriculum, self._emit)
        self._early = EarlyStopping(self.config, self._emit)
        self.average = AveragedWeights(self.config)
        self._range_test = RangeTest(self.config)
        self._missed: str | None = None
        # Set by `begin`, which knows the number of parameters.
        self._step_values: StepValues | None = None
        self._saves_last = False
        self._stopped = self._completed = False
        self._rank_paces = RankPaces(self._emit)
        self._thread_waiting = None if self._hardware.is_cuda else ThreadWaiting()
        self.clock = StepClock()
        self._profiler = (
            StepProfiler(self.config, self.folder, self.clock, self._emit) if self.is_main else None
        )
        self.checkpoints = FrameworkCheckpoints(self.config, self.ranks, self._events, self.clock)
        self.step = 0

    @property
    def is_main(self) -> bool:
        """Whether this rank records."""
        return self.ranks.is_main

    @property
    def writing_folder(self) -> Path:
        """Where the framework writes a checkpoint, in any subfolder, before `saved`."""
        return Path(WRITING)

    @property
    def is_at_target(self) -> bool:
        """Whether all steps are done, and no phase was missed that the supervisor acts on."""
        return self.step >= self._early.target and self._missed is None

    @property
    def is_over(self) -> bool:
        """Whether it is at the step that it was stopped at early: no further one is taken."""
        return self.step >= self._early.target < self.config.steps

    def choose_checkpoint(self) -> Path | None:
        """The folder of the newest checkpoint that verifies, or None; called before `begin`.

        Raises:
            ConfigError: the checkpoint asked for is missing or damaged.
        """
        self.restored_metrics = self.checkpoints.choose()
        self.step = self.checkpoints.resumed_step or 0
        self._early.begin(self.step, self.restored_metrics, by_user=self.config.attempt.is_by_user)
        return self.checkpoints.resumed

    def begin(self, parameters: int) -> None:
        """Records the start, once the model exists; `parameters` counts the trained ones."""
        flops_per_token = float(self.config.derived.flops_per_token or 6 * parameters)
        peak = self._hardware.peak_flops
        peak = None if peak is None else peak * self.world_size
        cost = Cost(self.curriculum, flops_per_token, peak)
        self._step_values = StepValues(self.curriculum, self.objective, self.clock, cost)
        record_start(
            self._emit,
            self._say,
            self.config,
            self._hardware,
            resumed_step=self.checkpoints.resumed_step,
            skipped=self.checkpoints.skipped,
            parameters=parameters,
            world_size=self.world_size,
            peak_flops=peak,
        )
        if self.checkpoints.resumed_step is not None:
            self._say(f"resuming from step {self.step} of {self.config.steps}")
        self._missed = self._phases.begin(
            self.step, self.restored_metrics, by_user=self.config.attempt.is_by_user
        )
        if self._missed is not None:
            raise PhaseMissedError(self._missed)
        if self.is_over:
            self._early.report()
        self.clock.resume()

    def time_forward(self, model: torch.nn.Module) -> None:
        """Compares the ranks' paces by the forward passes of this model, before it is wrapped; not
        where these wait for other ranks, or are compiled."""
        compute = self.config.compute
        if self.world_size > 1 and compute.strategy == "ddp" and not compute.compile:
            self._rank_paces.time(model, is_cuda=self._hardware.is_cuda)

    def seed_of_rank(self, saved_ranks: int) -> int:
        """The seed of this rank's random numbers, where the checkpoint has those of `saved_ranks`
        and not of as many as there are now; recorded, since dropout and sampling then differ."""
        reason = f"saved by {saved_ranks} ranks, resumed by {self.world_size}"
        self._emit("decision", what="new_random_numbers", value=self.step, reason=reason)
        self._say(f"random numbers begin again from the seed: {reason}")
        return random_state.seed_of_rank(self.config.seed, self.step, self.rank)

    def guard(self, loss: float, grad_norm: float | None) -> None:
        """Stops a non-finite step; called before the optimizer's step.

        Raises:
            NonFiniteError: one of them is not finite; recorded as the attempt's last metrics.
        """
        try:
            nan_guard.check(self.step + 1, loss, grad_norm)
        except nan_guard.NonFiniteError as error:
            self._emit("metric", step=error.step, values=error.values)
            self._warn_of(error, error.values)
            raise

    def end_step(self, step: int, values: Mapping[str, float]) -> None:
        """Counts a finished step and records its `loss`, `lr`, `grad_norm` and other values.

        Raises:
            RangeTestOverError: it is the last one of a range test.
        """
        assert self._step_values is not None, "call begin first"
        self.step = step
        recorded = self._step_values.end_step(step, values, self.config.optimizer.max_norm)
        self._emit("metric", step=step, values=recorded)
        self._metrics.add_step(step, recorded)
        self.average.update(step)
        self._range_test.take(step, recorded["loss"])
        if self._thread_waiting is not None:
            self._thread_waiting.step_ended(time.monotonic())
        if self._profiler is not None:
            self._profiler.step_ended(step)

    def record_values(self, values: Mapping[str, float]) -> None:
        """Records further values of the current step, such as a summary at the end."""
        self._emit("metric", step=self.step, values=dict(values))

    def end_evaluation(self, values: Mapping[str, float], seconds: float, batches: int) -> None:
        """Records an evaluation after the current step: `val_loss`, `val_loss/<source>`, others.

        Raises:
            NonFiniteError: `val_loss` is not finite.
        """
        recorded = dict(values)
        loss = recorded.get("val_loss")
        if loss is not None and self.config.method in _PER_TOKEN:
            recorded.setdefault("val_perplexity", perplexity(loss))
        self._emit("eval", step=self.step, values=recorded, batches=batches, seconds=seconds)
        self._metrics.add_evaluation(self.step, recorded)
        self._phases.evaluated(self.step, recorded)
        self._stop_early_if_due(recorded)
        if loss is not None:
            try:
                nan_guard.check(self.step, loss)
            except nan_guard.NonFiniteError as error:
                self._warn_of(error, recorded)
                raise
        self.clock.resume()

    def evaluation_is_due(self) -> bool:
        """True after every `eval.every_steps` steps, at the end of a phase and of the run."""
        return self._phases.evaluation_is_due(self.step)

    def start_evaluation_is_due(self) -> bool:
        """True before the first step of a phase that is compared with its start."""
        return self._phases.needs_start_value(self.step)

    @property
    def is_at_border(self) -> bool:
        """Whether a phase ends with the current step."""
        return self._phases.is_border(self.step)

    def ends_phase(self, drawn: Sequence[int] = ()) -> bool:
        """Ends the phase whose last step was evaluated and saved; True where the supervisor is to
        act, so that the loop has to be left. Every rank has to call it after a save. `drawn`: how
        many sequences of each source its mix has drawn, where that is known."""
        if self.is_at_border and self.step != self.checkpoints.resumed_step:
            self._missed = self._phases.end(self.step, drawn)
        return self._missed is not None

    def sample_if_due(
        self, model: torch.nn.Module, text_model: Callable[[SamplesConfig], TextModel]
    ) -> None:
        """Records texts after every `eval.samples.every` steps and after the last one; every rank
        has to call it, so that none is slower."""
        if sample_if_due(self.config, self.step, model, text_model, self._emit):
            self.clock.resume()

    def due(self) -> Due:
        """The actions due after the current step; every rank has to call it and gets the same."""
        save = self.checkpoints.is_due(self.step)
        flags, own = (save, bool(self._stop)), self._rank_paces.own_s()
        (save, stop), times = self.ranks.share(*flags, own=own, device=self._hardware.device)
        if all(times) and self.world_size > 1:
            self._rank_paces.add(self.step, times)
        last = self.step >= self._early.target
        self._saves_last = stop or last
        already = self.step == self.checkpoints.resumed_step
        save = save or stop or last or self._early.is_best(self.step)
        return Due(save=save and not already, stop=stop and not last)

    @property
    def is_evaluation_saved(self) -> bool:
        """Whether the evaluation of now ends the training early, or is the best so far."""
        return self.is_over or self._early.is_best(self.step)

    def on_any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; every rank has to call it."""
        return self.ranks.any_of(flag, device=self._hardware.device)[0]

    def try_write(self, write: Callable[[], object], written: Path) -> bool:
        """Lets the framework write the current step's checkpoint, which every rank has to call; as
        `FrameworkCheckpoints.try_write`."""
        return self.checkpoints.try_write(self.step, written, write, self.on_any_rank)

    def saved(self, written: Path, stall_s: float, own: Mapping[str, float] | None = None) -> None:
        """Seals the current step's checkpoint, as `FrameworkCheckpoints.seal`; every rank has to
        call it once all of them have finished writing. `own`: what it records besides, which
        `restored_metrics` then has."""
        metrics = self._metrics.at(self.step) | self._phases.checkpoint_metrics
        metrics |= self._early.checkpoint_metrics | dict(own or {})
        self.checkpoints.seal(self.step, written, metrics, stall_s, is_last=self._saves_last)

    def stopped(self) -> None:
        """Records that the loop was left because `due` said so, with the state saved."""
        self._stopped = True

    def completed(self, final: Path) -> None:
        """Completes the run: waits for the last checkpoint, then seals `final` as ./final.

        The last call of every rank: it destroys their process groups.

        Raises:
            NotSavedError: a checkpoint can't be written, or the target was not reached.
        """
        if self.step < self._early.target:
            raise NotSavedError(f"the loop ended at step {self.step} of {self.config.steps}")
        self.ranks.leave()
        self.checkpoints.require_saved(self.step)
        self.checkpoints.export(self.step, final, self._metrics.at(self.step))
        self._emit("completed", step=self.step, final=FINAL.name)
        self._completed = True

    def end_range_test(self) -> None:
        """Completes the run before its last step and without a model, on every rank."""
        self.ranks.leave()
        self._emit("completed", step=self.step)

    def check_end(self) -> None:
        """Checks how the loop ended.

        Raises:
            StopRequestedError: on a signal, and the state was saved.
            PhaseMissedError: a phase was missed, and the state was saved.
            NotSavedError: neither stopped nor completed, though the framework returned.
        """
        if self._stopped or self._missed is not None:
            self.ranks.leave()
            self.checkpoints.require_saved(self.step)
            if self._missed is not None:
                raise PhaseMissedError(self._missed)
            raise StopRequestedError(f"{self._stop.name or 'signal'}: saved at step {self.step}")
        if not self._completed:
            raise NotSavedError(f"the loop ended at step {self.step} of {self.config.steps}")

    def close(self) -> None:
        """Waits for a save in flight and closes the event log."""
        self.checkpoints.close()
        if self._profiler is not None:
            self._profiler.close()
        if self._events is not None:
            shutil.rmtree(self.writing_folder, ignore_errors=True)
            self._events.close()

    def _stop_early_if_due(self, values: Mapping[str, float]) -> None:
        """Every rank decides the same, whatever the last bits of its own values are."""
        if self.config.evaluation.early_stopping is None:
            return
        if self.on_any_rank(self._early.evaluated(self.step, values)):
            self._early.end_at(self.step)
            self._saves_last = True

    def _warn_of(self, error: nan_guard.NonFiniteError, values: Mapping[str, float]) -> None:
        message = str(error)
        self._emit("warning", code=error.code, step=error.step, message=message, values=values)

    def _emit(self, kind: str, **fields: Any) -> None:
        if self._events is not None:
            self._events.emit(kind, **fields)

    def _say(self, line: str) -> None:
        if self.is_main:
            print(line, flush=True)
