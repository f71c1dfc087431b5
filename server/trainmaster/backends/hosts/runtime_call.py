"""Calls of `python -m trainer_runtime VERB …` on a host: the one way to run them, to decode their
answers, and to raise their errors.

A verb prints its answer as one line of JSON, the last of its output. In place of an answer it may
print `{"refused": {"code", "message", "fix"}}`, an error of its own, or `{"error": TEXT}`. Its
texts are the host's: they are quoted, and never the fix of an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from trainer_runtime.core.decoding import (
    MAX_DOCUMENT_BYTES,
    Fields,
    decode_fields,
    decode_value,
)
from trainer_runtime.core.diagnosis.pattern_example import EXAMPLE
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.lines import ODD_FIELDS
from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.ssh import Completed
from trainmaster.errors.errors import HostError

Parsed = TypeVar("Parsed")

# What a host says of a refusal comes before this.
HOST_ADVISES = " The host advises: “"
_LAST_WORDS = 300
_MALFORMED = (*ODD_FIELDS, LookupError)

# The codes that a verb may refuse with, and what to do then.
_REMEDIES = {
    "LOG_NOT_READABLE": "Give the absolute path of a text file that the training writes and that "
    "your account on the host may read.",
    "NO_SUCH_PROCESS": "List the processes there (`ps -eo pid,user,etime,args`), or attach to the "
    "log of the training.",
    "NOT_OWNER": "Attach to the log of the training, or add the host again as the owner of the "
    "process.",
    "TMUX_NOT_FOUND": "List the sessions there (`tmux list-panes -a`).",
    "SCREEN_NOT_FOUND": "List the sessions there (`screen -ls`).",
    "PANE_TAKEN": "Attach to the log that the output goes to.",
    "PATTERN_MATCHES_NOTHING": "Take a line of the log and replace its numbers by their names, as "
    f"in `{EXAMPLE}`; write {{any}} for what differs from line to line.",
    "OUTPUT_UNKNOWN": "Give the folder that the training writes its checkpoints into.",
    "OUTPUT_IS_OURS": f"Resume that run ({command('resume', 'RUN')}), or give another folder.",
    "SLURM_MISSING": "Let the account's rc file on the login node add the folder of Slurm's "
    "programs to PATH, also without a terminal: `ssh LOGIN sbatch --version` has to work.",
    "SLURM_UNREACHABLE": "Wait until the controller is back (`scontrol ping` on the login node); "
    f"{command('tick')} tries again.",
    "SLURM_FAILED": f"Try again; {command('hosts check', 'HOST')} shows the cluster.",
    "JOB_REFUSED": "Change what its jobs ask for ("
    f"{command('hosts set', 'HOST', '--partition', 'NAME')}; {option('--account')}"
    f", {option('--qos')}, {option('--constraint')}, {option('--time')} too), or "
    f"the spec's `compute`; {command('hosts check', 'HOST')} shows the partitions.",
    "FOLDER_NOT_SHARED": "Add the host again with a root that its compute nodes share: "
    f"{command('hosts remove', 'HOST')}, then "
    f"{command('hosts add', 'HOST', 'ADDRESS', '--launcher', 'slurm', '--root', 'DIR')}"
    ".",
    "SUPERVISOR_DID_NOT_START": "Read logs/supervisor.err in the run's folder.",
    "ENVIRONMENT_UNUSABLE": (
        f"Name an interpreter with PyTorch 2.6 or newer ({option('--python', 'PATH')})."
    ),
}


_PASSING = frozenset({"SLURM_UNREACHABLE", "SLURM_FAILED"})


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a call that gives no usable answer.

    `message` says what could not be done; the host's last words are appended to it.
    """

    message: str
    fix: str
    code: str = "HOST_CALL_FAILED"
    retryable: bool = True
    field: str | None = None


@dataclass(frozen=True, slots=True)
class RuntimeCall:
    """One call. `failures`: those that have an exit code of their own.

    `python`: the interpreter, None for the host's. `folder`: where it runs, None for the runtime
    that the host was given last; a run's folder holds the one that the run was launched with.
    `acts`: the call may change the host, so the runtime may be placed there first.
    """

    verb: str
    arguments: Sequence[str]
    failure: Failure
    timeout_s: float
    failures: Mapping[int, Failure] = field(default_factory=dict)
    python: str | None = None
    folder: str | None = None
    stdin: bytes = b""
    acts: bool = False


def runtime_command(python: str, verb: str, *arguments: str) -> list[str]:
    """The command line of a verb; its working folder has to hold `trainer_runtime`."""
    return [python, "-m", "trainer_runtime", verb, *arguments]


async def runtime_call(host: Host, call: RuntimeCall, parse: Callable[[Fields], Parsed]) -> Parsed:
    """The answer of a verb that prints one JSON object.

    Raises:
        HostError: the call's failure, where the answer is missing, or `parse` can't use it; what
            the verb refuses with; what keeps the host from being reached.
    """
    done = await _run(host, call)
    try:
        line = done.output.strip().rpartition("\n")[2]
        answer = decode_fields(line, call.verb, max_bytes=MAX_DOCUMENT_BYTES)
        if refused := answer.find_section("refused"):
            raise _refusal(refused)
        if words := answer.find_text("error"):
            raise _error(call.failure, words)
        return parse(answer)
    except _MALFORMED as error:
        raise _failed(call, done) from error


async def runtime_lines(
    host: Host, call: RuntimeCall, parse: Callable[[object], Parsed]
) -> list[Parsed]:
    """The answer of a verb that prints a line of JSON for each item, and ends with code 0.

    Raises:
        HostError: as `runtime_call`.
    """
    done = await _run(host, call)
    if done.code != 0 or len(done.output) > MAX_DOCUMENT_BYTES:
        raise _failed(call, done)
    try:
        return [parse(decode_value(line, call.verb)) for line in done.output.splitlines()]
    except _MALFORMED as error:
        raise _failed(call, done) from error


async def _run(host: Host, call: RuntimeCall) -> Completed:
    python = call.python or await host.python()
    command = runtime_command(python, call.verb, *call.arguments)
    if call.folder is not None and not call.acts:
        command.insert(1, "-B")  # no bytecode beside the runtime that is there
    runtime = host.place_runtime if call.acts else host.runtime
    return await host.run(
        command,
        folder=call.folder or await runtime(),
        timeout_s=call.timeout_s,
        stdin=call.stdin,
    )


def _refusal(refused: Fields) -> HostError:
    """The host's reason, and what it advises, are quoted; what to do is said in our own words."""
    code, fix = refused.text("code"), _one_line(refused.text("fix"))
    message = _one_line(refused.text("message"))
    if _REMEDIES.get(code) != fix:
        message = f"{message}{HOST_ADVISES}{fix}”"
    if code in _REMEDIES:
        return HostError(code, message, _REMEDIES[code], retryable=code in _PASSING)
    fix = f"Check the host; {command('doctor')} checks this machine."
    return HostError("HOST_DATA_REFUSED", f"A host refuses with an unknown code. {message}", fix)


def _failed(call: RuntimeCall, done: Completed) -> HostError:
    words = (done.errors or done.output).strip()[-_LAST_WORDS:]
    failure = call.failures.get(done.code, call.failure)
    if done.code == 0 and failure.code == "HOST_CALL_FAILED":
        failure = replace(failure, code="HOST_DATA_REFUSED")
    return _error(failure, words or f"exit code {done.code}")


def _error(failure: Failure, words: str) -> HostError:
    return HostError(
        failure.code,
        f"{failure.message}: {_one_line(words)}",
        failure.fix,
        failure.retryable,
        failure.field,
    )


def _one_line(text: str) -> str:
    """Text of a host, which may hold names that anybody has chosen."""
    return shown(" ".join(text.splitlines()).encode(errors="replace"))
