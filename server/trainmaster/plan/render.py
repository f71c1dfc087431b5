"""Renders a plan into the bundle that is placed on the host: the one place that does.

train.py is rendered by choices alone, train.sh is the same for every run: each value stands in
config.json, which both read.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.protocol.lines import ATTACHED
from trainer_runtime.core.records import dataclass
from trainmaster.home.assets import Assets, read_package
from trainmaster.plan import Decision, Plan
from trainmaster.plan.job_script import job_files
from trainmaster.plan.script import training_script
from trainmaster.settings.yaml12 import dump_yaml

_WIDTH = 96
# Where a decision's field has another name in the config.
_IN_CONFIG = {"limits.max_runtime": "limits.max_runtime_s"}
_HEADER = """\
# The resolved configuration of this run, with the reason for each value that was decided.
# For reading: the trainer itself reads config.json.
"""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files by their path below the run's folder; `executable` are the paths to run directly."""

    files: Mapping[str, bytes]
    executable: frozenset[str]

    def mode(self, path: str) -> int:
        """The permissions of a file."""
        return 0o755 if path in self.executable else 0o644


def render(plan: Plan, run_id: str, assets: Assets) -> Bundle:
    """The bundle of a plan under a run's id; the same bytes for the same input.

    Raises:
        UnknownChoiceError, jinja2.UndefinedError: see `training_script`.
    """
    config = {**plan.config, "run_id": run_id}
    return _bundle(config, plan.decisions, plan.requirements, plan.attached, assets)


def render_recorded(document: ConfigDocument, made: Mapping[str, Any], assets: Assets) -> Bundle:
    """The bundle of a run on record: of its configuration, and of what it keeps of its plan; what
    is placed to watch a training that others started, where it is one.

    Raises:
        UnknownChoiceError, jinja2.UndefinedError: see `training_script`.
    """
    if document.get("framework") == ATTACHED:
        return render_attached(document, assets)
    decisions = tuple(Decision(**item) for item in made["decisions"])
    attached = made.get("attached", {})
    return _bundle(document, decisions, made["requirements"], attached, assets)


def _bundle(
    config: ConfigDocument,
    decisions: tuple[Decision, ...],
    requirements: Sequence[str],
    attached: Mapping[str, str],
    assets: Assets,
) -> Bundle:
    first = {name: config[name] for name in ("config_version", "run_id")}
    config = {**first, **config}
    files = {
        "train.sh": (assets.templates / "launch" / "train.sh").read_bytes(),
        "train.py": training_script(config, assets).encode(),
        **{name: text.encode() for name, text in launching.files(RunConfig.parse(config)).items()},
        "training_config.yaml": training_config(config, decisions).encode(),
        "config.json": _json(config),
        "requirements.txt": "".join(f"{line}\n" for line in requirements).encode(),
        **{name: text.encode() for name, text in attached.items()},
        **job_files(config, str(config["run_id"]), assets),
        **_runtime(assets.runtime),
    }
    return Bundle(files=files, executable=frozenset({"train.sh"}))


def render_attached(config: ConfigDocument, assets: Assets) -> Bundle:
    """What is placed to watch a training that others started: its source, and who reads it."""
    files = {"config.json": _json(config), **_runtime(assets.runtime)}
    return Bundle(files=files, executable=frozenset())


def training_config(config: Mapping[str, Any], decisions: tuple[Decision, ...]) -> str:
    """The config as YAML, each decided value under a comment with its reason."""
    reasons = {_IN_CONFIG.get(item.field, item.field): _reason(item) for item in decisions}
    return _HEADER + "".join(_commented(config, reasons, ""))


def _commented(
    section: Mapping[str, Any], reasons: Mapping[str, str], prefix: str
) -> Iterator[str]:
    indent = "  " * prefix.count(".")
    for key, value in section.items():
        path = f"{prefix}{key}"
        if path in reasons:
            yield _comment(reasons[path], indent)
        if isinstance(value, dict) and value:
            yield textwrap.indent(dump_yaml({key: {}}).replace(" {}", ""), indent)
            # A key with dots in it is still one level.
            yield from _commented(value, reasons, f"{prefix}{key.replace('.', '')}.")
        else:
            yield textwrap.indent(_entry(key, value), indent)


def _entry(key: str, value: Any) -> str:
    if isinstance(value, (dict, list)):
        return dump_yaml({key: value})
    return _scalar_entry(key, value, repr(value))


@lru_cache(maxsize=1024)
def _scalar_entry(key: str, value: Any, _written: str) -> str:
    # Each takes PyYAML a millisecond, and a config has a hundred, most as in the plan before.
    return dump_yaml({key: value})


def _comment(text: str, indent: str) -> str:
    lines = textwrap.wrap(text, width=_WIDTH - len(indent))
    return "".join(f"{indent}# {line}\n" for line in lines)


def _reason(decision: Decision) -> str:
    source = f" Source: {decision.source}." if decision.source is not None else ""
    text = f"{decision.reason}{source}"
    # Host and file names come from outside; a line break in one would end the comment.
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


@cache
def _runtime(package: Path) -> Mapping[str, bytes]:
    """As it is when it is first needed: later changes would not fit what this process imported."""
    return read_package(package, ".py", ".lock")
