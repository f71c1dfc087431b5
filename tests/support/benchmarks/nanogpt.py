"""nanoGPT's own train.py as a peer: run as it is, and timed by what it prints."""

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
ITERATION = re.compile(r"iter (\d+): loss (\S+), time ([\d.]+)ms")
_AUTOCAST = "ctx = torch.autocast('cpu', torch.bfloat16) if device_type == 'cpu'"
_WITHOUT_AUTOCAST = "ctx = nullcontext() if device_type == 'cpu'"
# nanoGPT's own file with one line of it replaced in memory.
_WITH_LINE = """\
import pathlib, sys
sys.path.insert(0, "")
text = pathlib.Path("train.py").read_text()
assert {before!r} in text
exec(compile(text.replace({before!r}, {after!r}), "train.py", "exec"))
"""
_SEED = "torch.manual_seed(1337 + seed_offset)"


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


def nanogpt_command(
    tokens: Path,
    vocab_size: int,
    options: Mapping[str, object],
    *,
    autocast: bool = False,
    seed: int | None = None,
) -> list[str]:
    """The command that trains on the files in `tokens`, in nanoGPT's folder, with its own
    `options`; writes the vocabulary's size, which nanoGPT reads there.

    `autocast`: on a CPU in bf16, which nanoGPT does not offer; `seed`: another than its own. Not
    both.
    """
    (tokens / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": vocab_size}))
    given = {"dataset": tokens.resolve(), "out_dir": tokens.resolve() / "out", **options}
    program = ["train.py"]
    if autocast:
        program = ["-c", _WITH_LINE.format(before=_WITHOUT_AUTOCAST, after=_AUTOCAST)]
    elif seed is not None:
        program = ["-c", _WITH_LINE.format(before=_SEED, after=f"torch.manual_seed({seed})")]
    arguments = [f"--{name}={value}" for name, value in given.items()]
    return [sys.executable, "-u", *program, *arguments]


@contextmanager
def start_nanogpt(
    nanogpt: Path, tokens: Path, vocab_size: int, options: Mapping[str, object]
) -> Iterator[Iterator[Line]]:
    """The lines of `nanogpt_command` as they come; it is ended when they are left."""
    process = subprocess.Popen(
        nanogpt_command(tokens, vocab_size, options),
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
    found = ITERATION.match(text)
    if found is None:
        return Line(now_s, text.strip())
    return Line(now_s, text.strip(), int(found[1]), float(found[2]))
