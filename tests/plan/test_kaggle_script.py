"""The script that is pushed: plain Python around one constant."""

from __future__ import annotations

import ast
import base64
import bz2
import io
import json
import os
import re
import tarfile
from functools import cache
from pathlib import Path

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.kaggle.session_order import KernelOrder
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.home.assets import find_assets
from trainmaster.plan.kaggle_script import LEFT_OUT, kernel_script
from trainmaster.plan.render import render_attached

ORDER = KernelOrder('tiny"""-abc234', 2, 43_200.0, 600.0, previous="tm-tiny-abc234", cache=("a",))
FILES = {**render_attached({"steps": 40}, find_assets()).files, "train.sh": b"#!/bin/sh\n"}
DESIRED = Desired(DesiredState.RUNNING, 3)


@cache
def script() -> str:
    return kernel_script(ORDER, FILES, DESIRED, find_assets())


def test_all_but_the_payload_is_the_golden_script() -> None:
    payload = re.compile(r'(?<=PAYLOAD = """\n)[^"]+(?=\n""")')
    shortened = payload.sub("QlpoOTE=", script(), count=1)
    golden = Path(__file__).resolve().parents[1] / "golden/scripts/kaggle_session.py"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(shortened)
    assert shortened == golden.read_text()


def test_the_same_session_is_the_same_text_and_is_small_enough() -> None:
    made = script()
    assert made == script.__wrapped__()
    assert len(made) < 720 << 10
    assert max(map(len, made.splitlines())) <= 100


def test_the_payload_holds_the_order_the_run_and_the_runtime_once() -> None:
    constants = {
        statement.targets[0].id: statement.value.value  # type: ignore[attr-defined]
        for statement in ast.parse(script()).body
        if isinstance(statement, ast.Assign)
    }
    packed = bz2.decompress(base64.b85decode("".join(constants["PAYLOAD"].split())))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
        names = archive.getnames()
    assert KernelOrder.of(decode_fields(files["kernel.json"], "x")) == ORDER
    assert json.loads(files["run/desired.json"]) == DESIRED.to_dict()
    assert files["run/train.sh"] == FILES["train.sh"]
    unused = {name for name in FILES if name.startswith(LEFT_OUT)}
    assert unused and not unused & set(names)
    assert len(names) == len(set(names)) == len(FILES) - len(unused) + 2
    assert not any(name.startswith("run/trainer_runtime/") for name in names)
