"""A Python traceback as it is printed: its exceptions with type, message and frames.

`phase_of` reads off the frames what the program was doing: the same message means different
things while base weights load, a worker starts or a checkpoint is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from trainer_runtime.core.diagnosis.line_prefix import BlockPrefix

_MOST_LINES = 400
BEGIN = "Traceback (most recent call last):"
_BEGIN = re.compile(r"(?:^|[\s|+])" + re.escape(BEGIN) + r"?\s*$")  # IPython: no colon
_FRAME = re.compile(r'^[\s|]+File "([^"]{1,400})", line (\d{1,7})(?:, in (\S{1,200}))?')
_NOTEBOOK_FRAME = re.compile(
    r"^(?:File )?(\S{1,400}?\.py|<ipython-input-[\w-]+>)(?::(\d{1,7}))?,? in (\w{1,200})"
    r"|^(?:Cell |Input )In ?\[\d{1,6}\], (?:line (\d{1,7})|in )"
)
_RAISED = re.compile(r"^(?:[\s|]*\| )?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*)|:?\s*)$")
_PACKAGE = re.compile(r"(?:site|dist)-packages/([\w.-]+?)(?:/|\.py$)")
_STANDARD = re.compile(r"/lib/python3\.\d+/|^<frozen ")
# After another exception, which these lines separate from it.
BETWEEN = re.compile(
    r"During handling of the above exception|The above exception was the direct cause"
)


class Phase(str, Enum):
    """What a training program was doing."""

    IMPORTS = "imports"
    ARGUMENTS = "arguments"
    WEIGHTS = "loading base weights"
    CHECKPOINT = "loading a checkpoint"
    TOKENIZING = "tokenizing"
    DATA = "reading data"
    WORKER_START = "starting workers"
    COLLATING = "making batches"
    FORWARD = "forward pass"
    BACKWARD = "backward pass"
    OPTIMIZER = "optimizer step"
    COLLECTIVE = "communication between ranks"
    EVALUATION = "evaluation"
    SAVING = "saving"
    PUSHING = "uploading"
    SERVING = "serving"
    REWARD = "scoring answers by a reward function"


@dataclass(frozen=True, slots=True)
class Frame:
    """A place of the program. `library`: the package that it belongs to, empty for the user's own
    code and `python` for the standard library."""

    file: str
    line: int
    function: str

    @property
    def library(self) -> str:
        package = _PACKAGE.search(self.file)
        if package:
            return package[1]
        return "python" if _STANDARD.search(self.file) else ""


@dataclass(frozen=True, slots=True)
class RaisedError:
    """An exception: its full type, its message (first line), its frames from the outermost on."""

    type: str
    message: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Traceback:
    """What one traceback says; `errors` are in the order in which they were raised."""

    errors: tuple[RaisedError, ...]

    @property
    def first(self) -> RaisedError:
        """The error that led to the others."""
        return self.errors[0]

    @property
    def last(self) -> RaisedError:
        """The error that ended the program."""
        return self.errors[-1]

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of the user's own code."""
        own = [frame for error in self.errors for frame in error.frames if not frame.library]
        return own[-1] if own else None

    @property
    def phase(self) -> Phase | None:
        """What the program was doing, None where no frame says so."""
        return phase_of(frame for error in self.errors for frame in error.frames)


def last_traceback(text: str) -> Traceback | None:
    """The last traceback in a text, with those that it is chained to; None without a whole one."""
    errors: list[RaisedError] = []
    frames: list[Frame] = []
    is_inside = is_chained = is_message = False
    prefix = BlockPrefix()
    for raw in text.splitlines()[-_MOST_LINES:]:
        line = prefix.removed(raw)
        if _BEGIN.search(line):
            errors = errors if is_chained else []
            frames, is_inside, is_chained = [], True, False
        elif BETWEEN.search(line):
            is_chained = True
        elif is_message and (frame := _frame(line)):  # an error of another process, as Ray shows
            frames, is_inside, is_message = [frame], True, False
        elif is_inside and (frame := _frame(line)):
            frames.append(frame)
        elif is_inside and frames and (raised := _RAISED.match(line)):
            errors.append(RaisedError(raised[1], (raised[2] or "").strip(), tuple(frames)))
            is_inside, is_message = False, True
        else:
            is_message = is_message and line[:1].isspace()
    return Traceback(tuple(errors)) if errors else None


def _frame(line: str) -> Frame | None:
    match = _FRAME.match(line)
    if match:
        return Frame(match[1], int(match[2]), match[3] or "<module>")
    match = _NOTEBOOK_FRAME.match(line)
    if match is None:
        return None
    return Frame(match[1] or "notebook", int(match[2] or match[4] or 0), match[3] or "<module>")


# The first whose expression a frame (`file:function`) matches; the most specific come first.
_PHASES: tuple[tuple[Phase, re.Pattern[str]], ...] = tuple(
    (phase, re.compile(expression))
    for phase, expression in (
        (Phase.PUSHING, r":(?:_?push_to_hub|upload_\w+|create_repo|create_commit|preupload\w*)$"),
        (
            Phase.SAVING,
            r":(?:_?save\w*|write_checkpoint\w*|_maybe_log_save_evaluate_save)$"
            r"|serialization\.py:(?:save|_save)$|dist_cp\w*:save|state_dict_saver\.py",
        ),
        (Phase.REWARD, r":_?(?:calculate|compute)_rewards?$|/reward_manager/|:compute_score$"),
        (Phase.SERVING, r"/(?:vllm|sglang|lmdeploy|text_generation_server)/"),
        (
            Phase.WORKER_START,
            r"multiprocessing/(?:popen_\w+|reduction|spawn|context)\.py:"
            r"|utils/data/dataloader\.py:__init__$|torch/multiprocessing/spawn\.py:start_processes",
        ),
        (Phase.COLLATING, r"(?:collat\w+|data/_utils/\w+\.py):|:(?:collate_fn|_collate_batch)$"),
        (Phase.EVALUATION, r":(?:evaluate|evaluation_loop|prediction_step|predict|validate)$"),
        (
            Phase.CHECKPOINT,
            r":(?:_?load_(?:from_)?checkpoint\w*|_load_optimizer_and_scheduler|load_state"
            r"|_load_rng_state|resume\w*|load_optimizer\w*|_load_zero_checkpoint)$"
            r"|state_dict_loader\.py:",
        ),
        (
            Phase.TOKENIZING,
            r"/tokeniz\w+[\w/.]*\.py:|tokenization_\w+\.py:|:tokenize\w*$|/sentencepiece/",
        ),
        (
            Phase.WEIGHTS,
            r":(?:from_pretrained|_load_pretrained_model|load_state_dict|_load_state_dict\w*"
            r"|load_sharded_checkpoint|get_checkpoint_shard_files|from_config)$|/safetensors/",
        ),
        (
            Phase.ARGUMENTS,
            r"(?:argparse|hf_argparser|click/core|typer/\w+|hydra/\w+|_internal/utils|jsonargparse"
            r"/\w+|training_args\w*|omegaconf/\w+|absl/flags/\w+|fire/core)\.py:",
        ),
        (Phase.DATA, r"/datasets/\w+\.py:|/pyarrow/|:(?:load_dataset|__getitem__|__iter__)$"),
        (Phase.OPTIMIZER, r"torch/optim/\w+\.py:|/amp/grad_scaler\.py:|:(?:clip_grad_norm_\w*)$"),
        (Phase.BACKWARD, r":backward$|autograd/(?:graph|__init__|function)\.py:"),
        (
            Phase.COLLECTIVE,
            r"torch/distributed/(?:distributed_c10d|rendezvous|c10d_logger)\.py:"
            r"|deepspeed/comm/\w+\.py:|:(?:all_reduce|all_gather\w*|barrier|broadcast\w*)$",
        ),
        (Phase.FORWARD, r":(?:forward|compute_loss|training_step|_call_impl)$"),
        (Phase.IMPORTS, r"^<frozen importlib|importlib/\w+\.py:|/import_utils\.py:"),
    )
)


def phase_of(frames: Iterable[Frame]) -> Phase | None:
    """What the frames say that the program was doing; imports where all are of modules."""
    places = [f"{frame.file}:{frame.function}" for frame in frames]
    for phase, expression in _PHASES:
        if any(expression.search(place) for place in places):
            return phase
    is_import = len(places) > 1 and all(place.endswith(":<module>") for place in places)
    return Phase.IMPORTS if is_import else None
