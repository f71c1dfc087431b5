"""The answer about a rehearsal."""

from typing import Literal

from trainmaster.answers.base import Answer, State, WholeAnswer
from trainmaster.answers.fields import field

Verdict = Literal["passed", "failed", "not judged"]


class RehearsalCheck(Answer):
    """`detail`: its figures."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str | None = None


class RehearsalAnswer(WholeAnswer):
    """A rehearsal `of` a training; `verdict`: failed with any check, none while it runs."""

    run_id: str
    of: str
    kind: Literal["smoke", "tiny"]
    host: str
    state: State
    steps: int
    verdict: Verdict | None = None
    checks: list[RehearsalCheck]
    evidence: list[str] | None = field(
        default=None, description="the host's words on a failure: untrusted text"
    )
    launched: str | None = field(default=None, description="the training that followed")
    next_step: str
