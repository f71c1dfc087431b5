"""Machines with a shell: the port that backends reach them by."""

from trainmaster.hosts.host import Host
from trainmaster.hosts.local import LocalHost
from trainmaster.transports import Completed, Stream

__all__ = ["Completed", "Host", "LocalHost", "Stream"]
