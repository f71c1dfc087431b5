"""What cases took, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from support.evals.judge import Verdict


def table(verdicts: Sequence[Verdict]) -> str:
    """A line a case: its calls, what they took in tokens, and what did not hold."""
    return "\n".join(_lines(verdicts))


def _lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield f"{'case':44} {'calls':>5} {'wakes':>5} {'tokens':>6}  which"
    for one in verdicts:
        name = f"{one.case.skill}/{one.case.id}"
        failed = "".join(f"\n    FAILED: {problem}" for problem in one.problems)
        numbers = f"{len(one.calls):5} {one.wakes:5} {one.tokens:6}"
        yield f"{name:44} {numbers}  {' '.join(one.calls)}{failed}"
    passed = sum(not one.problems for one in verdicts)
    calls = sum(len(one.calls) for one in verdicts)
    spent = sum(one.tokens for one in verdicts)
    yield f"{passed} of {len(verdicts)} passed; {calls} calls, {spent} tokens"
