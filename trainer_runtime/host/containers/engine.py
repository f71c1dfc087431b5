"""The container engine of this machine: Docker or Podman, whichever answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainer_runtime.core.decoding import Fields, decode_fields
from trainer_runtime.core.protocol.text import shown

Kind = Literal["docker", "podman"]
PROGRAMS = ("docker", "podman")
_ANSWERS_WITHIN_S = 30.0
_LONGEST_PROBLEM = 300


class NoEngineError(Exception):
    """This account can use no container engine here."""


@dataclass(frozen=True, slots=True)
class Engine:
    """`kind`: whose engine answers, which need not be whose `program` asks. `rootless`: it runs
    as this user, whom the container's root stands for."""

    kind: Kind
    program: str
    version: str
    rootless: bool = False

    @classmethod
    def of(cls, fields: Fields) -> Engine:
        return cls(
            kind="docker" if fields.text("engine") == "docker" else "podman",
            program=fields.text("program"),
            version=fields.text("version", ""),
            rootless=fields.flag("rootless", False),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "engine": self.kind,
            "program": self.program,
            "version": self.version,
            "rootless": self.rootless,
        }

    @property
    def label(self) -> str:
        return f"{self.kind} {self.version}" + (", rootless" if self.rootless else "")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command of the engine said; `code` is the program's own exit code."""

    code: int
    output: str
    problem: str


def ask_engine(
    program: str,
    *arguments: str,
    within_s: float = _ANSWERS_WITHIN_S,
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """Run a command that answers soon; one that can't be started or hangs has failed, too."""
    try:
        done = subprocess.run(
            [program, *arguments],
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(124, "", f"no answer within {within_s:.0f} s")
    except OSError as error:
        return Answer(127, "", error.strerror or str(error))
    said = [text for line in done.stderr.splitlines() if (text := shown(line).strip())]
    problem = said[-1][:_LONGEST_PROBLEM] if said else f"exit code {done.returncode}"
    return Answer(done.returncode, done.stdout.decode(errors="replace").strip(), problem)


def installed(environment: Mapping[str, str]) -> list[str]:
    """The engines' programs on the search path; whether they answer is not asked."""
    path = environment.get("PATH", os.defpath)
    return [name for name in PROGRAMS if shutil.which(name, path=path) is not None]


def find_engine(environment: Mapping[str, str]) -> Engine:
    """Docker where its daemon answers, else Podman.

    Podman's own program is preferred to Docker's program in front of Podman.

    Raises:
        NoEngineError: with what each of them said.
    """
    path = environment.get("PATH", os.defpath)
    problems = []
    in_front: Engine | None = None
    for name, probe in (("docker", _docker), ("podman", _podman)):
        program = shutil.which(name, path=path)
        if program is None:
            continue
        engine, problem = probe(os.path.abspath(program), environment)
        if engine is not None and engine.kind == name:
            return engine
        in_front = in_front or engine
        if problem:
            problems.append(f"{name}: {problem}")
    if in_front is not None:
        return in_front
    raise NoEngineError("; ".join(problems) or "neither docker nor podman is on the search path")


def _docker(program: str, environment: Mapping[str, str]) -> tuple[Engine | None, str]:
    answer = ask_engine(program, "version", "--format", "{{json .Server}}", environment=environment)
    if answer.code != 0:
        return None, answer.problem
    try:
        server = decode_fields(answer.output, "docker version")
        components = server.sections("Components")
        version = server.text("Version", "")
    except ValueError:  # Podman's program under Docker's name has no server
        return _podman(program, environment)
    if any("podman" in component.text("Name", "").lower() for component in components):
        return Engine("podman", program, version), ""
    options = ask_engine(
        program, "info", "--format", "{{json .SecurityOptions}}", environment=environment
    )
    return Engine("docker", program, version, "name=rootless" in options.output), ""


def _podman(program: str, environment: Mapping[str, str]) -> tuple[Engine | None, str]:
    answer = ask_engine(
        program,
        *("info", "--format", "{{.Version.Version}} {{.Host.Security.Rootless}}"),
        environment=environment,
    )
    if answer.code != 0:
        return None, answer.problem
    version, _, rootless = answer.output.partition(" ")
    return Engine("podman", program, version, rootless == "true"), ""
