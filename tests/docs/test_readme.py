"""README's two commands: they exist, and the demo stays as short as the page says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from trainmaster.cli.commands.demo import demo_command, demo_spec
from trainmaster.settings.yaml12 import load_yaml

_ROOT = Path(__file__).resolve().parents[2]
# Of a training that takes a quarter of a minute on two cores; the one before it took 11e12.
_MOST_OPERATIONS = 2.5e12


def test_the_readme_gives_commands_that_the_makefile_has() -> None:
    commands = re.findall(r"^ +make (\w+) ", (_ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands[:2] == ["demo", "test"]
    targets = set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(commands) <= targets


def test_the_demo_trains_no_more_than_two_slow_cores_do_in_half_a_minute() -> None:
    steps = inspect.signature(demo_command).parameters["steps"].default
    spec = load_yaml(demo_spec(steps))
    assert isinstance(spec, dict)
    model = spec["model"]
    parameters = 12 * model["n_layer"] * model["d_model"] ** 2
    assert 6 * parameters * spec["batch"]["tokens"] * spec["steps"] <= _MOST_OPERATIONS
