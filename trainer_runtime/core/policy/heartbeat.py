"""How often a supervisor reports, and how long a host may be silent.

A heartbeat is a journal line. The figures are shared: the host writes by them, the client judges by
them.
"""

from __future__ import annotations

HEARTBEAT_S = 10.0
# Three missing heartbeats: what is shown may be out of date.
UNCONFIRMED_AFTER_S = 3 * HEARTBEAT_S
# So long those of a run that nobody waits for may lie in the client's mirror alone.
INGEST_EVERY_S = 30.0
# A killed supervisor is started again by the next process that acts; longer silence is `lost`.
LOST_AFTER_S = 12 * HEARTBEAT_S
