"""Calls of the runtime's verbs, on a host that answers as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.decoding import Fields
from trainmaster.backends.hosts import Completed, LocalHost
from trainmaster.backends.hosts.runtime_call import (
    Failure,
    RuntimeCall,
    runtime_call,
    runtime_lines,
)
from trainmaster.errors.errors import HostError

FAILURE = Failure("The cache can't be searched", "Check it.", "ROOT_NOT_WRITABLE", False, "host")


@dataclass(slots=True)
class Ran:
    command: Sequence[str]
    folder: str
    timeout_s: float
    stdin: bytes


def _values(answer: Fields) -> dict[str, Any]:
    return dict(answer.values)


class AnsweringHost(LocalHost):
    """A machine whose every command ends as `completed`."""

    def __init__(self, completed: Completed) -> None:
        super().__init__("box", Path("/nowhere"))
        self.completed = completed
        self.ran: list[Ran] = []

    async def run(
        self, command: Sequence[str], *, folder: str, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        self.ran.append(Ran(command, folder, timeout_s, stdin))
        return self.completed


def call(**changes: Any) -> RuntimeCall:
    changes = {"failure": FAILURE, **changes}
    return RuntimeCall("gc", ["/cache", "--named"], timeout_s=30.0, **changes)


def answered(output: str, code: int = 0, errors: str = "", **changes: Any) -> dict[str, Any]:
    host = AnsweringHost(Completed(code, output, errors))
    return asyncio.run(runtime_call(host, call(**changes), _values))


def refused(
    output: str,
    code: int = 0,
    errors: str = "",
    parse: Callable[[Fields], Any] = lambda answer: answer.values,
    **changes: Any,
) -> HostError:
    host = AnsweringHost(Completed(code, output, errors))
    with pytest.raises(HostError) as caught:
        asyncio.run(runtime_call(host, call(**changes), parse))
    return caught.value


def test_a_verb_runs_by_the_host_s_interpreter_with_its_runtime() -> None:
    host = AnsweringHost(Completed(0, "{}", ""))
    asyncio.run(runtime_call(host, call(stdin=b"names"), _values))
    asyncio.run(runtime_call(host, call(python="/opt/python", folder="/runs/a"), _values))
    first, second = host.ran
    python, runtime = asyncio.run(host.python()), asyncio.run(host.runtime())
    assert first.command == [python, "-m", "trainer_runtime", "gc", "/cache", "--named"]
    assert (first.folder, first.timeout_s, first.stdin) == (runtime, 30.0, b"names")
    assert (second.command[0], second.folder, second.stdin) == ("/opt/python", "/runs/a", b"")


def test_the_answer_is_the_last_line() -> None:
    assert answered('{"freed": 1}\n') == {"freed": 1}
    assert answered('a warning of a module\n{"freed": 1}\n') == {"freed": 1}


@pytest.mark.parametrize(
    ("output", "code", "errors", "words"),
    [
        ("", 1, "Traceback\nPermissionError: /cache\n", "Traceback PermissionError: /cache"),
        ("not JSON", 0, "", "not JSON"),
        ("[]", 0, "", "[]"),
        ("", 124, "", "exit code 124"),
        ("", 1, "\x1b[31mred\x1b[0m\u202e", "red"),
        ("[" * 50 + "]" * 50, 0, "", "[" * 50 + "]" * 50),
    ],
)
def test_without_a_usable_answer_it_fails_with_the_host_s_last_words(
    output: str, code: int, errors: str, words: str
) -> None:
    error = refused(output, code, errors)
    assert error.message == f"The cache can't be searched: {words}"
    assert (error.code, error.fix, error.retryable, error.field) == (
        "ROOT_NOT_WRITABLE",
        "Check it.",
        False,
        "host",
    )


def test_an_answer_that_can_not_be_parsed_is_none() -> None:
    error = refused('{"freed": "much"}', parse=lambda answer: answer.integer("freed"))
    assert error.message == 'The cache can\'t be searched: {"freed": "much"}'
    assert refused("{}", parse=lambda answer: answer.text("freed")).code == "ROOT_NOT_WRITABLE"


def test_an_answer_that_makes_no_sense_is_the_host_s_fault_and_not_a_defect() -> None:
    failure = Failure("The files could not be listed", "Check the folder.")
    for text in ("[" * 900 + "]" * 900, "[" * 100_000, "not JSON"):
        assert refused(text, failure=failure).code == "HOST_DATA_REFUSED"
    assert refused("", 1, "Traceback", failure=failure).code == "HOST_CALL_FAILED"


def test_an_exit_code_may_have_a_failure_of_its_own() -> None:
    without = Failure("Reading checkpoints takes PyTorch", "Install it.", "ENVIRONMENT_UNUSABLE")
    error = refused("", 77, "python3 has no PyTorch", failures={77: without})
    assert error.code == "ENVIRONMENT_UNUSABLE"
    assert error.message == "Reading checkpoints takes PyTorch: python3 has no PyTorch"


def test_a_verb_may_refuse_with_an_error_of_its_own() -> None:
    refusal = {"code": "NOT_OWNER", "message": "It is somebody's.\nReally", "fix": "Ask them."}
    error = refused(json.dumps({"refused": refusal}))
    quoted = "It is somebody's. Really The host advises: “Ask them.”"
    assert (error.code, error.message, error.retryable) == ("NOT_OWNER", quoted, False)
    assert "add the host again as the owner" in error.fix  # ours, whatever a host advises
    for code in ("NO_SUCH", "CONFIRMATION_REQUIRED"):
        other = refused(json.dumps({"refused": {**refusal, "code": code}}))
        assert (other.code, "Ask them" in other.fix) == ("HOST_DATA_REFUSED", False)
    assert refused('{"refused": {"code": "NOT_OWNER"}}').code == "ROOT_NOT_WRITABLE"
    assert refused('{"refused": []}').code == "ROOT_NOT_WRITABLE"


def test_a_verb_may_say_why_it_failed() -> None:
    error = refused('{"error": "exit code 1: no room"}', code=1)
    assert error.message == "The cache can't be searched: exit code 1: no room"


def test_lines_are_parsed_one_by_one() -> None:
    def lines(output: str, code: int = 0) -> list[object]:
        host = AnsweringHost(Completed(code, output, ""))
        return asyncio.run(runtime_lines(host, call(), lambda line: line))

    assert lines('{"path": "a"}\n["b"]\n') == [{"path": "a"}, ["b"]]
    assert lines("") == []
    for output, code in (('{"path": "a"}\n', 1), ('{"path": "a"}\n{"pa', 0)):
        with pytest.raises(HostError, match="ROOT_NOT_WRITABLE"):
            lines(output, code)
