"""nanoGPT's way of training, in a script of ours that reads config.json itself."""

from __future__ import annotations

from trainer_runtime.core.config.model import STYLES
from trainer_runtime.core.frameworks.framework import Choice, Framework

FRAMEWORK = Framework(
    name="nanogpt",
    output="nanogpt",
    text_model="nanogpt",
    weights="ours",
    choices=(Choice("style", tuple(STYLES), ("model.style",), lambda config: config.model.style),),
    has_chat_template=False,
)
