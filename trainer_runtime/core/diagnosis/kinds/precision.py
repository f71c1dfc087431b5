"""Types of numbers and shapes that don't go together, on a GPU or the CPU."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording
from trainer_runtime.core.diagnosis.traceback_text import Phase

KINDS = (
    Kind(
        "dtype_mismatch",
        "Tensors of different types (such as bf16 and fp32) meet in one operation.",
        (
            "Load model and adapter in one dtype, or run the step under autocast of that dtype.",
            "Modules in fp32 beside a half-precision model (norms, lm_head, a value head) need a "
            "cast.",
        ),
        (
            Wording(
                r"\bmat1 and mat2 (?:must|to) have the same dtype"
                r"|\bexpected m(?:at)?1 and m(?:at)?2 to have the same dtype"
                r"|\bexpected scalar type \w+ but found \w+"
                r"|\bInput type \(.{1,60}\) and (?:weight|bias) type \(.{1,60}\) should be the same"
                r"|\bIndex put requires the source and destination dtypes match",
                "RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float\n",
                "PyTorch, aten/src/ATen/native/LinearAlgebra.cpp",
            ),
        ),
    ),
    Kind(
        "no_gradient",
        "No parameter that is trained takes part in the loss, so there is nothing to derive.",
        (
            "With activation checkpointing and an adapter call `enable_input_require_grads()`, or "
            "use `use_reentrant: false`.",
            "Check that the adapter's modules exist and are not frozen.",
        ),
        (
            Wording(
                r"\belement 0 of tensors does not require grad and does not have a grad_fn",
                "RuntimeError: element 0 of tensors does not require grad and does not have a "
                "grad_fn\n",
                "PyTorch, torch/csrc/autograd/python_engine.cpp",
            ),
        ),
    ),
)
