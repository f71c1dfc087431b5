"""How every template is rendered: one that asks for a name that it is not given fails."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trainmaster.home.assets import Assets


def rendered(assets: Assets, name: str, values: Mapping[str, object]) -> str:
    """A template's text; `name` is its path below the templates' folder.

    Raises:
        jinja2.UndefinedError: the template asks for what is not among the values.
    """
    return _environment(assets.templates).get_template(name).render(values)


@cache
def _environment(templates: Path) -> Environment:
    """It keeps what it compiled, and compiles again what was changed."""
    return Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # values are choices, base64, or match a strict pattern
    )
