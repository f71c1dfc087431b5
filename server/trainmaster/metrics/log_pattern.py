"""Patterns that a user teaches, checked before a log is read by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_runtime.core.diagnosis.pattern_example import EXAMPLE
from trainer_runtime.core.protocol.command import option
from trainmaster.errors.errors import UsageError

if TYPE_CHECKING:
    from trainer_runtime.core.diagnosis.parse import Coverage
    from trainer_runtime.core.diagnosis.parse.pattern import Pattern

# For logs of which nothing is understood. The example is one that works as it is.
TEACH = (
    f"Teach its lines: {option('--pattern')} (pattern) takes one of them with names for its "
    f"numbers, such as `{EXAMPLE}`."
)


def taught_patterns(text: str | None) -> tuple[Pattern, ...]:
    """The patterns of an argument `pattern`; none where it is None.

    Raises:
        UsageError: `PATTERN_INVALID`, `PATTERN_TOO_SLOW`.
    """
    if text is None:
        return ()
    # With it comes the whole parser.
    from trainer_runtime.core.diagnosis.parse.pattern import PatternError, patterns_of

    try:
        return patterns_of(text)
    except PatternError as error:
        code = "PATTERN_TOO_SLOW" if error.is_slow else "PATTERN_INVALID"
        message = f"The pattern {error}."
        raise UsageError(code, message, _sentence(error.fix), field="pattern") from None


def refuse_without_match(name: str, coverage: Coverage) -> None:
    """Raises:
    UsageError: `PATTERN_MATCHES_NOTHING`, no line of the log has the shape that was taught.
    """
    if coverage.lines_taught == 0 and coverage.lines_with_numbers:
        raise UsageError(
            "PATTERN_MATCHES_NOTHING",
            f"The pattern matches none of the {coverage.lines_with_numbers:,} lines with numbers "
            f"of {name}.",
            "Take a line of the log and replace its numbers by their names, as in "
            f"`{EXAMPLE}`; leave out what differs from line to line, or write {{any}} for it.",
            field="pattern",
        )


def share_in_words(coverage: Coverage) -> str:
    """How many of a log's lines the pattern matches."""
    return (
        f"the pattern matches {coverage.lines_taught:,} of "
        f"{coverage.lines_with_numbers:,} lines with numbers"
    )


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
