"""`python -m trainer_runtime.train.foreign.whole FILE…`: opens archives of `torch.save` and
safetensors safely.

Prints `{"problem": …}` where one can't be read or holds NaN, else `{"step": …}` with the step that
one of them names, if any. An archive that names code, as many hold their arguments, is not read:
its CRC-32 alone speaks for it. Runs by an interpreter of the program's own; ends with 3 where that
has no PyTorch, which is not a problem of the files.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainer_runtime.train.foreign.process_limits import limit_process

NO_TORCH = 3
_NAMES = ("iter_num", "global_step", "step", "iteration", "iter", "steps", "step_count")


def main(paths: list[str]) -> int:
    if find_spec("torch") is None:
        return NO_TORCH
    from trainer_runtime.train.foreign.archives import read_archive, read_weights
    from trainer_runtime.train.foreign.records import NamesCodeError, UnusableError

    step: int | None = None
    try:
        for path in paths:
            with suppress(NamesCodeError):
                is_weights = path.endswith(".safetensors")
                content = (read_weights if is_weights else read_archive)(Path(path))
                _refuse_nan(content, Path(path).name)
                own_step = _step_in(content)
                step = own_step if step is None else step
    except UnusableError as error:
        print(json.dumps({"problem": str(error)}))
        return 0
    print(json.dumps({"step": step}))
    return 0


def _refuse_nan(content: Any, file: str) -> None:
    """Infinities are let through: masks hold them.

    Raises:
        UnusableError: a tensor holds NaN.
    """
    import torch

    from trainer_runtime.train.foreign.archives import tensors_within
    from trainer_runtime.train.foreign.records import UnusableError

    for name, tensor in tensors_within(content):
        if tensor.is_floating_point() and math.isnan(tensor.sum(dtype=torch.float64).item()):
            raise UnusableError(f"{file}: {name} holds NaN")


def _step_in(content: Any) -> int | None:
    """The step that the top of a checkpoint names, or its `state` or `trainer` below that."""
    if not isinstance(content, Mapping):
        return None
    nested = (content.get("state"), content.get("trainer"))
    for holder in (content, *(mapping for mapping in nested if isinstance(mapping, Mapping))):
        for name in _NAMES:
            value: Any = holder.get(name)
            if hasattr(value, "numel") and value.numel() == 1:
                value = value.item()
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
    return None


if __name__ == "__main__":
    limit_process(map(Path, sys.argv[1:]))
    sys.exit(main(sys.argv[1:]))
