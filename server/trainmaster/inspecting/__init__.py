"""Looking at a run that seems to hang: stacks, processes, GPUs, and what they add up to."""

from trainmaster.inspecting.answer import InspectionAnswer, RanksSeen
from trainmaster.inspecting.service import inspect_run

__all__ = ["InspectionAnswer", "RanksSeen", "inspect_run"]
