"""Machines with a shell: the port that backends reach them by."""

from trainmaster.hosts.host import Completed, Host
from trainmaster.hosts.local import LocalHost

__all__ = ["Completed", "Host", "LocalHost"]
