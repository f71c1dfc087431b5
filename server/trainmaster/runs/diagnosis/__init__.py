"""What is wrong with a run or in a log, and what can be done about it.

A run is diagnosed on its box, once; `of_run.py` reads that from the run's record and adds what only
the checkpoint index tells. `of_file.py` diagnoses a log of anybody's training by the same core.
`patches.py` finds the patch that a resume is to apply, `attempts.py` tells what each attempt
changed. What is told comes from closed catalogues; only `evidence` holds text of a log.
"""
