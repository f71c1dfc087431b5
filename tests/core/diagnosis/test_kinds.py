"""Kinds of failures: each row's own example is recognised, and every row says what helps."""

from __future__ import annotations

from collections import Counter

import pytest

from trainer_runtime.core.diagnosis.kinds import KINDS, Kind, Wording
from trainer_runtime.core.diagnosis.signatures import CATALOGUE, find_in

_WORDINGS = [(kind, wording) for kind in KINDS for wording in kind.wordings]


@pytest.mark.parametrize(
    ("kind", "wording"),
    _WORDINGS,
    ids=[f"{kind.code}-{number}" for number, (kind, _) in enumerate(_WORDINGS)],
)
def test_the_example_of_a_row_is_named_as_its_kind_alone(kind: Kind, wording: Wording) -> None:
    (finding, *others) = find_in([f"{wording.example}\n".encode()])
    assert finding.code == kind.code
    assert finding.explanation.startswith(kind.says)
    assert not [other.code for other in others if other.severity == "critical"]


def test_every_row_says_what_helps_and_where_its_text_comes_from() -> None:
    assert not [kind.code for kind in KINDS if not kind.advice or not kind.says.endswith(".")]
    assert not [kind.code for kind, wording in _WORDINGS if not wording.source]
    assert not [code for code, times in Counter(kind.code for kind in KINDS).items() if times > 1]


def test_rows_name_only_codes_that_there_are() -> None:
    codes = {signature.code for signature in CATALOGUE} | {"unknown_error"}
    named = {code for kind in KINDS for code in (*kind.instead_of, *kind.follows)}
    assert named <= codes


def test_a_kind_that_more_exact_ones_replace_is_said_with_less_confidence() -> None:
    general = {code for kind in KINDS for code in kind.instead_of}
    assert {one.code for one in CATALOGUE if one.confidence > 0.8}.isdisjoint(general)
    assert any(one.confidence == 0.8 for one in CATALOGUE if one.code in general)
