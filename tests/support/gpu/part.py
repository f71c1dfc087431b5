"""A part of the GPU program: what it asks, what it needs, and the setting that it runs in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.benchmarks.benchmark import Benchmark


class LackingError(Exception):
    """The rest of a part can't be run here; the message says what is lacking."""


@dataclass(frozen=True, slots=True)
class Setting:
    """`bench` takes the results. `device`: cuda or cpu. `tiny`: sizes that only show that a part
    works. `folder` is the part's own. `nanogpt`: nanoGPT's folder, None where nobody named it.
    """

    bench: Benchmark
    device: str
    tiny: bool
    folder: Path
    nanogpt: Path | None


@dataclass(frozen=True, slots=True)
class Part:
    """A share of the program, in a process of its own, that reports its lines by `run`.

    `kind`: a `bench` measures, a `test` has to hold. `bound_s`: seconds after which it is ended.
    `modules`: what it imports besides PyTorch. `cuda_only`: a CPU can't answer it. `alone`: other
    trainings beside it would change what it reports.
    """

    kind: str
    asks: str
    run: Callable[[Setting], None]
    bound_s: float
    modules: tuple[str, ...] = ()
    cuda_only: bool = False
    alone: bool = False
