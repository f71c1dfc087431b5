"""The spec derived from an output folder, as far as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer_runtime.core.config import ConfigChanges
from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.files.foreign_output import FoundCheckpoint
from trainmaster.backends import LOCAL
from trainmaster.home.user_paths import user_path
from trainmaster.plan.frameworks import FRAMEWORKS
from trainmaster.runs.adopt.output_folder import Output
from trainmaster.settings.yaml12 import dump_yaml

DATA = "data.sources[].path"
_FILL_IN = {
    DATA: "what it trains on, a file or folder; with `format: tokens` where they are ready tokens",
    "data.tokenizer": "the tokens that the model was trained on: byte, a folder or a hub name; "
    "ready tokens need none",
    "steps": "how many optimizer steps in all, those already done included",
    "data.seq_len": "tokens in a sequence",
    "schedule.kind": "the shape of the learning rate; Trainer's own default is linear",
    "optimizer.lr": "the highest learning rate of the schedule",
    "batch.tokens": "tokens of one optimizer step, over all devices and accumulation",
    "precision": "fp32, bf16 or fp16",
}
_HEADER = """\
# The training in {folder} as a spec: {framework}, step {step}.
# Continue it with: trainmaster adopt {folder} --spec THIS_FILE
"""


def starting_spec(
    output: Output,
    checkpoint: FoundCheckpoint,
    name: str,
    data: str | None,
    derived: ConfigChanges | None = None,
) -> tuple[str, list[str]]:
    """The spec's text, and the fields in it that still have to be filled in.

    `data`: the one source's path, where it is given. `derived`: fields besides those that the
    folder describes, see `schedule_continuation`.
    """
    described = dict(output.found.described)
    if "model.path" in described and output.host != LOCAL:
        described["model.path"] = f"{ON_BOX}{described['model.path']}"
    fields: dict[str, Any] = {
        "name": name,
        "framework": output.framework,
        **described,
        **(derived or {}),
        "host": output.host,
    }
    needed = [*([DATA] if data is None else []), *output.found.open]
    if not isinstance(fields.get("steps"), int) or fields["steps"] < 1:
        fields.pop("steps", None)
        needed.append("steps")
    document = _nested(fields)
    document.setdefault("data", {})["sources"] = [_source(data, output.framework)]
    header = _HEADER.format(folder=output.folder, framework=output.framework, step=checkpoint.step)
    unknown = [field for field in _FILL_IN if field not in (*fields, *needed, DATA)]
    return header + _remarks(needed, unknown) + dump_yaml(document), needed


def _source(data: str | None, framework: str) -> dict[str, str]:
    """The one source; where a framework needs no tokenizer, its own scripts have cut the data."""
    if data is None:
        return {"path": "FILL_IN"}
    if FRAMEWORKS[framework].trains_without_tokenizer and not data.startswith(ON_BOX):
        path = user_path(data, "data")
        if path.suffix == ".bin" or (path / "train.bin").is_file():
            return {"path": data, "format": "tokens"}
    return {"path": data}


def _remarks(needed: Sequence[str], unknown: Sequence[str]) -> str:
    """Comments on the fields to fill in, and on those left to defaults."""
    lines = [f"# Fill in {field}: {_FILL_IN[field]}." for field in needed]
    lines += [f"# Not recorded, so the default counts: {f} ({_FILL_IN[f]})." for f in unknown]
    return "".join(f"{line}\n" for line in lines)


def _nested(fields: ConfigChanges) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, value in fields.items():
        *sections, last = path.split(".")
        section = document
        for part in sections:
            section = section.setdefault(part, {})
        section[last] = value
    return document
