"""An authenticated connection between two nodes of a run: bounded messages, and files.

Both ends prove that they know the run's secret by an HMAC over both challenges. From then on every
message carries the HMAC of its number and its content under a key of this connection alone, so
that nothing is taken from anybody in between. What is sent is not encrypted, as the ranks' own
traffic is not.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import BinaryIO

from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields
from trainer_runtime.core.decoding.limits import MAX_RECORD_BYTES

_GREETING_S = 10.0
_SEND_S = 20.0
_DIGEST_CHARS = 64
_LONGEST_FRAME = _DIGEST_CHARS + 1 + MAX_RECORD_BYTES + 1
_PIECE_BYTES = 1 << 20
_SUPERVISOR, _MEMBER = b"supervisor", b"member"


class LinkError(OSError):
    """The other end is gone, silent in the middle of a message, or not who it has to be."""


class Link:
    """One connection after its greeting; `peer`: the name and the kind that a member gave."""

    def __init__(self, connection: socket.socket, *, is_member: bool) -> None:
        self._socket = connection
        self._own, self._other = (_MEMBER, _SUPERVISOR) if is_member else (_SUPERVISOR, _MEMBER)
        self._key = b""
        self._sent = self._received = 0
        self._buffer = bytearray()
        connection.settimeout(_SEND_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def own_address(self) -> str:
        """This end's IP address."""
        return str(self._socket.getsockname()[0])

    def send(self, message: Mapping[str, object]) -> None:
        """Raises: LinkError: it can't be sent."""
        body = json.dumps(message).encode()
        digest = self._digest(self._own, self._sent, body)
        self._sent += 1
        self._send_bytes(digest + b" " + body + b"\n")

    def receive(self, within_s: float) -> Fields | None:
        """The next message; None where none came within so long.

        Raises:
            LinkError: the connection ended, or what came is not a message of the other end.
        """
        line = self._line(within_s)
        if line is None:
            return None
        digest, _, body = line.partition(b" ")
        if not hmac.compare_digest(digest, self._digest(self._other, self._received, body)):
            raise LinkError("a message was not written by the other node")
        self._received += 1
        return _fields(body)

    def send_file(self, file: BinaryIO, size_bytes: int) -> None:
        """Send a file, its digest after it; the other end calls `receive_file`.

        Raises:
            LinkError: it can't be sent.
            OSError: it can't be read, or became shorter.
        """
        self.send({"size": size_bytes})
        hasher, left = hashlib.sha256(), size_bytes
        while left:
            data = file.read(min(_PIECE_BYTES, left))
            if not data:
                raise OSError(f"{file.name} became shorter while it was sent")
            hasher.update(data)
            self._send_bytes(data)
            left -= len(data)
        self.send({"sha256": hasher.hexdigest()})

    def receive_file(self, take: Callable[[memoryview], object]) -> None:
        """Pass the bytes of a file on as they come; a piece is valid until `take` returns.

        Raises:
            LinkError: it did not come whole, or changed on its way.
        """
        header = self._awaited()
        if refused := header.find_text("refused"):
            raise LinkError(refused)
        hasher, left = hashlib.sha256(), header.integer("size")
        room = memoryview(bytearray(min(_PIECE_BYTES, left)))
        while left:
            data = self._piece(room[:left])
            hasher.update(data)
            take(data)
            left -= len(data)
        if self._awaited().text("sha256") != hasher.hexdigest():
            raise LinkError("a file changed on its way")

    def close(self) -> None:
        self._socket.close()

    def _awaited(self) -> Fields:
        message = self.receive(_SEND_S)
        if message is None:
            raise LinkError("the other node is silent")
        return message

    def _digest(self, sender: bytes, number: int, body: bytes) -> bytes:
        said = sender + b" " + str(number).encode() + b" " + body
        return hmac.new(self._key, said, hashlib.sha256).hexdigest().encode()

    def _line(self, within_s: float) -> bytes | None:
        deadline = time.monotonic() + within_s
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _LONGEST_FRAME:
                raise LinkError("a message is too long")
            if not self._read_more(max(0.0, deadline - time.monotonic())):
                return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _piece(self, room: memoryview) -> memoryview:
        """The next bytes of a file, as many as there are and have room."""
        if self._buffer:
            count = min(len(room), len(self._buffer))
            room[:count] = self._buffer[:count]
            del self._buffer[:count]
            return room[:count]
        try:
            if not select.select([self._socket], [], [], _SEND_S)[0]:
                raise LinkError("the other node is silent")
            count = self._socket.recv_into(room)
        except (OSError, ValueError) as error:
            raise LinkError(str(error)) from error
        if not count:
            raise LinkError("the other node closed the connection")
        return room[:count]

    def _read_more(self, within_s: float) -> bool:
        """Whether more came within so long."""
        try:
            if not select.select([self._socket], [], [], within_s)[0]:
                return False
            data = self._socket.recv(_PIECE_BYTES)
        except (OSError, ValueError) as error:
            raise LinkError(str(error)) from error
        if not data:
            raise LinkError("the other node closed the connection")
        self._buffer += data
        return True

    def _send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise LinkError(str(error)) from error

    def greet(self, secret: str, name: str, kind: str) -> None:
        """Introduce this member, and make sure that the other end has the secret.

        Raises:
            LinkError: it has another one, or is silent.
        """
        theirs, own = _text(self._challenge(), "nonce"), secrets.token_hex(32)
        said = _message(theirs, own, name, kind)
        proof = _proof(secret, _MEMBER, said)
        self._send_plain({"nonce": own, "name": name, "kind": kind, "proof": proof})
        if not _is_same(_text(self._challenge(), "proof"), _proof(secret, _SUPERVISOR, said)):
            raise LinkError("the other node has another secret")
        self._key = _key(secret, said)

    def welcome(self, secret: str) -> tuple[str, str]:
        """Make sure that the other end is a member; its name, and what it wants.

        Raises:
            LinkError: it has another secret, or is silent.
        """
        own = secrets.token_hex(32)
        self._send_plain({"nonce": own})
        answer = self._challenge()
        name, kind = _text(answer, "name"), _text(answer, "kind")
        said = _message(own, _text(answer, "nonce"), name, kind)
        if not _is_same(_text(answer, "proof"), _proof(secret, _MEMBER, said)):
            raise LinkError("a connection without the run's secret")
        self._send_plain({"proof": _proof(secret, _SUPERVISOR, said)})
        self._key = _key(secret, said)
        return name, kind

    def _challenge(self) -> Fields:
        line = self._line(_GREETING_S)
        if line is None:
            raise LinkError("the other node is silent")
        return _fields(line)

    def _send_plain(self, message: Mapping[str, object]) -> None:
        self._send_bytes(json.dumps(message).encode() + b"\n")


def connect(address: str, port: int, within_s: float) -> Link:
    """A connection to node 0, before its greeting.

    Raises:
        OSError: it can't be reached; `ConnectionRefusedError` where its machine answers, but
            nobody listens there.
    """
    connection = socket.create_connection((address, port), timeout=within_s)
    return Link(connection, is_member=True)


def file_size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _fields(body: bytes) -> Fields:
    try:
        return decode_fields(body, "message")
    except DecodingError as error:
        raise LinkError(str(error)) from None


def _text(fields: Fields, name: str) -> str:
    try:
        return fields.text(name)
    except DecodingError as error:
        raise LinkError(str(error)) from None


def _is_same(said: str, wanted: str) -> bool:
    return hmac.compare_digest(said.encode(errors="backslashreplace"), wanted.encode())


def _message(challenge: str, answer: str, name: str, kind: str) -> bytes:
    return json.dumps([challenge, answer, name, kind]).encode()


def _proof(secret: str, who: bytes, said: bytes) -> str:
    return hmac.new(bytes.fromhex(secret), who + b" " + said, hashlib.sha256).hexdigest()


def _key(secret: str, said: bytes) -> bytes:
    return hmac.new(bytes.fromhex(secret), b"messages " + said, hashlib.sha256).digest()
