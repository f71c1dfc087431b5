"""A program's command line and variables for one attempt."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.script import PLACEHOLDERS, ScriptConfig
from trainer_runtime.core.protocol.rendezvous import Rendezvous
from trainer_runtime.host.files.files import read_fields
from trainer_runtime.host.files.layout import AttemptFolder, RunFolder
from trainer_runtime.host.script.beginning import Beginning

# `${step}` is a shell's, and `{{step}}` the word `{step}`.
_PLACEHOLDER = re.compile(
    r"(?<!\$)(?:\{(\{[A-Za-z_]\w*\})\}|\{(" + "|".join(PLACEHOLDERS) + r"|data(?:\.[\w.-]+)?)\})"
)
_THIS_HOST = "127.0.0.1"
_PYTHON = re.compile(r"python[0-9.]*")


def command_of(
    run: RunFolder,
    config: RunConfig,
    script: ScriptConfig,
    beginning: Beginning,
    meeting: Rendezvous,
) -> list[str]:
    """The words, with those to continue where there is a checkpoint; `meeting`: how the program's
    processes on this node meet those on others."""
    words = list(script.command)
    if beginning.checkpoint is not None:
        words += script.resume or ()
    values = {
        "gpus": str(config.compute.gpus or 0),
        "processes": str(config.compute.processes // config.compute.nodes),
        "nodes": str(meeting.nodes),
        "node_rank": str(meeting.node),
        "master_addr": meeting.address,
        "master_port": str(meeting.port),
        "run_dir": str(run.root),
        "run_id": run.run_id,
        "seed": str(config.seed),
        "checkpoint": str(beginning.checkpoint or ""),
        "step": str(beginning.step),
        **{f"data.{name}": str(run.root / path) for name, path in script.data.items()},
    }
    if len(script.data) == 1:
        values["data"] = str(run.root / next(iter(script.data.values())))
    return [fill_in(word, values) for word in words]


def fill_in(word: str, values: Mapping[str, str]) -> str:
    """A word of the command with the values of its placeholders; unknown ones stay."""
    return _PLACEHOLDER.sub(
        lambda match: match.group(1) or values.get(match.group(2), match.group()), word
    )


def meeting_of(attempt: AttemptFolder) -> Rendezvous:
    """How the program's processes on this node meet those on others; of a run on one host, at a
    free port of it."""
    fields = read_fields(attempt.rendezvous)
    if fields is not None:
        return Rendezvous.of(fields)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as any_socket:
        any_socket.bind((_THIS_HOST, 0))
        port = int(any_socket.getsockname()[1])
    return Rendezvous(attempt.root.name, _THIS_HOST, port, node=0, nodes=1)


def variables_between_nodes(meeting: Rendezvous) -> dict[str, str]:
    """What torchrun and PyTorch read, of a run on several hosts."""
    if meeting.nodes == 1:
        return {}
    variables = {
        "NNODES": str(meeting.nodes),
        "NODE_RANK": str(meeting.node),
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
    }
    if meeting.interface is not None:
        named = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        variables |= {name: os.environ.get(name, meeting.interface) for name in named}
    return variables


def variables_of(
    run: RunFolder, beginning: Beginning, events: Path, stop: Path, python: str | None
) -> dict[str, str]:
    """The program's environment. `python`: the interpreter that was prepared for it, if one was;
    its folder comes first on the search path."""
    variables = {
        **os.environ,
        "TRAINMASTER_RUN_DIR": str(run.root),
        "TRAINMASTER_RUN_ID": run.run_id,
        "TRAINMASTER_EVENTS": str(events),
        "TRAINMASTER_STOP": str(stop),
    }
    if beginning.checkpoint is not None:
        variables["TRAINMASTER_CHECKPOINT"] = str(beginning.checkpoint)
        variables["TRAINMASTER_STEP"] = str(beginning.step)
    if python is not None:
        variables["PATH"] = os.pathsep.join(
            [str(Path(python).parent), variables.get("PATH", os.defpath)]
        )
    return variables


def program_of(words: Sequence[str], base: Path, variables: Mapping[str, str]) -> str | None:
    """The path of the program that the first word names: seen from its folder, or on its search
    path; None where it is not there."""
    name = words[0]
    if "/" in name:
        path = base / name
        return str(path) if os.access(path, os.X_OK) and path.is_file() else None
    return shutil.which(name, path=variables.get("PATH"))


def python_of(program: str, variables: Mapping[str, str]) -> str:
    """An interpreter that may have what the program has: it opens archives."""
    if _PYTHON.fullmatch(Path(program).name):
        return program
    beside = Path(program).with_name("python")  # as torchrun and accelerate lie beside theirs
    if os.access(beside, os.X_OK):
        return str(beside)
    return shutil.which("python3", path=variables.get("PATH")) or sys.executable
