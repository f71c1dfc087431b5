"""Machines with a shell: the port that backends reach them by."""

from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.local import LocalHost
from trainmaster.backends.ssh import Completed, Stream

__all__ = ["Completed", "Host", "LocalHost", "Stream"]
