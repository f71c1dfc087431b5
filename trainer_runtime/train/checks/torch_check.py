"""Whether PyTorch computes here: `PYTHON -m trainer_runtime.train.checks.torch_check cpu|cuda`.

Run as a process of its own, since a broken PyTorch may raise, hang or take the process with it.
"""

from __future__ import annotations

import gc
import json
import sys

_SIZE = 64


def check(device: str) -> dict[str, str]:
    """The version, after a product on the device that came out right.

    Raises:
        Exception: whatever PyTorch raises where it is broken.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        built_for = torch.version.cuda
        raise RuntimeError(
            f"PyTorch {torch.__version__}, built for CUDA {built_for}, sees no GPU"
            if built_for
            else f"PyTorch {torch.__version__} was built without CUDA"
        )
    ones = torch.ones(_SIZE, _SIZE, device=device)
    if float((ones @ ones).sum()) != _SIZE**3:
        raise RuntimeError(f"PyTorch {torch.__version__} computes wrongly on {device}")
    return {"version": str(torch.__version__)}


if __name__ == "__main__":
    gc.disable()  # and with what is imported frozen, its exit takes half a second less
    answer = check(sys.argv[1])
    gc.freeze()
    print(json.dumps(answer))
