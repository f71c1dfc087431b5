"""Reads the log of any training: bytes in, points and events out.

`LogParser` is the whole of it. Below: `line.py` reads one line by the `dialects/`; `template.py`
learns a line's shape so that its like are read in bulk; `shapes.py` tells shapes and noise apart;
`clock.py` settles steps and segments; `bars.py` finds the steps of lines that have none.
"""

from trainer_runtime.core.diagnosis.parse.coverage import Coverage
from trainer_runtime.core.diagnosis.parse.parser import LogParser
from trainer_runtime.core.diagnosis.parse.points import Batch, LogEvent, Parsed, Point

__all__ = ["Batch", "Coverage", "LogEvent", "LogParser", "Parsed", "Point"]
