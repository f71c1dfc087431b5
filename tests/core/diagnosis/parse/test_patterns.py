"""Patterns that teach the shape of a log's lines."""

from __future__ import annotations

import math

import pytest

from trainer_runtime.core.diagnosis.parse import LogParser, Point
from trainer_runtime.core.diagnosis.parse.pattern import PatternError, patterns_of
from trainer_runtime.core.diagnosis.parse.pattern_draft import drafted

_EXAMPLE = "it {step}/{target} L={loss} lr {lr}"
_LINE = "[ep {} | it {}/400] L={:.2f} lr 1e-3 ({:.1f}k tok/s)"


def log(count: int = 20) -> str:
    lines = [
        _LINE.format(1 + i // 11, i * 20, 3.2 - i / 100, 12 + i / 10) for i in range(1, 1 + count)
    ]
    return "\n".join(lines) + "\n"


def read(text: str, pattern: str, cut: int = 1 << 20) -> tuple[LogParser, list[Point]]:
    parser, data = LogParser(patterns=patterns_of(pattern)), text.encode()
    parsed = [parser.feed(data[at : at + cut]) for at in range(0, len(data), cut)]
    return parser, [point for part in (*parsed, parser.close()) for point in part]


def series(points: list[Point], key: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in points if point.key == key]


@pytest.mark.parametrize(
    "pattern",
    [
        _EXAMPLE,
        "[ep {epoch} | it {step}/{target}] L={loss} lr {lr} ({tokens_per_s}k tok/s)",
        r"it (?P<step>\d+)/(?P<target>\d+)\] L=(?P<loss>\S+) lr (?P<lr>\S+)",
        r"^.*it (?P<step>\d+)/(?P<target>\d+).*L=(?P<loss>[\d.]+).*lr (?P<lr>.+?) ",
    ],
)
def test_an_example_or_an_expression_teaches_a_shape(pattern: str) -> None:
    parser, points = read(log(), pattern)
    assert series(points, "loss") == [(i * 20, pytest.approx(3.2 - i / 100)) for i in range(1, 21)]
    assert series(points, "lr") == [(i * 20, 1e-3) for i in range(1, 21)]
    assert parser.total_steps == 400
    assert (parser.coverage.lines_taught, parser.coverage.lines_with_numbers) == (20, 20)


def test_a_taught_shape_is_read_alike_however_it_is_cut_and_in_bulk() -> None:
    pattern = "[ep {epoch} | it {step}/{target}] L={loss} lr {lr} ({tokens_per_s}k tok/s)"
    whole = read(log(3000), pattern)[1]
    assert read(log(3000), pattern, cut=37)[1] == whole
    assert series(whole, "tokens_per_s")[0] == (20, pytest.approx(12_100))
    assert len(whole) == 4 * 3000


def test_other_lines_are_read_as_before() -> None:
    text = log(2) + "step 41: validation loss 3.5\n" + "eval: 3.25 bits\n"
    _, points = read(text, f"{_EXAMPLE}\neval: {{val_loss}} bits")
    assert series(points, "val_loss")[-1] == (41, 3.25)


def test_units_nan_and_names_of_its_own_are_read() -> None:
    text = "u=1,000 L=nan t=250ms q=7\nu=1,001 L=2.5 t=300ms q=8\n"
    _, points = read(text, "u={step} L={loss} t={step_time_s}ms q={own_quality}")
    assert [step for step, _ in series(points, "loss")] == [1000, 1001]
    assert math.isnan(series(points, "loss")[0][1])
    assert series(points, "step_time_s") == [(1000, 0.25), (1001, 0.3)]
    assert series(points, "quality") == [(1000, 7.0), (1001, 8.0)]


def test_steps_that_restart_in_each_epoch_have_names_of_their_own() -> None:
    text = "".join(f"E{e} b {b}/5 L=1.{e}{b}\n" for e in (1, 2, 3) for b in range(1, 6))
    _, points = read(text, "E{epoch} b {epoch_step}/{epoch_steps} L={loss}")
    assert [step for step, _ in series(points, "loss")] == list(range(1, 16))


def test_a_step_is_not_made_of_a_part_of_a_number() -> None:
    _, points = read("it 2.5 L=3\nit 7 L=3\n", "it {step} L={loss}")
    assert series(points, "loss") == [(7, 3.0)]


def test_the_state_keeps_the_patterns() -> None:
    parser = LogParser(patterns=patterns_of(_EXAMPLE))
    first = list(parser.feed(log(3).encode()[:70]))
    parser = LogParser.from_dict(parser.to_dict())
    rest = list(parser.feed(log(3).encode()[70:]))
    assert [step for step, _ in series(first + rest, "loss")] == [20, 40, 60]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("", "is empty"),
        ("it 20/400 L=3.2", "has no placeholder"),
        ("it {step} L={los}", "{los}"),
        ("L={loss}", "has a loss but no step"),
        ("it {step}{loss}", "side by side"),
        ("it {step} {step} {loss}", "twice"),
        ("{any} {target}", "names nothing to read"),
        ("{epoch_step} L={loss}", "without {epoch}"),
        (r"it (?P<step>\d+ (?P<loss>\S+)", "not a regular expression"),
        (r"(?P<step>\d+)?(?P<loss>\d+)?", "matches the empty line"),
        ("x" * 501 + "{step}", "characters"),
    ],
)
def test_what_teaches_nothing_is_refused_with_a_remedy(pattern: str, says: str) -> None:
    with pytest.raises(PatternError) as refused:
        patterns_of(pattern)
    assert says in str(refused.value)
    assert refused.value.fix
    assert not refused.value.is_slow


@pytest.mark.parametrize(
    "expression",
    [
        r"(?P<step>(\d+)+)x(?P<loss>\d+)",
        r"(a|aa)+(?P<step>\d+) (?P<loss>\d+)",
        r"(\w+\s?)*(?P<step>\d+)x (?P<loss>\d+)",
        r"\s*\s*\s*\s*(?P<step>\d+)x (?P<loss>\d+)",
        r"x.*y.*z.*(?P<step>\d+) (?P<loss>\d+)",
        r"(?P<step>\d+) (?P<loss>\d+) \1",
    ],
)
def test_an_expression_that_may_take_without_bound_is_refused_unread(expression: str) -> None:
    with pytest.raises(PatternError) as refused:
        patterns_of(expression)
    assert refused.value.is_slow


def test_what_is_accepted_takes_a_bounded_time_on_any_line() -> None:
    expression = r"(?P<step>\d+).*L.*(?P<loss>\d+\.\d+)x"
    for text in ("1", "1L=", "1 L=1 ", "L.", " "):
        read(text * 20_000 + "\n", expression)  # would take hours


@pytest.mark.parametrize(
    ("line", "draft"),
    [
        (
            "[ep 1 | it 20/400] L=3.20 lr 1e-3 (12.4k tok/s)",
            "[ep {epoch} | it {step}/{target}] L={loss} lr {lr} ({tokens_per_s}k",
        ),
        ("12:30:01 GPU0 upd 30 -- nll 2.5 | x 4", "GPU0 upd {step} -- nll {loss}"),
        ("epoch: 1 step: 25, loss is 1.5", "epoch: {epoch} step: {step}, loss is {loss}"),
        ("4:\tlearn: 0.5\ttest: 0.6\ttotal: 9ms", "{step}:\tlearn: {loss}\ttest: {val_loss}"),
        ("loss: 4.1  ppl: 63.3  (0.20s)", "loss: {loss}  ppl: {perplexity} {count}"),
        ("3/5 samples, loss: 4.1", None),
        ("loaded 5 files in 3 s", None),
        ("100/100 - 5s 50ms/step - loss: 7.28 - val_loss: 7.48", None),
    ],
)
def test_a_draft_reads_the_line_that_it_is_made_of(line: str, draft: str | None) -> None:
    found = drafted([line])
    assert found == draft
    if found is not None:
        assert series(read(line + "\n", found)[1], "loss")
