"""Which tests are left to `make test-engines` (CONTRIBUTING.md, "Tests")."""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet


def by_engines(*values: object) -> list[ParameterSet]:
    """Parameters of a test that another engine serves."""
    return [_marked(value, pytest.mark.engine) for value in values]


def at_length(*values: object) -> list[ParameterSet]:
    """Parameters of a test that show at length what those beside them show."""
    return [_marked(value, pytest.mark.long) for value in values]


def _marked(value: object, mark: pytest.MarkDecorator) -> ParameterSet:
    """The parameters of a case; a tuple holds several."""
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=mark)
