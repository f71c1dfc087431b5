"""A session of a run as answers have it."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import in_utc
from trainmaster.answers.status import SessionRow
from trainmaster.backends.sessions import SessionSummary


def session_row(session: SessionSummary) -> SessionRow:
    return SessionRow(
        number=session.number,
        ends_at=in_utc(session.ends_t),
        outcome=session.outcome,
        untrusted_detail=session.detail,
    )
