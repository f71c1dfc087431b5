"""Whether a spec can continue from a checkpoint: same framework, same model, steps left."""

from __future__ import annotations

from trainer_runtime.core.config import ConfigChanges, ConfigDocument
from trainer_runtime.core.frameworks import framework_of
from trainmaster.errors.errors import Problem, SpecError


def refuse_another_framework(framework: str, output: str) -> None:
    """Raises:
    SpecError: `SHAPE_DIFFERS`, the spec's framework doesn't read what the output's has written.
    """
    if framework_of(framework).output == framework_of(output).output:
        return
    raise SpecError(
        "SHAPE_DIFFERS",
        f"`framework` is {framework}, but the folder was written by {output}.",
        f"Set framework: {output}; or begin a new run of {framework} from its weights.",
        field="framework",
    )


def refuse_another_shape(config: ConfigDocument, shape: ConfigChanges) -> None:
    """Raises:
    SpecError: `SHAPE_DIFFERS`, listing each field that differs; a size that the config leaves open
        is the checkpoint's.
    """
    problems = []
    for field, expected in shape.items():
        section, _, name = field.partition(".")
        value = config[section].get(name)
        if value is not None and value != expected:
            problems.append(
                Problem(
                    "SHAPE_DIFFERS",
                    field,
                    f"`{field}` is {value}, but the checkpoint's is {expected}.",
                    f"Set {field}: {expected}.",
                )
            )
    if problems:
        raise SpecError.listing(problems)


def refuse_no_steps(steps: int, step: int) -> None:
    """Raises:
    SpecError: `INVALID_VALUE`, the checkpoint is at the spec's last step, or beyond.
    """
    if steps <= step:
        raise SpecError(
            "INVALID_VALUE",
            f"`steps` is {steps}, and the checkpoint is of step {step}: nothing is left to do.",
            f"Count the steps already done: more than {step}.",
            field="steps",
        )
