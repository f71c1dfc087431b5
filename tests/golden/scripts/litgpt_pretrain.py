"""Pretrains a model with LitGPT: its own command, with every value from litgpt.yaml.

    python train.py attempts/1/config.json

trains in the run's folder. `litgpt pretrain --config litgpt.yaml` would train the same model;
`trainer_runtime.train.litgpt.wrapper` adds exact resumes, events and a clean end on signals.
`litgpt generate final` and `litgpt chat final` run the trained model.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trainer_runtime.train.loop import startup

startup.begin_imports()  # from here on, since the imports below may hang too

from trainer_runtime.train.litgpt.wrapper import kept_promises
from trainer_runtime.train.loop.framework_run import FrameworkRun, run


def train(attempt: FrameworkRun) -> None:
    with kept_promises(attempt):
        from litgpt.__main__ import main as litgpt

        sys.argv = ["litgpt", "pretrain", "--config", str(attempt.folder / "litgpt.yaml")]
        litgpt()


if __name__ == "__main__":
    config = Path(sys.argv[1] if len(sys.argv) > 1 else "config.json")
    sys.exit(run(train, config, command="pretrain"))
