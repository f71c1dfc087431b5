"""The ways to a machine over SSH."""

from trainmaster.transports.transport import Completed, Stream, Transport

__all__ = ["Completed", "Stream", "Transport"]
