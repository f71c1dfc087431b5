"""SSH transports."""

from trainmaster.backends.ssh.transport import Completed, Stream, Transport

__all__ = ["Completed", "Stream", "Transport"]
