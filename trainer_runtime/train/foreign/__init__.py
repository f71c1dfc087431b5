"""Output folders of trainings that others ran: recognised, verified and taken over.

Nothing of them is ever executed: pickles are read with `weights_only=True`, or not at all. The
folders themselves are never changed.
"""
