"""Slurm's own programs, run with a bound, and what they refuse with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# A controller that is down takes Slurm's programs about ten seconds to notice.
_TIMEOUT_S = 25.0
# Times as numbers; and the interpreter that a job takes, which inherits what `sbatch` is given.
_VARIABLES = {
    "SLURM_TIME_FORMAT": "%s",
    "LC_ALL": "C.UTF-8",
    "TRAINMASTER_PYTHON": sys.executable or "python3",
}
# Variables of a login shell by which lists would leave jobs, partitions or accounts out.
_OF_LISTS = ("SQUEUE_", "SINFO_", "SACCT_")
# Those by which sbatch would do otherwise than the script says; those of accounts and partitions
# stay, for they decide where the script says nothing.
_OVERRIDES = frozenset(
    f"SBATCH_{name}"
    for name in (
        "ARRAY_INX",
        "EXPORT",
        "JOB_NAME",
        "NO_KILL",
        "OPEN_MODE",
        "OUTPUT",
        "REQUEUE",
        "SIGNAL",
        "TIMELIMIT",
        "WAIT",
    )
)
# By which Slurm's programs find their cluster; and defaults that `srun` and `sbatch` both have.
_OF_CLUSTER = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS"})
_OF_ACCOUNTS = ("ACCOUNT", "QOS", "RESERVATION", "CONSTRAINT")
_LONGEST = 400


class SlurmError(Exception):
    """`code` is one of the client's error codes."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.refusal = {"code": code, "message": message, "fix": fix}


def run_program(name: str, *arguments: str, folder: Path | None = None, stdin: str = "") -> str:
    """The output of one of Slurm's programs; `stdin`: its standard input.

    Raises:
        SlurmError: it is missing, the controller does not answer, or it refuses.
    """
    try:
        done = subprocess.run(
            [name, *arguments],
            cwd=folder,
            env={**environment(os.environ), **_VARIABLES},
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(
            "SLURM_MISSING",
            f"{name} is not on the search path here.",
            "Let the login shell's rc file add Slurm's folder to PATH, also without a terminal.",
        ) from None
    except subprocess.TimeoutExpired:
        raise _down(f"{name} gave no answer within {_TIMEOUT_S:.0f} s.") from None
    if done.returncode != 0:
        raise _refused(name, done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that would override what a batch script says, or a list."""
    return {
        name: value
        for name, value in variables.items()
        if name not in _OVERRIDES and not name.startswith(_OF_LISTS)
    }


def login_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables for an `srun` that asks for nodes of its own, also from a shell within a job.
    Its defaults for accounts are those of `sbatch`."""
    kept = environment(variables)
    passed_on = {
        name: value
        for name, value in kept.items()
        if not name.startswith("SLURM_") or name in _OF_CLUSTER
    }
    wanted = {f"SLURM_{name}": kept.get(f"SBATCH_{name}") for name in _OF_ACCOUNTS}
    return passed_on | {name: value for name, value in wanted.items() if value is not None}


def _refused(name: str, words: str) -> SlurmError:
    text = " ".join(words.split())[:_LONGEST]
    lower = text.lower()
    if any(sign in lower for sign in _DOWN):
        return _down(text)
    if name == "sbatch":
        return SlurmError("JOB_REFUSED", text, "Change what the job asks for.")
    return SlurmError("SLURM_FAILED", f"{name}: {text}", "Ask those who run the cluster.")


def _down(words: str) -> SlurmError:
    return SlurmError("SLURM_UNREACHABLE", words, "Wait; `scontrol ping` shows the controller.")


_DOWN = (
    "unable to contact slurm controller",
    "connection refused",
    "connect failure",
    "socket timed out",
    "zero bytes were transmitted",
    "slurmctld",
    "munge",
)
