"""Parses the log of any training: bytes in, points and events out.

`LogParser` is the entry point. `line.py` reads one line with the `dialects/`. `shapes.py` sorts the
lines of a block by shape; `template_learning.py` learns a `template.py` from a line, which reads
all lines of that shape in bulk. `clock.py` assigns steps and segments, mostly through
`bulk_clock.py`; `logged_steps.py` infers the steps of lines that contain none, `bars.py` finds the
progress bar next to them.
"""

from trainer_runtime.core.diagnosis.parse.coverage import Coverage
from trainer_runtime.core.diagnosis.parse.parser import LogParser
from trainer_runtime.core.diagnosis.parse.points import Batch, LogEvent, Parsed, Point

__all__ = ["Batch", "Coverage", "LogEvent", "LogParser", "Parsed", "Point"]
