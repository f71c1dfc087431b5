"""nanoGPT's own train.py as a peer: run as it is, on random tokens, and timed by what it prints."""

from __future__ import annotations

import os
import pickle
import random
import re
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TRAINMASTER_NANOGPT"
_ITERATION = re.compile(r"iter (\d+): loss (\S+), time")


@dataclass(frozen=True, slots=True)
class Line:
    """A printed line and when it came, by the monotonic clock. `iteration` and `loss` where it is
    that of one."""

    at_s: float
    text: str
    iteration: int | None = None
    loss: float | None = None


def nanogpt_folder() -> Path | None:
    """The folder that the environment names, None where it names none."""
    named = os.environ.get(VARIABLE)
    return Path(named).resolve() if named and Path(named, "train.py").is_file() else None


def write_tokens(folder: Path, *, vocab_size: int, count: int) -> dict[str, int]:
    """Write `train.bin` and `val.bin` of random tokens, frequent ones more often; their sizes in
    tokens by split."""
    weights = [1 / (rank + 3) for rank in range(vocab_size)]
    sizes = {"train": count, "val": count // 20}
    for split, size in sizes.items():
        drawn = random.Random(f"7 {split}").choices(range(vocab_size), weights, k=size)
        (folder / f"{split}.bin").write_bytes(array("H", drawn).tobytes())
    return sizes


@contextmanager
def start_nanogpt(
    nanogpt: Path, tokens: Path, vocab_size: int, options: Mapping[str, object]
) -> Iterator[Iterator[Line]]:
    """Its lines as they come, of a training on the files in `tokens` with its own `options`; it is
    ended when they are left."""
    (tokens / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": vocab_size}))
    given = {"dataset": tokens.resolve(), "out_dir": tokens.resolve() / "out", **options}
    arguments = [f"--{name}={value}" for name, value in given.items()]
    process = subprocess.Popen(
        [sys.executable, "-u", "train.py", *arguments],
        cwd=nanogpt,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield map(_line, process.stdout or ())
    finally:
        process.kill()
        process.wait()


def _line(text: str) -> Line:
    now_s = time.monotonic()
    found = _ITERATION.match(text)
    if found is None:
        return Line(now_s, text.strip())
    return Line(now_s, text.strip(), int(found[1]), float(found[2]))
