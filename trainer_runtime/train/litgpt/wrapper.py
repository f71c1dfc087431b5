"""LitGPT's own commands under a run's promises: events, guard, checkpoints, signals, schedules.

The commands stay as they are. A table of seams in their modules names what is put in place of what,
and why; a seam that is missing ends the attempt, so the version of LitGPT is pinned.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from trainer_runtime.core.frameworks import litgpt as written
from trainer_runtime.train.attempt.averaging import use_evaluated_weights
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.litgpt import models
from trainer_runtime.train.litgpt.transformers_folder import write_for_transformers
from trainer_runtime.train.loop.framework_run import FrameworkRun

FINAL = Path(written.OUT_FOLDER, "final")
_MODULES = {
    written.PRETRAIN: "litgpt.pretrain",
    written.FINETUNE: "litgpt.finetune.full",
    written.FINETUNE_LORA: "litgpt.finetune.lora",
}
_FINETUNING = (written.FINETUNE, written.FINETUNE_LORA)
_EVERY = (written.PRETRAIN, *_FINETUNING)


@contextlib.contextmanager
def kept_promises(attempt: FrameworkRun) -> Iterator[None]:
    """For the time in which LitGPT's command runs; then records the end that it came to.

    Raises:
        ConfigError: another LitGPT, a model that it can't train, or values that it refuses.
        NotSavedError: the command ended early, or its final model can't be kept.
    """
    config = attempt.config
    _refuse(config)
    models.provide(config)

    from trainer_runtime.train.litgpt.loop import Loop, LoopLeftError

    loop = Loop(attempt)
    if attempt.is_main:
        shutil.rmtree(FINAL, ignore_errors=True)
    command = written.command(config)
    try:
        with _patched(command, loop):
            yield
        if attempt.is_main:
            _keep_weights_only(FINAL)
            write_for_transformers(FINAL, config)
        attempt.completed(FINAL)
    except LoopLeftError:
        pass
    except SystemExit as error:
        raise ConfigError(f"litgpt {command} refused {written.FILE}; see above") from error
    # Not after an error of this rank's: the others may wait for it in vain.
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@dataclass(frozen=True, slots=True)
class Seam:
    """A name in the module of LitGPT's `commands` that is replaced for a run.

    `put` makes the replacement from the module and the run's loop.
    """

    name: str
    commands: tuple[str, ...]
    put: Callable[[ModuleType, Any], Any]
    reason: str


def _fabric(module: ModuleType, loop: Any) -> SimpleNamespace:
    from trainer_runtime.train.litgpt.fabric import RunFabric

    return SimpleNamespace(Fabric=partial(RunFabric, loop))


def _config(module: ModuleType, loop: Any) -> Any:
    start = written.start_folder(loop.attempt.config)
    if start is None:
        return module.Config
    original, sizes = module.Config, Path(start, "model_config.yaml")
    return SimpleNamespace(from_name=lambda name: original.from_file(sizes))


def _get_dataloaders(module: ModuleType, loop: Any) -> Callable[..., Any]:
    original = module.get_dataloaders

    def get_dataloaders(fabric: Any, data: Any, *rest: Any) -> Any:
        loop.serve(data, fabric)
        return original(fabric, data, *rest)

    return get_dataloaders


def _fit_with_state(module: ModuleType, loop: Any) -> Callable[..., Any]:
    original = module.fit

    def fit(*, fabric: Any, state: dict[str, Any], **options: Any) -> Any:
        _begin(module, loop, fabric, state, options)
        if not loop.attempt.curriculum.is_uniform:
            options["train"] = _SteppedArguments(options["train"], loop)
        result = original(fabric=fabric, state=state, **options)
        loop.between_steps()
        use_evaluated_weights(state["optimizer"])
        return result

    return fit


class _SteppedArguments:
    """LitGPT's `TrainArgs` with the accumulation of the step that is taken."""

    def __init__(self, train: Any, loop: Any) -> None:
        self._train, self._loop = train, loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._train, name)

    def gradient_accumulation_iters(self, *_: Any) -> int:
        accumulation: int = self._loop.accumulation
        return accumulation


def _fit_lora(module: ModuleType, loop: Any) -> Callable[..., Any]:
    original = module.fit

    def fit(*, fabric: Any, model: Any, optimizer: Any, train: Any, **options: Any) -> Any:
        train = replace(train, max_steps=train.max_steps - loop.attempt.step)
        state = {"model": model, "optimizer": optimizer}
        _begin(module, loop, fabric, state, {**options, "train": train})
        loop.uncount_steps()
        result = original(fabric=fabric, model=model, optimizer=optimizer, train=train, **options)
        loop.between_steps()
        use_evaluated_weights(optimizer)
        return result

    return fit


def _validate(module: ModuleType, loop: Any) -> Callable[..., Any]:
    def validate(fabric: Any, model: Any, val_dataloader: Any, *rest: Any, **named: Any) -> Any:
        return loop.evaluate_if_due()

    return validate


def _get_lr(module: ModuleType, loop: Any) -> Callable[..., float]:
    return lambda learning_rate, it, warmup_iters, max_iters, min_lr: loop.learning_rate()


def _get_lr_scheduler(module: ModuleType, loop: Any) -> Callable[..., Any]:
    def get_lr_scheduler(optimizer: Any, warmup_steps: int, max_steps: int) -> Any:
        rate = loop.attempt.config.optimizer.lr
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: loop.learning_rate() / rate)

    return get_lr_scheduler


def _instantiate_optimizer(module: ModuleType, loop: Any) -> Callable[..., Any]:
    return lambda optimizer, parameters, **options: loop.make_optimizer()


def _save_final(module: ModuleType, loop: Any) -> Callable[..., None]:
    from trainer_runtime.train.litgpt.state import temporary_files_in

    original = module.save_checkpoint

    def save_checkpoint(fabric: Any, state: dict[str, Any], *rest: Any) -> None:
        with temporary_files_in(Path(written.OUT_FOLDER).resolve()):
            original(fabric, {"model": state["model"]}, *rest)

    return save_checkpoint


def _save_hyperparameters(module: ModuleType, loop: Any) -> Callable[..., None]:
    def save_hyperparameters(function: Any, checkpoint_dir: Path, *rest: Any) -> None:
        shutil.copy(loop.attempt.folder / written.FILE, checkpoint_dir / "hyperparameters.yaml")

    return save_hyperparameters


def _cross_entropy(module: ModuleType, loop: Any) -> Callable[..., Any]:
    original, objective = module.chunked_cross_entropy, loop.attempt.objective

    def chunked_cross_entropy(logits: Any, targets: Any, chunk_size: int = 128) -> Any:
        if objective.is_plain or chunk_size == 0:  # of an estimate of the work, without values
            return original(logits, targets, chunk_size)
        whole = torch.cat(logits, dim=1) if isinstance(logits, list) else logits
        return objective(whole.float().flatten(0, 1), targets.flatten())

    return chunked_cross_entropy


def _nothing(module: ModuleType, loop: Any) -> Callable[..., None]:
    return lambda *rest, **named: None


SEAMS = (
    Seam(
        "L", _EVERY, _fabric, "The device, precision and strategy of the configuration; the guard."
    ),
    Seam(
        "Config",
        (written.PRETRAIN,),
        _config,
        "A model to continue from brings its own sizes; LitGPT only knows those of its list.",
    ),
    Seam(
        "get_dataloaders",
        _EVERY,
        _get_dataloaders,
        "The data continues from the checkpoint's position, and each rank reads its share.",
    ),
    Seam(
        "fit",
        (written.PRETRAIN, written.FINETUNE),
        _fit_with_state,
        "Resumes with random numbers and data position, from a checkpoint that was verified.",
    ),
    Seam("fit", (written.FINETUNE_LORA,), _fit_lora, "The same; LitGPT can't resume LoRA at all."),
    Seam(
        "validate",
        _EVERY,
        _validate,
        "LitGPT's held-out batches are shuffled, so its losses can't be compared.",
    ),
    Seam("get_lr", (written.PRETRAIN,), _get_lr, "Every schedule of the spec; LitGPT has cosine."),
    Seam("get_lr_scheduler", _FINETUNING, _get_lr_scheduler, "The same, also when resumed."),
    Seam(
        "instantiate_torch_optimizer",
        _EVERY,
        _instantiate_optimizer,
        "Each optimizer of the spec, in groups by names; LitGPT has parameters without names.",
    ),
    Seam(
        "chunked_cross_entropy",
        _EVERY,
        _cross_entropy,
        "z-loss, label smoothing and focal loss, which LitGPT has not.",
    ),
    Seam(
        "save_checkpoint",
        (written.PRETRAIN,),
        _save_final,
        "It saves the final model alone, which needs no optimizer.",
    ),
    Seam(
        "save_hyperparameters",
        _EVERY,
        _save_hyperparameters,
        "LitGPT's parses the command line again, which ends a program that isn't its own.",
    ),
    Seam(
        "generate_example",
        _FINETUNING,
        _nothing,
        "It draws from the training's random numbers, and leaves a model that has no room for the "
        "prompt in evaluation mode.",
    ),
)


@contextlib.contextmanager
def _patched(command: str, loop: Any) -> Iterator[None]:
    module = import_module(_MODULES[command])
    seams = [seam for seam in SEAMS if command in seam.commands]
    missing = [seam.name for seam in seams if not hasattr(module, seam.name)]
    if missing:
        raise ConfigError(
            f"{module.__name__} has no {', '.join(missing)}: it is not litgpt {written.VERSION}"
        )
    originals = {seam.name: getattr(module, seam.name) for seam in seams}
    for seam in seams:
        setattr(module, seam.name, seam.put(module, loop))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(module, name, original)


def _begin(
    module: ModuleType, loop: Any, fabric: Any, state: dict[str, Any], options: dict[str, Any]
) -> None:
    from litgpt.utils import num_parameters

    from trainer_runtime.train.litgpt.state import Trained

    config = loop.attempt.config
    trained = Trained(
        fabric,
        state["model"],
        state["optimizer"],
        state,
        config.batch.accumulation,
        written.command(config) == written.FINETUNE_LORA,
        partial(_describe, module, state["model"], options),
    )
    count = num_parameters(state["model"], requires_grad=True)
    loop.begin(trained, count, options["train"])


def _describe(module: ModuleType, model: Any, options: dict[str, Any], folder: Path) -> None:
    """Writes the files that `litgpt generate` and others expect next to weights, as LitGPT does."""
    source = options.get("checkpoint_dir") or options.get("tokenizer_dir")
    if source is not None:
        module.copy_config_files(source, folder)
    if "data" in options:
        module.save_prompt_style(options["data"].prompt_style, folder)
    else:
        module.save_config(model.config, folder)
    module.save_hyperparameters(module.setup, folder)


def _keep_weights_only(final: Path) -> None:
    """Makes the final model one that every command of LitGPT can start from.

    It saves `{"model": …}`; continued pretraining and merging take the weights alone, which the
    others take as well (`litgpt convert_pretrained_checkpoint` does the same).
    """
    path = final / "lit_model.pth"
    saved = torch.load(path, mmap=True, weights_only=True)
    if "model" in saved:
        plain = path.with_suffix(".plain")
        torch.save(saved["model"], plain)
        plain.replace(path)


def _refuse(config: RunConfig) -> None:
    try:
        version = metadata.version("litgpt")
    except metadata.PackageNotFoundError:
        version = "none"
    if version != written.VERSION:
        raise ConfigError(f"litgpt {written.VERSION} is needed here, there is {version}")
    if config.model.dropout:
        raise ConfigError("LitGPT's models have no dropout; set model.dropout to 0")
    if config.method == "sft" and written.start_folder(config) is None:
        raise ConfigError("method sft finetunes a model: give model.path or model.hub")
    if config.data.is_streamed:
        raise ConfigError("LitGPT pretrains on token shards; leave out data.prepare: stream")
