"""The table of `watch`, for a terminal of any width, with Unicode or without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.curve import sparkline
from trainer_runtime.core.protocol.figures import number_text, rough_duration, usd_text
from trainmaster.answers.base import State
from trainmaster.answers.watch import WatchAnswer, WatchRow
from trainmaster.cli.output import printable

_GAP = 2
_LONGEST_NAME = 24
# Names are cut to so much before a column is left out; and where few columns are left.
_SHORT_NAME, _SHORTEST_NAME, _FEW = 14, 6, 4
_ENDED: tuple[State, ...] = ("completed", "failed", "stopped")
_BAD: tuple[State, ...] = ("failed", "lost")
_ASCII = str.maketrans("▁▂▃▄▅▆▇█", "_.-~=+*#")


@dataclass(frozen=True, slots=True)
class Layout:
    """What there is room for. `height` None: for all rows."""

    width: int = 10_000
    height: int | None = None
    unicode: bool = True


@dataclass(frozen=True, slots=True)
class _Column:
    """`rank`: those with the highest are left out first as width requires. `at_least`: the
    width that a long text can be cut to; 0: its whole width."""

    title: str
    rank: int
    cell: Callable[[WatchRow], str]
    to_the_right: bool = False
    at_least: int = 0


def lines(answer: WatchAnswer, layout: Layout) -> list[str]:
    """The table, a line for each run and one for all, none longer than `layout.width`.

    Columns are left out, the least important first, and names cut, until it fits; runs beyond
    the height are counted.
    """
    rows, left_out = _within(answer.runs, layout.height)
    table = [line.rstrip() for line in _table(rows, layout.width)] if rows else ["No runs yet."]
    if left_out:
        table.append(f"and {left_out} more")
    table += ["", _total(answer)]
    shown = [line[: layout.width] for line in table]
    return shown if layout.unicode else [_without_unicode(line) for line in shown]


def takes_unicode(environment: Mapping[str, str]) -> bool:
    """Whether the locale's letters are Unicode's; nothing said counts as yes."""
    named = next(
        (environment[name] for name in ("LC_ALL", "LANG", "LC_CTYPE") if environment.get(name)), ""
    )
    return not named or "utf" in named.lower()


def _within(rows: Sequence[WatchRow], height: int | None) -> tuple[Sequence[WatchRow], int]:
    """The rows that there is room for, beside title, total and the line about the others."""
    most = len(rows) if height is None else max(1, height - 3)
    if len(rows) <= most:
        return rows, 0
    most = max(1, most - 1)
    return rows[:most], len(rows) - most


def _table(rows: Sequence[WatchRow], width: int) -> list[str]:
    columns = [(column, [column.title, *map(column.cell, rows)]) for column in _COLUMNS]
    used = [(column, cells) for column, cells in columns if column.rank < 4 or any(cells[1:])]
    while (excess := _width(used) - width) > 0:
        name, cells = used[0]
        room = max(map(len, cells)) - excess
        if room >= (_SHORT_NAME if len(used) > _FEW else _SHORTEST_NAME):
            used[0] = (name, [cell[:room] for cell in cells])
        elif len(used) == 1:
            break
        else:
            used.remove(max(used, key=lambda pair: pair[0].rank))
    return _joined(used)


def _width(columns: Sequence[tuple[_Column, Sequence[str]]]) -> int:
    """What the columns need at least; of the last one the rest may be cut."""
    widths = [max(map(len, cells)) for _, cells in columns]
    widths[-1] = min(widths[-1], columns[-1][0].at_least or widths[-1])
    return sum(widths) + _GAP * (len(widths) - 1)


def _joined(columns: Sequence[tuple[_Column, Sequence[str]]]) -> list[str]:
    padded = []
    for column, cells in columns:
        width = max(map(len, cells))
        padded.append(
            [cell.rjust(width) if column.to_the_right else cell.ljust(width) for cell in cells]
        )
    return [(" " * _GAP).join(row) for row in zip(*padded, strict=True)]


def _step(row: WatchRow) -> str:
    if row.target_step is None:
        return str(row.step)
    return f"{row.step}/{row.target_step}"


def _figure(number: object) -> str:
    return "" if number is None else number_text(number)


def _eta(row: WatchRow) -> str:
    return "" if row.eta_s is None else rough_duration(row.eta_s)


def _speed(row: WatchRow) -> str:
    return _figure(row.tokens_per_s)


def _cost(row: WatchRow) -> str:
    return "" if row.usd is None else usd_text(row.usd)


def _total(answer: WatchAnswer) -> str:
    states = Counter(row.state for row in answer.runs)
    ended = sum(states[state] for state in _ENDED)
    words = [f"{len(answer.runs) - ended} open", f"{ended} ended"]
    words += [f"{states[state]} {state}" for state in _BAD if states[state]]
    if answer.usd_per_h is not None:
        words.append(f"instances cost {usd_text(answer.usd_per_h)}/h")
    return ", ".join(words)


def _without_unicode(line: str) -> str:
    return line.translate(_ASCII).encode("ascii", errors="replace").decode()


_COLUMNS = (
    _Column("run", 0, lambda row: printable(row.name)[:_LONGEST_NAME]),
    _Column("state", 1, lambda row: row.state),
    _Column("step", 2, _step, to_the_right=True),
    _Column("loss", 3, lambda row: _figure(row.loss), to_the_right=True),
    _Column("curve", 6, lambda row: sparkline(row.curve)),
    _Column("to go", 5, _eta, to_the_right=True),
    _Column("tok/s", 7, _speed, to_the_right=True),
    _Column("$", 8, _cost, to_the_right=True),
    _Column("findings", 4, lambda row: printable(", ".join(row.findings)), at_least=14),
)
