"""The host's side of Trainmaster: what travels in every bundle and runs beside the training.

Python 3.10 or newer and its standard library; torch only below `train/`. Nothing here imports
`trainmaster`: a bundle works where Trainmaster is not installed.
"""

__version__ = "0.1.0"
