"""Reads a spec and checks it; `plan.fields` has its fields."""

from trainmaster.plan.fields.annotations import Annotation, Changes, Section
from trainmaster.plan.fields.compute import EnvironmentSpec
from trainmaster.plan.fields.data import SourceSpec, ValidationSpec
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.field_tree import RESOLVED_ONLY, Field, all_fields, changes_of
from trainmaster.plan.fields.model import AdapterSpec, ModelSpec
from trainmaster.plan.fields.running import NO_MIRROR
from trainmaster.plan.spec.attached import ATTACHED_NAMES, read_attached, refuse_other_files
from trainmaster.plan.spec.container_checks import SHM_SIZE
from trainmaster.plan.spec.load import load_spec
from trainmaster.plan.spec.lookup import field_lines, framework_asked_about
from trainmaster.plan.spec.support import refuse_what_is_not_built
from trainmaster.plan.spec.tracking import missing_secrets

__all__ = [
    "ATTACHED_NAMES",
    "NO_MIRROR",
    "RESOLVED_ONLY",
    "SHM_SIZE",
    "AdapterSpec",
    "Annotation",
    "Changes",
    "EnvironmentSpec",
    "Field",
    "ModelSpec",
    "Section",
    "SourceSpec",
    "TrainingSpec",
    "ValidationSpec",
    "all_fields",
    "changes_of",
    "field_lines",
    "framework_asked_about",
    "load_spec",
    "missing_secrets",
    "read_attached",
    "refuse_other_files",
    "refuse_what_is_not_built",
]
