"""A log is read alike whatever it is wrapped in: one way for `diagnose`, `metrics` and `logs`."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.errors.errors import UsageError
from trainmaster.metrics.log_file import read_text
from trainmaster.metrics.log_file_metrics import read_metrics
from trainmaster.metrics.unwrap import TooLarge, unwrapped
from trainmaster.runs.diagnosis.diagnose_file import diagnose_file

_STEPS = [f"step {step} loss {4 - step / 50:.4f} lr 3e-4" for step in range(1, 41)]
_ERROR = (
    "Traceback (most recent call last):",
    '  File "train.py", line 7, in <module>',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 23.65 GiB of which 1.10 GiB is free.",
)
_TEXT = "".join(f"{line}\n" for line in (*_STEPS, *_ERROR))


def _docker(text: str, colon: str = ":") -> bytes:
    objects = (
        {"log": line, "stream": "stderr", "time": "2026-01-02T03:04:05.6Z"}
        for line in text.splitlines(keepends=True)
    )
    return b"".join(json.dumps(one, separators=(",", colon)).encode() + b"\n" for one in objects)


def _kaggle(text: str, between: str) -> bytes:
    objects = (
        {"stream_name": "stdout", "time": 1.5, "data": line}
        for line in text.splitlines(keepends=True)
    )
    return ("[" + between.join(json.dumps(one) for one in objects) + "]").encode()


def _notebook(text: str, indent: int | None = None) -> bytes:
    steps = "".join(line for line in text.splitlines(keepends=True) if line.startswith("step"))
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": steps.splitlines(keepends=True)},
        {"output_type": "error", "ename": "E", "evalue": "", "traceback": list(_ERROR)},
    ]
    cells = [{"cell_type": "code", "source": ["loss = 9"], "metadata": {}, "outputs": outputs}]
    return json.dumps({"cells": cells, "nbformat": 4}, indent=indent).encode()


CARRIERS: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip in two members": lambda text: b"".join(
        gzip.compress(part.encode()) for part in (text[:700], text[700:])
    ),
    "xz": lambda text: lzma.compress(text.encode()),
    "bzip2": lambda text: bz2.compress(text.encode()),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, big-endian": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "Docker": _docker,
    "Docker, written again by another program": lambda text: _docker(text, ": "),
    "Docker, compressed": lambda text: gzip.compress(_docker(text)),
    "Kaggle": lambda text: _kaggle(text, "\n,"),
    "Kaggle on one line": lambda text: _kaggle(text, ", "),
    "notebook": lambda text: _notebook(text, indent=1),
    "notebook on one line": _notebook,
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_wrapped_log_is_read_as_the_plain_one(tmp_path: Path, carrier: str) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(CARRIERS[carrier](_TEXT))
    (finding,) = diagnose_file(path).findings
    assert (finding.code, finding.step) == ("cuda_oom", 40)
    losses = read_metrics(path).rows("loss")
    assert (losses[0][0], losses[0][2], len(losses)) == (1, 3.98, 40)
    lines = b"".join(read_text(path)).decode().split()
    assert lines == _TEXT.split()


def test_the_table_that_a_trainer_draws_in_a_notebook_gives_its_losses(tmp_path: Path) -> None:
    rows = "".join(f"<tr><td>{n}0</td><td>{3 - n / 10}</td><td>2.5</td></tr>" for n in range(1, 9))
    head = "<th>Step</th><th>Training Loss</th><th>Validation Loss</th>"
    html = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    output = {"output_type": "display_data", "data": {"text/html": [html], "text/plain": ["<H>"]}}
    cells = [{"cell_type": "code", "outputs": [output]}]
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    metrics = read_metrics(path)
    assert [(step, value) for step, _, value in metrics.rows("loss")][-1] == (80, 2.2)
    assert len(metrics.rows("val_loss")) == 8


def test_a_compressed_log_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(_TEXT.encode() * 50)[:-200])
    assert b"".join(read_text(path)).startswith(_TEXT.encode())


def test_a_small_file_that_unpacks_to_very_much_is_refused() -> None:
    bomb = gzip.compress(gzip.compress(bytes(64 << 20)))
    read = 0
    with pytest.raises(TooLarge):
        for chunk in unwrapped([bomb], 8 << 20):
            read += len(chunk)
    assert read <= 8 << 20


def test_what_only_begins_like_a_carrier_stays_as_it_is(tmp_path: Path) -> None:
    text = b'{"log": "a", "loss": 2.0}\n{"cells": 3, "step": 1}\n[rank0]: step 1 loss 2.0\n'
    path = tmp_path / "train.log"
    path.write_bytes(text)
    assert b"".join(read_text(path)) == text


def test_binary_data_in_a_compressed_file_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "weights.gz"
    path.write_bytes(gzip.compress(bytes(range(32)) * 4096))
    with pytest.raises(UsageError, match="binary"):
        list(read_text(path))
