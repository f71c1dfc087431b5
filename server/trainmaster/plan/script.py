"""Renders train.py, a run's training script, by the choices of its config.

No value of the config gets into it: what may change while a run exists stands in config.json alone,
so a patch needs no rendering, and nothing can be injected.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.frameworks import choices_of
from trainer_runtime.core.frameworks.framework import UnknownChoiceError
from trainmaster.home.assets import Assets
from trainmaster.plan.templates import rendered


def training_script(config: ConfigDocument, assets: Assets) -> str:
    """The script of a resolved config: the same text for the same choices.

    Raises:
        UnknownChoiceError: the config asks for a script without a template.
    """
    try:
        parsed = RunConfig.parse(config)
    except DecodingError as error:
        raise UnknownChoiceError(str(error)) from error
    # It refuses an unknown framework before the name becomes a path.
    choices = choices_of(parsed)
    return script_by(parsed.framework, choices, assets)


def script_by(framework: str, choices: Mapping[str, str], assets: Assets) -> str:
    """A framework's script by given choices.

    Raises:
        jinja2.UndefinedError: the template asks for a choice that the framework doesn't have.
    """
    return rendered(assets, f"{framework}/train.py.j2", choices)
