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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer_runtime.core.config import SamplesConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.frameworks.framework import WRITING
from trainer_runtime.train.attempt import nan_guard
from trainer_runtime.train.attempt.config import (
    ModelConfig,
    RunConfig,
    read_run_config,
    refuse_another_script,
    sizes_of,
)
from trainer_runtime.train.attempt.device import Device, peak_memory
from trainer_runtime.train.attempt.events import events_of
from trainer_runtime.train.attempt.exit_codes import (
    NotSavedError,
    PhaseMissedError,
    StopRequestedError,
    ending,
)
from trainer_runtime.train.attempt.objective import Objective
from trainer_runtime.train.checkpoints import gathering, random_state, restore
from trainer_runtime.train.checkpoints.checkpoint_store import (
    checkpoint_name,
    saved_metrics,
)
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS, FINAL
from trainer_runtime.train.checkpoints.framework_checkpointer import FrameworkCheckpointer
from trainer_runtime.train.distributed import ranks
from trainer_runtime.train.loop import startup
from trainer_runtime.train.loop.averaged_weights import AveragedWeights
from trainer_runtime.train.loop.checkpoint_metrics import CheckpointMetrics
from trainer_runtime.train.loop.drawing import TextModel
from trainer_runtime.train.loop.early_stopping import EarlyStopping
from trainer_runtime.train.loop.phase_borders import PhaseBorders
from trainer_runtime.train.loop.range_test import RangeTest, ran_whole
from trainer_runtime.train.loop.rank_paces import ForwardTime, RankPaces
from trainer_runtime.train.loop.recorded_samples import sample_if_due
from trainer_runtime.train.loop.report import perplexity
from trainer_runtime.train.loop.signals import StopSignal
from trainer_runtime.train.loop.speed import Cost, StepClock
from trainer_runtime.train.loop.started import record_start
from trainer_runtime.train.loop.step_profiler import StepProfiler
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
        # Set by `choose_checkpoint`; only rank 0 has a checkpointer.
        self._resumed_step: int | None = None
        self._skipped: list[restore.Skipped] = []
        self._checkpointer: FrameworkCheckpointer | None = None
        # Set by `begin`, which knows the number of parameters.
        self._cost: Cost | None = None
        # Set by `choose_checkpoint`.
        self.gathering: gathering.Gathering
        self._saves_last = False
        self._stopped = self._completed = False
        self._tokens: float | None = None
        self._forward_time: ForwardTime | None = None
        self._rank_paces = RankPaces(self._emit)
        self._thread_waiting = None if self._hardware.is_cuda else ThreadWaiting()
        self.clock = StepClock()
        self._profiler = (
            StepProfiler(self.config, self.folder, self.clock, self._emit) if self.is_main else None
        )
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

    def model_sizes(self) -> ModelConfig:
        """The sizes of a model with new weights.

        Raises:
            ConfigError: one is missing, or they don't go together.
        """
        return sizes_of(self.config)

    def choose_checkpoint(self) -> Path | None:
        """The folder of the newest checkpoint that verifies, or None; called before `begin`.

        Rank 0 reads every byte and broadcasts its choice.

        Raises:
            ConfigError: the checkpoint asked for is missing or damaged.
        """
        step, skipped, self._saved = self.ranks.broadcast("resume", self._chosen)
        self._skipped = [restore.Skipped(*entry) for entry in skipped]
        self._resumed_step = step
        self.step = step or 0
        self._early.begin(self.step, self._saved, by_user=self.config.attempt.is_by_user)
        self.gathering = gathering.Gathering(self.ranks, self.config)
        return self.resumed_checkpoint

    @property
    def resumed_checkpoint(self) -> Path | None:
        """The folder of the checkpoint that the attempt begins with, once it is chosen."""
        step = self._resumed_step
        return None if step is None else CHECKPOINTS / checkpoint_name(step)

    def begin(self, parameters: int) -> None:
        """Records the start, once the model exists; `parameters` counts the trained ones."""
        assert self._checkpointer is not None or not self.is_main, "call choose_checkpoint first"
        self._cost = Cost(
            curriculum=self.curriculum,
            flops_per_token=float(self.config.derived.flops_per_token or 6 * parameters),
            peak_flops=self._peak_flops(),
        )
        record_start(
            self._emit,
            self._say,
            self.config,
            self._hardware,
            resumed_step=self._resumed_step,
            skipped=self._skipped,
            parameters=parameters,
            world_size=self.world_size,
            peak_flops=self._cost.peak_flops,
        )
        if self._resumed_step is not None:
            self._say(f"resuming from step {self.step} of {self.config.steps}")
        self._missed = self._phases.begin(
            self.step, self._saved, by_user=self.config.attempt.is_by_user
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
            self._forward_time = ForwardTime(model, is_cuda=self._hardware.is_cuda)

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
        step = self.step + 1
        try:
            nan_guard.check(step, loss, grad_norm)
        except nan_guard.NonFiniteError as error:
            values = {"loss": loss} | ({} if grad_norm is None else {"grad_norm": grad_norm})
            self._emit("metric", step=step, values=values)
            self._emit("warning", code=error.code, step=step, message=str(error), values=values)
            raise

    def end_step(self, step: int, values: Mapping[str, float]) -> None:
        """Counts a finished step and records its `loss`, `lr`, `grad_norm` and other values.

        Raises:
            RangeTestOverError: it is the last one of a range test.
        """
        assert self._cost is not None, "call begin first"
        self.step = step
        step_time_s, data_time_s = self.clock.step_ended()
        recorded = {**values, **{name: of.item() for name, of in self.objective.take().items()}}
        clip, norm = self.config.optimizer.max_norm, recorded.get("grad_norm")
        if norm is not None:
            recorded["clip_fraction"] = float(0.0 < clip < norm)
        recorded.setdefault("tokens", self.curriculum.tokens_before(step))
        recorded |= self._cost.speed(
            step_time_s, data_time_s, self._tokens_of_step(recorded["tokens"])
        )
        recorded |= peak_memory()
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
                message = str(error)
                self._emit(
                    "warning", code=error.code, step=self.step, message=message, values=recorded
                )
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

    def ends_phase(self, mix: Mapping[str, Any] | None = None) -> bool:
        """Ends the phase whose last step was evaluated and saved; True where the supervisor is to
        act, so that the loop has to be left. Every rank has to call it after a save. `mix`: that of
        `TrainingData`, where it is known."""
        if self.is_at_border and self.step != self._resumed_step:
            self._missed = self._phases.end(self.step, mix["of_mix"] if mix else ())
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
        save = self._checkpointer is not None and self._checkpointer.is_due(
            self.step, self.clock.last_step_time_s
        )
        own = 0.0 if self._forward_time is None else self._forward_time.take()
        flags = save, bool(self._stop)
        (save, stop), times = self.ranks.share(*flags, own=own, device=self._hardware.device)
        if all(times) and self.world_size > 1:
            self._rank_paces.add(self.step, times)
        last = self.step >= self._early.target
        self._saves_last = stop or last
        already = self.step == self._resumed_step
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
        """Lets the framework write a checkpoint to `written`; whether all ranks succeeded.

        Every rank has to call it. A full disk costs only this checkpoint, and is reported; it ends
        the attempt only where ranks wait for each other while they write.
        """
        if not gathering.is_written_alone(self.config):
            write()
            return True
        reason = gathering.failure_of(write)
        if not self.on_any_rank(reason is not None):
            return True
        if self._checkpointer is not None:
            reason = reason or "another rank could not write its part"
            self._checkpointer.discard(self.step, written, reason)
            self.clock.resume()
        return False

    def saved(self, written: Path, stall_s: float) -> None:
        """Seals what all ranks have written below `written` as the current step's checkpoint.

        Returns at once: a thread computes digests, verifies and prunes. `written` is moved. Every
        rank has to call it once all of them have finished writing; rank 0 acts. `stall_s` is how
        long the training has waited for it so far.
        """
        awaited = self.gathering.bring(written, self.step)
        if self._checkpointer is not None:
            metrics = self._metrics.at(self.step) | self._phases.checkpoint_metrics
            metrics |= self._early.checkpoint_metrics
            self._checkpointer.save(
                self.step, written, metrics, stall_s, awaited=awaited, is_last=self._saves_last
            )
            self.clock.resume()

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
        if self._checkpointer is not None:
            self._checkpointer.require_saved(self.step)
            self._checkpointer.export(self.step, final, self._metrics.at(self.step))
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
            if self._checkpointer is not None:
                self._checkpointer.require_saved(self.step)
            if self._missed is not None:
                raise PhaseMissedError(self._missed)
            raise StopRequestedError(f"{self._stop.name or 'signal'}: saved at step {self.step}")
        if not self._completed:
            raise NotSavedError(f"the loop ended at step {self.step} of {self.config.steps}")

    def close(self) -> None:
        """Waits for a save in flight and closes the event log."""
        if self._checkpointer is not None:
            self._checkpointer.close()
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

    def _tokens_of_step(self, tokens: float) -> float:
        """The tokens counted since the last step; for the first step the planned number."""
        tokens_before, self._tokens = self._tokens, tokens
        planned = self.curriculum.tokens(self.step)
        return planned if tokens_before is None else tokens - tokens_before

    def _chosen(self) -> tuple[int | None, list[tuple[int, str]], dict[str, float]]:
        step, skipped = restore.choose(CHECKPOINTS, self.config.attempt.resume)
        # Before any rank knows: it removes what no other rank may have begun to write.
        if self._events is not None:
            self._checkpointer = FrameworkCheckpointer(self.config, self._events, step)
        metrics = {} if step is None else dict(saved_metrics(CHECKPOINTS, step))
        return step, [(entry.step, entry.reason) for entry in skipped], metrics

    def _peak_flops(self) -> float | None:
        peak = self._hardware.peak_flops
        return None if peak is None else peak * self.world_size

    def _emit(self, kind: str, **fields: Any) -> None:
        if self._events is not None:
            self._events.emit(kind, **fields)

    def _say(self, line: str) -> None:
        if self.is_main:
            print(line, flush=True)
