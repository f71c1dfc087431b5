"""Where the other frameworks write, as seen from the run's folder."""

from __future__ import annotations

# Beside the checkpoints, on the same disk, so that a finished one is only renamed; what a killed
# process left here is removed at the next start.
WRITING = "checkpoints/.writing-by-framework"
TENSORBOARD = "tensorboard"
