"""What a monitor prints: one event."""

from trainmaster.answers.base import Answer, Number
from trainmaster.answers.fields import field


class MonitorEvent(Answer):
    """A finding, a new state, an end, a host that is lost or back, a lease that ends."""

    t: float = field(description="Unix seconds, by the clock of the host that reported it")
    event: str
    run_id: str | None = None
    name: str | None = field(default=None, description="the run's")
    host: str | None = None
    step: int | None = None
    detail: str | None = None
    finding: str | None = field(default=None, description="its id")
    metrics: dict[str, Number] | None = field(default=None, description="the newest loss")
    next_step: str
