"""A program that is run as it is: its files, ranks and checkpoints are its own."""

from __future__ import annotations

from trainer_runtime.core.frameworks.framework import Framework

FRAMEWORK = Framework(name="script", output="program", launcher="python", is_patched=False)
