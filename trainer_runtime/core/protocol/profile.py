"""A profile of some steps of a running training: how it is requested, and what it says.

The client writes the request into the run's folder; the trainer reads it between two steps, and
answers by an event of kind `profile` and by the same in a file of the attempt's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import SparseRecord

PROFILE_REQUEST = "profile_request.json"  # in the run's folder
# In the attempt's folder.
PROFILE = "profile.json"
TRACE = "profile_trace.json.gz"
STEPS = 10
LARGEST_TRACE_BYTES = 64 << 20
"""Of the trace before it is compressed; a larger one is not kept."""


@dataclass(frozen=True, slots=True)
class ProfileRequest(SparseRecord):
    """`id` comes back in the answer. Only this attempt's trainer answers. `keeps_trace`: it also
    writes `TRACE`."""

    id: str
    attempt: int
    keeps_trace: bool = False


@dataclass(frozen=True, slots=True)
class OperatorTime(SparseRecord):
    """An operator's own time, without that of those it calls: `share` of all operators', `step_ms`
    and `calls` per step."""

    name: str
    share: float
    step_ms: float
    calls: float


@dataclass(frozen=True, slots=True)
class Kernels(SparseRecord):
    """What a GPU computed: kernels per step, the median duration of one, and the median of the
    pauses between them."""

    per_step: float
    median_us: float
    median_gap_us: float


@dataclass(frozen=True, slots=True)
class Profile(SparseRecord):
    """What `steps` steps, from `step` on, have spent their time with, answering `request`.

    Shares are of the steps' time, 0 to 1. `host`: `data` (waiting for it), `forward`, `backward`,
    `optimizer`, `other` (clipping, checks), and `outside`, which is in no operator: Python, or
    waiting. `gpu`: the same phases by the time of their kernels, `copies` and `communication` of
    all phases, and `idle`; empty without a GPU. Operators are by their time on the GPU if there is
    one. `attention`: share of the operators' time.

    `step_ms` is a step's time under the profiler, `usual_step_ms` the median before it; `added_s`
    how much later the training is by the profile. `peak_memory_gib`: of the GPU's tensors, else of
    the process. `trace`: whether `TRACE` was written; `trace_bytes`: its size before it is
    compressed, where it was asked for. `problem`: why nothing was measured.
    """

    request: str
    step: int = 0
    steps: int = 0
    device: str = "cpu"
    step_ms: float = 0.0
    usual_step_ms: float | None = None
    added_s: float = 0.0
    host: Mapping[str, float] = field(default_factory=dict)
    gpu: Mapping[str, float] = field(default_factory=dict)
    operators: tuple[OperatorTime, ...] = ()
    attention: float = 0.0
    kernels: Kernels | None = None
    peak_memory_gib: float | None = None
    trace: bool = False
    trace_bytes: int | None = None
    problem: str | None = None
