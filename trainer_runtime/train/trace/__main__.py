"""`python -m trainer_runtime.train.trace FOLDER WITHIN_S`: the memory of a training's step.

FOLDER has the training's config.json and train.py. No data, weights or GPU are needed. The last
line of the output is the `MemoryTrace`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.train.foreign.process_limits import limit_process
from trainer_runtime.train.sample.bounded import answer_within, yield_to_training


def main(folder: Path, within_s: float) -> int:
    """Trace what the folder describes; the exit code."""
    limit_process([])

    def answer(_: float) -> MemoryTrace:
        from trainer_runtime.train.trace.traced import traced

        yield_to_training()
        return traced(folder)

    return answer_within(within_s, answer)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
