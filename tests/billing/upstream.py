"""A provider that answers by script, notes what it received, and bills what it has done.

Which vector a request belongs to says the label of its case, wherever in the request that stands. One
thread to a connection: what a provider does while its caller is silent or gone is plain to read.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import threading
import time

from .script import (
    Answer,
    Await,
    Break,
    Case,
    Pause,
    Received,
    Script,
    Send,
    Served,
    Step,
    labelled,
)

LABEL = re.compile(rb"case(\d{6})x")
#: How long the upstream waits for something that the customer does.
EVENT_S = 10.0
#: How long a gateway has to hang up after its customer has.
HANG_UP_S = 0.3
RESET = struct.pack("ii", 1, 0)


class GoneError(Exception):
    """The gateway has hung up."""


class BrokenError(Exception):
    """The script breaks the connection."""


class Upstream:
    """Listens on a port of its own until it is closed."""

    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.cases: dict[int, Case] = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def case(self, script: Script) -> Case:
        """A new case with this script."""
        with self.lock:
            case = Case(len(self.cases) + 1, script)
            self.cases[case.number] = case
            return case

    def close(self) -> None:
        self.listener.close()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection:
            buffered = b""
            try:
                while (read := read_request(connection, buffered)) is not None:
                    received, buffered = read
                    if not self.answer(connection, received):
                        return
            except (OSError, ValueError):
                return

    def answer(self, connection: socket.socket, received: Received) -> bool:
        """Answers one request; whether the connection can be used again."""
        found = LABEL.search(received.path.encode()) or LABEL.search(received.body)
        case = self.cases.get(int(found[1])) if found else None
        if case is None:
            # Nobody's, such as a health check.
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}")
            return True
        is_file = received.path.startswith("/files/")
        is_poll = received.method == "GET" and not is_file
        if is_file:
            answer = case.script.file
        else:
            answer = case.take_poll() if is_poll else case.take_call(received)
        assert answer is not None, f"{received.path} has no answer in its script"
        served = Served(answer, answer.at_once, is_poll)
        with case.lock:
            case.served.append(served)
        case.event("arrived").set()
        try:
            Performance(connection, case, served, self.address).run()
            served.finished = True
            return True
        except GoneError:
            served.cut = True
            return False
        except BrokenError:
            return False
        finally:
            served.over = True


class Performance:
    """One answer on one connection."""

    def __init__(self, connection: socket.socket, case: Case, served: Served, address: str) -> None:
        self.connection = connection
        self.case = case
        self.served = served
        self.address = address

    def run(self) -> None:
        answer = self.served.answer
        for step in answer.before:
            self.perform(step)
        self.write(self.head(answer))
        if answer.piece_bytes is not None:
            body = self.text(answer.body)
            for at in range(0, len(body), answer.piece_bytes):
                self.send(body[at : at + answer.piece_bytes])
        else:
            for step in answer.steps:
                self.perform(step)
        if answer.framing == "chunked":
            self.write(b"0\r\n\r\n")

    def head(self, answer: Answer) -> bytes:
        framing = ("Transfer-Encoding", "chunked")
        if answer.framing == "length":
            framing = ("Content-Length", str(len(self.text(answer.body))))
        fields = (("Content-Type", answer.content_type), framing, *answer.headers)
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return f"HTTP/1.1 {answer.status} Scripted\r\n{lines}\r\n".encode()

    def text(self, data: bytes) -> bytes:
        """What is sent: with the case's label and the upstream's own address in it."""
        return labelled(data, self.case.label).replace(b"{upstream}", self.address.encode())

    def perform(self, step: Step) -> None:
        match step:
            case Send(data, used):
                # What is being sent has been made, whether or not anybody takes it.
                if used is not None:
                    self.served.used = used
                self.send(self.text(data))
            case Await(event):
                self.case.event(event).wait(EVENT_S)
                self.listen(HANG_UP_S)
            case Pause(seconds):
                self.listen(seconds)
            case Break(reset):
                if reset:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                raise BrokenError

    def send(self, data: bytes) -> None:
        if not data:
            return
        is_chunked = self.served.answer.framing == "chunked"
        self.write(b"%x\r\n%s\r\n" % (len(data), data) if is_chunked else data)

    def write(self, data: bytes) -> None:
        if self.is_gone(0):
            raise GoneError
        try:
            self.connection.sendall(data)
        except OSError as error:
            raise GoneError from error

    def listen(self, seconds: float) -> None:
        """Waits, or ends when the gateway hangs up."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.is_gone(left):
                raise GoneError

    def is_gone(self, seconds: float) -> bool:
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if not readable:
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True


def read_request(connection: socket.socket, buffered: bytes) -> tuple[Received, bytes] | None:
    """The next request and what came behind it; nothing at the end of the connection."""
    while b"\r\n\r\n" not in buffered:
        more = connection.recv(65536)
        if not more:
            return None
        buffered += more
    head, _, rest = buffered.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    method, path, _ = line.split(" ", 2)
    headers = {}
    for one in fields:
        name, _, value = one.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body, rest = read_chunks(connection, rest)
    else:
        length = int(headers.get("content-length", "0"))
        while len(rest) < length:
            rest += receive(connection)
        body, rest = rest[:length], rest[length:]
    return Received(method, path, headers, body), rest


def read_chunks(connection: socket.socket, rest: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        while b"\r\n" not in rest:
            rest += receive(connection)
        size, _, rest = rest.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        while len(rest) < length + 2:
            rest += receive(connection)
        body, rest = body + rest[:length], rest[length + 2 :]
        if length == 0:
            return body, rest


def receive(connection: socket.socket) -> bytes:
    more = connection.recv(65536)
    if not more:
        raise ValueError("the request ended in its middle")
    return more
