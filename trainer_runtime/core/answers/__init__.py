"""What `python -m trainer_runtime VERB` prints as JSON: a class each, for the host and the client.

`of` reads an answer, `to_dict` makes its JSON. Fields that are not known are ignored, since host
and client may be of different versions.
"""

from __future__ import annotations
