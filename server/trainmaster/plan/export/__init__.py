"""A plan as a file for another engine, which then runs it without our supervision."""

from trainmaster.plan.export.engine_file import ENGINES, Engine, EngineFile, engine_file
from trainmaster.plan.export.needs import for_another_machine, without_job

__all__ = ["ENGINES", "Engine", "EngineFile", "engine_file", "for_another_machine", "without_job"]
