"""Ends the instance at its provider, by a key that serves for nothing else.

A container's variables reach its first process, not a session over SSH: the key is read from where
providers' images leave it.
"""

from __future__ import annotations

import http.client
import os
import urllib.error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from trainer_runtime.core.lease.lease import OwnEnd
from trainer_runtime.host.files.http_request import NotWebError, opened

TIMEOUT_S = 30.0
TRIAL_TIMEOUT_S = 8.0
_FIRST_PROCESS = Path("/proc/1/environ")
_FILES = (Path("/etc/environment"), Path("/etc/rp_environment"), Path("/root/.ssh/environment"))


@dataclass(frozen=True, slots=True)
class Answered:
    """Whether the provider took it, and what came of it in words that hold no key."""

    taken: bool
    report: str


def described(own_end: OwnEnd | None) -> str:
    """What is done at the lease's end, without what may be secret of an address."""
    if own_end is None:
        return "nothing: its provider has no key by which an instance could end itself"
    parts = urlsplit(own_end.url)
    return f"{own_end.method} {parts.scheme}://{parts.netloc.split('@')[-1]}{parts.path}"


def missing(own_end: OwnEnd, variables: Mapping[str, str]) -> str | None:
    """Why the instance can't end itself, as far as known; its key is tried where that is needed."""
    lacking = _missing_key(own_end, variables)
    if lacking is not None or not own_end.tried_by:
        return lacking
    trial = replace(own_end, method=own_end.tried_by)
    answered = _ask(trial, variables[own_end.key_variable], TRIAL_TIMEOUT_S)
    return None if answered.taken else f"its key was tried, and {answered.report}"


def terminate_host(own_end: OwnEnd, variables: Mapping[str, str]) -> Answered:
    """Ask once. The machine goes away then; until it has, asking may be repeated."""
    lacking = _missing_key(own_end, variables)
    if lacking is not None:
        return Answered(False, lacking)
    return _ask(own_end, variables[own_end.key_variable], TIMEOUT_S)


def host_variables(
    own: Mapping[str, str],
    first_process: Path = _FIRST_PROCESS,
    files: Sequence[Path] = _FILES,
) -> dict[str, str]:
    """The variables of this process, of the host's first one, and of the files that images write,
    in this order; programs are searched in all their paths."""
    sources = [dict(own), _of_process(first_process), *(_of_file(path) for path in files)]
    variables: dict[str, str] = {}
    for source in reversed(sources):
        variables |= source
    paths = dict.fromkeys(source["PATH"] for source in sources if source.get("PATH"))
    return {**variables, "PATH": os.pathsep.join(paths) or os.defpath}


def _missing_key(own_end: OwnEnd, variables: Mapping[str, str]) -> str | None:
    name = own_end.key_variable
    return None if variables.get(name) else f"it has no key called {name}"


def _of_process(path: Path) -> dict[str, str]:
    try:
        lines = path.read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _of_file(path: Path) -> dict[str, str]:
    """Lines of `NAME=value` or `export NAME="value"`; nothing in them is carried out."""
    variables = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").strip().partition("=")
        if equals and name.isidentifier():
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            variables[name] = value[1:-1] if quoted else value
    return variables


def _ask(way: OwnEnd, key: str, timeout_s: float) -> Answered:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with opened(way.method, way.url, headers, timeout_s=timeout_s) as answer:
            return Answered(True, f"the provider answered {answer.status}")
    except NotWebError:
        return Answered(False, "its address is not of http or https")
    except urllib.error.HTTPError as error:
        with error:
            return Answered(False, f"the provider answered {error.code}")
    except urllib.error.URLError as error:  # its text may hold the address
        return Answered(False, f"no answer: {type(error.reason).__name__}")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answered(False, f"no answer: {type(error).__name__}")
