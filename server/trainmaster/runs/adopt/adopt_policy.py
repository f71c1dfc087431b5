"""Holds what is adopted to its caller's policy, before anything of it is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trainmaster.backends import HERE, LOCAL
from trainmaster.errors.confirmation import Confirm, Quote, digest_of_request, open_questions
from trainmaster.runs.planning.trusted_code import code_error, untrusted_python
from trainmaster.sync.workspace import Workspace


async def allow_reading(
    workspace: Workspace,
    host: str,
    folder: str,
    python: str | None,
    confirm: Confirm | None,
) -> bool:
    """Check that the caller may read an output folder of a host; a person is asked about what lies
    beyond the policy. True if one was. `python`: the interpreter that reads the checkpoints.

    Raises:
        PolicyError: `POLICY_FILE`, `POLICY_HOST`; `POLICY_PROGRAM`, nobody has trusted the
            interpreter.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    policy = workspace.policy
    if not policy.bound:
        return False
    code = None if python is None else untrusted_python(workspace, host, python)
    if code is not None:
        raise code_error(workspace, code)
    of_folder = policy.check_folder if host == LOCAL else policy.check_on_host
    checks: list[Callable[[], object]] = [
        partial(policy.check_host, host, "host"),
        partial(of_folder, folder, "folder"),
    ]
    if python is not None and host not in HERE:
        checks.append(partial(policy.check_on_host, python, "python"))
    questions = open_questions(checks, confirm)
    if not questions or confirm is None:
        return False
    text = f"Read a training's output on {host}, and allow the agent to {'; to '.join(questions)}."
    await confirm(Quote("adopt", digest_of_request(host, folder, questions), text))
    return True
