"""Customers: what they ask, how they read, and when they leave."""

from __future__ import annotations

import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from .script import Case, labelled

#: The longest that an answer of any vector takes.
ANSWER_S = 30.0
#: The longest that a request takes to reach the upstream.
ARRIVAL_S = 5.0
RESET = struct.pack("ii", 1, 0)
#: Texts by which customers of streams know where they are; scripts put them there.
FIRST_TEXT = "Firsttext"
LAST_TEXT = "Lasttext"


@dataclass(frozen=True)
class Request:
    """What a customer asks. `{case}` in it becomes the label of the case."""

    path: str
    body: Any
    headers: tuple[tuple[str, str], ...] = ()

    def encoded(self, case: Case) -> tuple[bytes, str]:
        """The body and its type."""
        body = labelled(self.body, case.label)
        if isinstance(body, Form):
            return body.encoded(case.label)
        if isinstance(body, bytes):
            return body, "application/json"
        return json.dumps(body).encode(), "application/json"


@dataclass(frozen=True)
class Form:
    """A `multipart/form-data`: texts, and files by their bytes."""

    fields: tuple[tuple[str, str | bytes], ...]

    def encoded(self, label: str) -> tuple[bytes, str]:
        boundary = "billing-conformance"
        parts = []
        for name, value in self.fields:
            disposition = f'Content-Disposition: form-data; name="{name}"'
            if isinstance(value, bytes):
                head = f'{disposition}; filename="a.png"\r\nContent-Type: image/png'
            else:
                head, value = disposition, labelled(value, label).encode()
            parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + value + b"\r\n")
        body = b"".join(parts) + f"--{boundary}--\r\n".encode()
        return body, f"multipart/form-data; boundary={boundary}"


@dataclass(frozen=True)
class Customer:
    """How a customer behaves."""

    #: When it leaves: `arrived` (its request is at the upstream), `head`, a text of the answer, or so
    #: many bytes of the body. It stays where nothing is said.
    leaves: str | int | None = None
    #: `reset`, `close` or `half-close`, after which it goes on reading.
    how: str = "reset"
    http: int = 1
    #: How many bytes it takes at a time, and how long it rests in between.
    bite: int = 65536
    rests_s: float = 0.0

    def call(self, address: tuple[str, int], key: str, request: Request, case: Case) -> Reply:
        """Makes the call; returns what the customer has seen of the answer."""
        body, content_type = request.encoded(case)
        fields = {
            "authorization": f"Bearer {key}",
            "content-type": content_type,
            "content-length": str(len(body)),
        }
        fields |= {name.lower(): value for name, value in request.headers}
        connect = Http2 if self.http == 2 else Http1
        with socket.create_connection(address, timeout=ANSWER_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.rests_s:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            exchange = connect(connection, f"{address[0]}:{address[1]}")
            exchange.send(request.path, fields, body)
            return self.read(exchange, case)

    def read(self, exchange: Http1 | Http2, case: Case) -> Reply:
        reply = exchange.reply
        if self.leaves == "arrived":
            case.event("arrived").wait(ARRIVAL_S)
            self.leave(exchange, case)
        gone = self.leaves == "arrived"
        while not (gone and self.how != "half-close") and exchange.receive(self.bite):
            if not gone and self.has_enough(reply):
                self.leave(exchange, case)
                gone = True
            if self.rests_s:
                time.sleep(self.rests_s)
        case.event("left").set()
        return reply

    def has_enough(self, reply: Reply) -> bool:
        match self.leaves:
            case None:
                return False
            case "head":
                return reply.status is not None
            case int(count):
                return len(reply.body) >= count
            case text:
                return text.encode() in reply.body

    def leave(self, exchange: Http1 | Http2, case: Case) -> None:
        exchange.leave(self.how)
        exchange.reply.left = True
        case.event("left").set()


@dataclass
class Reply:
    """As much of an answer as has come."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    left: bool = False
    #: The answer came to its end.
    whole: bool = False

    @property
    def error(self) -> dict[str, Any]:
        """The error that it tells of, if it does."""
        try:
            told = json.loads(self.body)
        except ValueError:
            return {}
        error = told.get("error") if isinstance(told, dict) else None
        if not isinstance(error, dict):
            return {}
        details = error.get("details")
        code = error.get("code") or (details or {}).get("error_code") or error.get("type")
        return {**error, "code": code}


class Http1:
    """One exchange over HTTP/1.1."""

    def __init__(self, connection: socket.socket, authority: str) -> None:
        self.connection = connection
        self.authority = authority
        self.reply = Reply()
        self.raw = b""
        self.at = 0

    def send(self, path: str, fields: dict[str, str], body: bytes) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"POST {path} HTTP/1.1\r\nhost: {self.authority}\r\n{lines}\r\n"
        try:
            self.connection.sendall(head.encode() + body)
        except OSError:
            # It was refused before all of it was sent: the answer says why.
            return

    def leave(self, how: str) -> None:
        if how == "half-close":
            self.connection.shutdown(socket.SHUT_WR)
            return
        if how == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.connection.close()

    def receive(self, most: int) -> bool:
        """Takes more of the answer; whether more can come."""
        try:
            more = self.connection.recv(most)
        except OSError:
            return False
        self.raw += more
        self.parse()
        return bool(more) and not self.reply.whole

    def parse(self) -> None:
        reply = self.reply
        if reply.status is None:
            if b"\r\n\r\n" not in self.raw:
                return
            head, _, _ = self.raw.partition(b"\r\n\r\n")
            line, *fields = head.decode("latin-1").split("\r\n")
            pairs = (one.partition(":") for one in fields)
            reply.headers = {name.lower(): value.strip() for name, _, value in pairs}
            reply.status = int(line.split(" ")[1])
            self.at = len(head) + 4
        if reply.headers.get("transfer-encoding") == "chunked":
            self.parse_chunks()
            return
        reply.body = self.raw[self.at :]
        length = reply.headers.get("content-length")
        reply.whole = length is not None and len(reply.body) >= int(length)

    def parse_chunks(self) -> None:
        while (end := self.raw.find(b"\r\n", self.at)) >= 0:
            size = int(self.raw[self.at : end].split(b";")[0], 16)
            if len(self.raw) < end + 2 + size + 2:
                return
            self.reply.body += self.raw[end + 2 : end + 2 + size]
            self.at = end + 2 + size + 2
            if size == 0:
                self.reply.whole = True
                return


class Http2:
    """One exchange over HTTP/2 without TLS."""

    def __init__(self, connection: socket.socket, authority: str) -> None:
        self.connection = connection
        self.authority = authority
        self.reply = Reply()
        self.h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        )
        self.stream = 1

    def send(self, path: str, fields: dict[str, str], body: bytes) -> None:
        self.h2.initiate_connection()
        self.stream = self.h2.get_next_available_stream_id()
        pseudo = [(":method", "POST"), (":path", path), (":scheme", "http")]
        pseudo.append((":authority", self.authority))
        self.h2.send_headers(self.stream, pseudo + list(fields.items()))
        while body:
            room = self.h2.local_flow_control_window(self.stream)
            size = min(room, self.h2.max_outbound_frame_size, len(body))
            if size == 0:
                self.flush()
                if not self.receive(65536):
                    return
                continue
            self.h2.send_data(self.stream, body[:size])
            body = body[size:]
        self.h2.end_stream(self.stream)
        self.flush()

    def leave(self, how: str) -> None:
        """`reset` takes the stream back, `close` the whole connection."""
        if how == "reset":
            self.h2.reset_stream(self.stream, error_code=8)
            self.flush()
        else:
            self.connection.close()

    def flush(self) -> None:
        try:
            self.connection.sendall(self.h2.data_to_send())
        except OSError:
            return

    def receive(self, most: int) -> bool:
        """Takes more of the answer; whether more can come."""
        try:
            more = self.connection.recv(most)
            events = self.h2.receive_data(more)
        except (OSError, h2.exceptions.ProtocolError):
            return False
        reply = self.reply
        for event in events:
            match event:
                case h2.events.ResponseReceived(headers=headers):
                    reply.headers = dict(headers or ())
                    reply.status = int(reply.headers[":status"])
                case h2.events.DataReceived(data=data, flow_controlled_length=length):
                    reply.body += data or b""
                    self.h2.acknowledge_received_data(length or 0, self.stream)
                case h2.events.StreamEnded():
                    reply.whole = True
                case h2.events.StreamReset() | h2.events.ConnectionTerminated():
                    self.flush()
                    return False
        self.flush()
        return bool(more) and not reply.whole
