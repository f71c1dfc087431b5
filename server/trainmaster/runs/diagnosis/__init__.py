"""Diagnoses runs and logs, and offers patches.

A run is diagnosed on its host, once; `diagnose_run.py` reads that from the run's record and adds
damage that the checkpoint index shows. `diagnose_file.py` diagnoses the log of any training by the
same core. `patches.py` finds the patch for a resume, `attempts.py` lists each attempt's changes.
All text comes from closed catalogues; only `evidence` holds text of a log.
"""
