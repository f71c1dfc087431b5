"""Packs one session of a run into the script that is pushed to Kaggle."""

from __future__ import annotations

import base64
import bz2
import io
import json
import tarfile
from collections.abc import Iterable, Mapping

from trainer_runtime.core.kaggle.session_order import ORDER, RUN_FOLDER, KernelOrder
from trainer_runtime.core.protocol.desired import Desired
from trainmaster.home.assets import Assets
from trainmaster.plan.light_source import light_source
from trainmaster.plan.templates import rendered

_RUNTIME = "trainer_runtime/"
# Answers about a host, and clusters: no session asks for them, and a script has a bound.
LEFT_OUT = tuple(
    f"{_RUNTIME}{name}"
    for name in (
        "host/answer/ask_image.py",
        "host/answer/check",
        "host/answer/examine_input.py",
        "host/answer/gc.py",
        "host/answer/left_runs.py",
        "host/answer/list_corpus.py",
        "host/answer/reach.py",
        "host/answer/receive.py",
        "host/answer/sample.py",
        "host/answer/try_folder.py",
        "host/slurm/",
        "core/answers/slurm.py",
    )
)
_TEMPLATE = "launch/kaggle.py.j2"
_WIDTH = 96


def kernel_script(
    order: KernelOrder, files: Mapping[str, bytes], desired: Desired, assets: Assets
) -> str:
    """The script of a session; the same text for the same input.

    `files`: the run's bundle, `trainer_runtime/` included. No secret may be among them: a kernel's
    script is kept by Kaggle for as long as the kernel is.
    """
    packed = bz2.compress(_archive(_members(order, files, desired)))
    text = base64.b85encode(packed).decode()  # which has neither quotes nor backslashes
    lines = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
    return rendered(assets, _TEMPLATE, {"payload": "\n".join(lines)})


def _members(
    order: KernelOrder, files: Mapping[str, bytes], desired: Desired
) -> Iterable[tuple[str, bytes]]:
    """The runtime is packed once, at the top: the session runs it and copies it to the run. What
    only a cluster runs stays away, as Kaggle bounds a script."""
    yield ORDER, _json(order.to_dict())
    yield f"{RUN_FOLDER}/desired.json", _json(desired.to_dict())
    for path, data in files.items():
        if path.startswith(LEFT_OUT):
            continue
        if not path.startswith(_RUNTIME):
            yield f"{RUN_FOLDER}/{path}", data
        else:
            yield path, light_source(data) if path.endswith(".py") else data


def _archive(members: Iterable[tuple[str, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in sorted(members):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"
