"""The activity of a thread, recognised by the functions on its stack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from trainer_runtime.core.diagnosis.stacks.frames import Frame


class Place(str, Enum):
    """The activity of a thread."""

    COLLECTIVE = "collective"
    RENDEZVOUS = "rendezvous"
    DATA = "data"
    CHECKPOINT = "checkpoint"
    COMPILE = "compile"
    IMPORT = "import"
    DEVICE = "device"
    OTHER = "other"


# Places of ranks that wait, or may wait, for other ranks: a GPU's queue may hide a collective.
WAITING = frozenset({Place.COLLECTIVE, Place.RENDEZVOUS, Place.DEVICE})


@dataclass(frozen=True, slots=True)
class _Sign:
    place: Place
    file: str = ""
    function: str = ""


# The innermost frame that matches any of these decides; for one frame, the first match.
_SIGNS = (
    _Sign(Place.CHECKPOINT, r"/torch/distributed/checkpoint/(?!.*(utils|collectives)\.py)"),
    _Sign(
        Place.RENDEZVOUS,
        r"/torch/distributed/",
        r"init_process_group|_store_based_barrier|_create_c10d_store|rendezvous|.*_rendezvous.*|"
        r"_new_process_group_helper",
    ),
    _Sign(Place.RENDEZVOUS, r"/torch/distributed/(rendezvous|elastic/rendezvous/.*)\.py"),
    _Sign(
        Place.COLLECTIVE,
        r"/torch/distributed/(distributed_c10d|_functional_collectives|nn/functional|"
        r"collective_utils)\.py|/torch/nn/parallel/(comm|distributed)\.py|"
        r"/(deepspeed/comm|horovod)/|/megatron/core/(tensor_parallel/mappings|"
        r"pipeline_parallel/p2p_communication)\.py",
        r"(?!wrapper|get_rank|get_world_size|is_initialized|forward|_run_ddp_forward).*",
    ),
    _Sign(
        Place.CHECKPOINT,
        r"/torch/serialization\.py|/safetensors/|/trainer_runtime/train/checkpoints/(checkpoint|"
        r"checkpointer|folder|tensors)\.py|/transformers/trainer_pt_utils\.py",
        r"(?!.*load|start$|__init__$|first_step_done|is_due|allocate).*",
    ),
    _Sign(
        Place.CHECKPOINT,
        "",
        r"_?(save|write|dump|async_save)_(checkpoint|model|state|pretrained|optimizer\w*|weights)",
    ),
    _Sign(
        Place.DATA,
        r"/torch/utils/data/|/trainer_runtime/train/data/batches\.py|/multiprocessing/pool",
    ),
    _Sign(
        Place.DATA,
        r"-packages/(datasets|litdata|webdataset|streaming|pyarrow|tfrecord|ffcv|nvidia/dali|grain)/",
    ),
    _Sign(
        Place.DATA,
        "",
        r"__getitem__|get_batch|next_batch|_?next_data|load_batch|collate(_fn)?|read_shard|"
        r"_load_data_shard",
    ),
    _Sign(Place.COMPILE, r"/torch/(_dynamo|_inductor|_functorch/aot_autograd)|/triton/compiler/"),
    _Sign(Place.DEVICE, r"/torch/cuda/(__init__|streams|graphs)\.py", r"synchronize|wait|query"),
    _Sign(Place.DEVICE, r"/torch/autograd/graph\.py", r"_engine_run_backward"),
    _Sign(Place.IMPORT, r"<frozen importlib\._bootstrap.*>"),
)
_COMPILED = tuple((sign.place, re.compile(sign.file), re.compile(sign.function)) for sign in _SIGNS)
# Frames of packages and the standard library, not of the training's own code.
_LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python3\.\d+)/|^<frozen ")


@dataclass(frozen=True, slots=True)
class StackLocation:
    """Where a stack is. `sign` is the frame that matched, `call` the training's own line that led
    there; each is None without such a frame."""

    place: Place
    sign: Frame | None = None
    call: Frame | None = None


def locate(frames: Sequence[Frame]) -> StackLocation:
    """The location of a thread, by its frames, the innermost first."""
    call = next((frame for frame in frames if not _LIBRARY.search(frame.file)), None)
    for frame in frames:
        place = _place(frame)
        if place is not None:
            return StackLocation(place, frame, call)
    return StackLocation(Place.OTHER, None, call)


def _place(frame: Frame) -> Place | None:
    for place, file, function in _COMPILED:
        if file.search(frame.file) and (not function.pattern or function.fullmatch(frame.function)):
            return place
    return None
