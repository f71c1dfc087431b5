"""A plan as a file for another engine, which then runs it without our supervision."""

from trainmaster.plan.export.engine_file import ENGINES, EngineFile, engine_file

__all__ = ["ENGINES", "EngineFile", "engine_file"]
