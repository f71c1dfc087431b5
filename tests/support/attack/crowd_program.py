"""Opens connections that never end their header: `PORT COUNT TEXT`. Ends with its stdin, or after
two minutes."""

from __future__ import annotations

import resource
import select
import socket
import sys
import time

_LONGEST_S = 120.0
_AT_ONCE = 200
# Of those that the server ended.
_AGAIN_A_SECOND = 200


def connect(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def main() -> None:
    port, count, text = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode("latin-1")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))
    poll, held = select.epoll(), {}
    opened, attempts, began = 0, 0, time.monotonic()
    poll.register(sys.stdin, select.EPOLLIN)
    announced = False
    while (passed_s := time.monotonic() - began) < _LONGEST_S:
        allowed = count + int(passed_s * _AGAIN_A_SECOND) - attempts
        for _ in range(min(_AT_ONCE, allowed, count - len(held))):
            attempts += 1
            connection = connect(port)
            held[connection.fileno()] = connection
            poll.register(connection, select.EPOLLOUT | select.EPOLLRDHUP)
        for number, what in poll.poll(0.05, 1000):
            if number not in held:
                return  # stdin has ended
            if what & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
                poll.unregister(number)
                held.pop(number).close()
                continue
            opened += 1
            try:
                held[number].send(text)
            except OSError:
                continue
            poll.modify(number, select.EPOLLRDHUP)
        if not announced and opened >= count:
            announced = True
            print("opened", opened, flush=True)


main()
