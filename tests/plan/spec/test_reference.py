"""What the spec's annotations say: its page, its schema, who may change a field."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.pages.spec import reference
from trainer_runtime.core.policy.patch import BOX_FIELDS
from trainmaster.plan.spec import (
    TrainingSpec,
    all_fields,
    changes_of,
    load_spec,
)

_DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_a_spec_cannot_be_changed_after_loading(small_spec: str) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_spec(small_spec).seed = 1


def test_every_field_is_annotated_and_described() -> None:
    for field in all_fields():
        assert field.info.description, field.path
        assert field.annotation.changes in ("never", "resume", "box")
        assert field.accepts


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("optimizer.lr", "box"),
        ("batch.micro_batch", "box"),
        ("steps", "resume"),
        ("model.n_layer", "never"),
        ("data.sources.main.weight", "resume"),
        ("data.sources[0].path", "never"),
        ("env.NCCL_DEBUG", "resume"),
        ("batch.accumulation", None),
        ("nothing", None),
    ],
)
def test_a_path_of_the_config_names_who_may_change_it(path: str, changes: str | None) -> None:
    assert changes_of(path) == changes


def test_the_reference_page_is_the_generated_one() -> None:
    assert (_DOCS / "spec.md").read_text() == reference()


def test_the_spec_has_a_json_schema() -> None:
    assert TrainingSpec.model_json_schema()["additionalProperties"] is False


def test_the_box_may_change_by_itself_what_the_annotations_say() -> None:
    of_config_alone = {"batch.accumulation", "checkpoint.every_is_auto"}
    sections = {field.path.rpartition(".")[0] for field in all_fields()}
    annotated = {
        field.path
        for field in all_fields()
        if field.annotation.changes == "box" and field.path not in sections
    }
    assert annotated | of_config_alone == BOX_FIELDS
