"""What a host is added with: its name, address and options, checked before anything connects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.duration import parse_duration
from trainmaster.backends.ssh.endpoint import parse_address, parse_jumps
from trainmaster.errors.errors import UsageError
from trainmaster.home.user_paths import user_path
from trainmaster.machines.open_host import RESERVED
from trainmaster.plan.fields.annotations import refuse_unsafe_name
from trainmaster.plan.job_script import checked_directive, checked_module
from trainmaster.store.host_record import (
    DEFAULT_ROOT,
    SLURM_OPTIONS,
    HostRecord,
    LauncherName,
    TransportName,
)

_LEAST_JOB_S = 600.0
_FOLDER = re.compile(r"~?/[^\x00-\x1f\x7f]*[^/\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class HostOptions:
    """How to reach a host, besides its address; `offline`: don't connect now. `launcher` and what
    follows it: see `HostRecord`."""

    key: str | None = None
    jump: str | None = None
    root: str = DEFAULT_ROOT
    cache: str | None = None
    transport: TransportName = "asyncssh"
    offline: bool = False
    launcher: LauncherName = "process"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    time: str | None = None
    modules: str | None = None


def host_record(name: str, address: str, options: HostOptions) -> HostRecord:
    """Raises: UsageError: `UNSAFE_NAME`, `BAD_ARGUMENT`: one of them can't be used."""
    refuse_unusable_name(name)
    parsed = parse_address(address)
    if options.jump is not None:
        parse_jumps(options.jump)
    for place, folder in (("--root", options.root), ("--cache", options.cache)):
        if folder is not None and not _is_folder(folder):
            raise UsageError(
                "UNSAFE_NAME",
                f"{folder!r} is not a valid folder.",
                "Give an absolute folder on the host, or one below its user's home: ~/NAME.",
                field=place,
            )
    scheduled = {name: getattr(options, name) for name in SLURM_OPTIONS}
    refuse_unusable_job_options(scheduled, options.launcher)
    return HostRecord(
        name=name,
        address=parsed.host,
        user=parsed.user,
        port=parsed.port,
        key=None if options.key is None else _key(options.key),
        jump=options.jump,
        transport=options.transport,
        root=options.root.rstrip("/"),
        cache=None if options.cache is None else options.cache.rstrip("/"),
        launcher=options.launcher,
        **scheduled,
    )


def refuse_unusable_job_options(options: Mapping[str, str | None], launcher: LauncherName) -> None:
    """Raises:
    UsageError: `BAD_ARGUMENT`, one can't be given to Slurm, or the host is not a cluster.
    """
    for name, value in options.items():
        if value is not None:
            _refuse_slurm_option(name, value, launcher)


def slurm_options(text: str) -> dict[str, Any]:
    """The fields of `HostOptions` by words such as `partition=gpu`; `yes` for a cluster without
    options, nothing for a host that is none.

    Raises:
        UsageError: `BAD_ARGUMENT`, a word is not an option.
    """
    words = text.split()
    if not words:
        return {}
    options = dict(word.partition("=")[::2] for word in words if word != "yes")
    unknown = [name for name, value in options.items() if name not in SLURM_OPTIONS or not value]
    if unknown:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{unknown[0][:60]!r} is not an option of jobs with its value.",
            f"Use `yes`, or NAME=VALUE of {', '.join(SLURM_OPTIONS)}, with blanks between them.",
            field="slurm",
        )
    return {"launcher": "slurm", **options}


def _refuse_slurm_option(name: str, value: str, launcher: LauncherName) -> None:
    if name == "modules":
        for module in value.split(","):
            checked_module(module)
    elif name == "time":
        _refuse_time(value)
    else:
        checked_directive(name, value)
    if name == "gres":
        _refuse_counted(value)
    if launcher != "slurm":
        raise UsageError(
            "BAD_ARGUMENT",
            f"--{name.removesuffix('s')} is for clusters.",
            f"Add {option('--launcher', 'slurm')}, or leave it out.",
            field=f"--{name.removesuffix('s')}",
        )


def _refuse_time(value: str) -> None:
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise UsageError("BAD_ARGUMENT", f"{error}.", "Use 12h or 2d.", field="--time") from None
    if seconds < _LEAST_JOB_S:
        raise UsageError(
            "BAD_ARGUMENT",
            f"Jobs of {value} end before they train.",
            f"Use {_LEAST_JOB_S / 60:.0f}m or more.",
            field="--time",
        )


def _refuse_counted(gres: str) -> None:
    """A number of GPUs: each plan asks for its own."""
    for resource in gres.split(","):
        name, *rest = resource.split(":")
        if name == "gpu" and (len(rest) > 1 or any(word.isdigit() or not word for word in rest)):
            kinds = [word for word in rest if word and not word.isdigit()]
            uncounted = ":".join(["gpu", *kinds[:1]])
            fix = (
                f"Use {option('--gres', uncounted)}."
                if kinds
                else f"Leave it out, or use {option('--gres', 'gpu:TYPE')}."
            )
            message = f"{resource!r} says how many GPUs; each run's plan does (`compute.gpus`)."
            raise UsageError("BAD_ARGUMENT", message, fix, field="--gres")


def refuse_unusable_name(name: str) -> None:
    """Raises:
    UsageError: `UNSAFE_NAME`, `BAD_ARGUMENT`: it can't be a host's name.
    """
    refuse_unsafe_name(name, "host name")
    if name in RESERVED:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{name!r} is a reserved name.",
            f"Choose another name than {', '.join(sorted(RESERVED))}.",
            field="name",
        )


def _is_folder(text: str) -> bool:
    return bool(_FOLDER.fullmatch(text.rstrip("/"))) and ".." not in text.split("/")


def _key(text: str) -> str:
    path = user_path(text, "--key")
    if not path.is_file():
        raise UsageError(
            "BAD_ARGUMENT",
            f"{path} does not exist.",
            "Give the path of a private key on this machine, not of its .pub file.",
            field="--key",
        )
    if path.suffix == ".pub":
        raise UsageError(
            "BAD_ARGUMENT",
            f"{path} is a public key.",
            "Give the private key that belongs to it.",
            field="--key",
        )
    return str(path)
