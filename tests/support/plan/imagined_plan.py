"""Plans for GPUs that are not there, of a corpus that isn't either."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from trainer_runtime.core.answers.traced import MemoryTrace
from trainmaster.home.assets import find_assets
from trainmaster.plan import CorpusFacts, Plan, SourceFacts, plan
from trainmaster.plan.imagined import destination_of, spec_for
from trainmaster.plan.script import training_script
from trainmaster.plan.spec import load_spec

_TOKENS = 1 << 31
_SOURCE = SourceFacts(name="a", path="/a", files=1, size_bytes=_TOKENS, tokens=_TOKENS)


def imagined_plan(
    spec: str, on: str = "a100:1", sets: Sequence[str] = (), trace: MemoryTrace | None = None
) -> Plan:
    """`spec`: YAML without its name and data."""
    text = f"name: imagined\ndata: {{sources: [{{path: /a}}]}}\n{spec}"
    destination = destination_of(on)
    corpus = CorpusFacts(sources=(_SOURCE,), fingerprint="ab")
    wanted = spec_for(load_spec(text, sets), destination)
    return plan(wanted, destination.facts, corpus, trace=trace)


def written_plan(folder: Path, spec: str, on: str = "a100:1", *sets: str) -> Plan:
    """The plan, whose script and configuration are then in the folder."""
    made = imagined_plan(spec, on, sets)
    config = {**made.config, "run_id": "imagined"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "train.py").write_text(training_script(config, find_assets()))
    return made
