"""The spec: what to train, as the user writes it, and everything that is known about its fields."""

from trainmaster.spec.annotations import Annotation, Changes, Section
from trainmaster.spec.attached import read_attached, refuse_other_files
from trainmaster.spec.document import TrainingSpec
from trainmaster.spec.fields import Field, all_fields, changes_of
from trainmaster.spec.load import load_spec
from trainmaster.spec.reference import reference_markdown
from trainmaster.spec.running import EnvironmentSpec
from trainmaster.spec.support import refuse_what_is_not_built
from trainmaster.spec.training import GPT2_PRESETS, ModelSpec, SourceSpec

__all__ = [
    "GPT2_PRESETS",
    "Annotation",
    "Changes",
    "EnvironmentSpec",
    "Field",
    "ModelSpec",
    "Section",
    "SourceSpec",
    "TrainingSpec",
    "all_fields",
    "changes_of",
    "load_spec",
    "read_attached",
    "reference_markdown",
    "refuse_other_files",
    "refuse_what_is_not_built",
]
