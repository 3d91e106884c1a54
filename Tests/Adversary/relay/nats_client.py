"""A small client of NATS and JetStream, enough to read a stream, to forge its messages and to damage it."""

import base64
import json
import os
import socket
import time


class NATSError(Exception):
    pass


def encoded_headers(headers):
    return b"NATS/1.0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items()) + b"\r\n"


def decoded_headers(data):
    lines = data.decode("utf-8", "surrogateescape").split("\r\n")
    found = {}
    status = lines[0].split(" ", 1)
    if len(status) > 1:
        found["Status"] = status[1]
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    return found


class Client:
    """One connection, used by one thread."""

    def __init__(self, port, timeout=5, host="127.0.0.1", user=None, inbox="_INBOX"):
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.file = self.socket.makefile("rb")
        self.inbox = inbox + "." + os.urandom(8).hex()
        self.number = 0
        json.loads(self.file.readline().split(b" ", 1)[1])
        said = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "test", "version": "1"}
        if user:
            said["user"], said["pass"] = user
        self.send(b"CONNECT " + json.dumps(said).encode() + b"\r\n")
        self.send(f"SUB {self.inbox}.* 1\r\nPING\r\n".encode())
        while self.file.readline().strip() != b"PONG":
            pass

    def send(self, data):
        self.socket.sendall(data)

    def close(self):
        self.file.close()
        self.socket.close()

    def publish(self, subject, body, headers=None, reply=""):
        if headers is None:
            self.send(f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n")
        else:
            head = encoded_headers(headers)
            self.send(f"HPUB {subject} {reply} {len(head)} {len(head) + len(body)}\r\n".encode() + head + body + b"\r\n")

    def next(self):
        """Returns the next message: its subject, headers and body."""
        while True:
            line = self.file.readline()
            if not line:
                raise NATSError("the connection was closed")
            words = line.split()
            if not words:
                continue
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] == b"MSG":
                body = self.file.read(int(words[-1]) + 2)[:-2]
                return words[1].decode(), {}, body
            elif words[0] == b"HMSG":
                head, total = int(words[-2]), int(words[-1])
                data = self.file.read(total + 2)[:-2]
                return words[1].decode(), decoded_headers(data[:head]), data[head:]
            elif words[0] == b"-ERR":
                raise NATSError(line.decode())

    def request(self, subject, body=b"", headers=None):
        self.number += 1
        reply = f"{self.inbox}.{self.number}"
        self.publish(subject, body, headers, reply)
        while True:
            to, headers_, data = self.next()
            if to == reply:
                if headers_.get("Status", "").startswith("503"):
                    raise NATSError("nobody answers " + subject)
                return headers_, data

    def api(self, subject, **members):
        answer = json.loads(self.request("$JS.API." + subject, json.dumps(members).encode() if members else b"")[1])
        if "error" in answer:
            raise NATSError(f"{subject}: {answer['error']}")
        return answer

    def state(self, stream):
        return self.api("STREAM.INFO." + stream)["state"]

    def message(self, stream, sequence):
        """Returns a stored message's headers and body."""
        found = self.api("STREAM.MSG.GET." + stream, seq=sequence)["message"]
        head = decoded_headers(base64.b64decode(found.get("hdrs", "")))
        return head, base64.b64decode(found.get("data", ""))

    def messages(self, stream):
        state = self.state(stream)
        for sequence in range(state["first_seq"], state["last_seq"] + 1):
            try:
                yield sequence, *self.message(stream, sequence)
            except NATSError:
                continue

    def store(self, subject, body, headers):
        """Publishes to a stream, and returns what it answers."""
        return json.loads(self.request(subject, body, headers)[1])


def wait_for_port(port, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            Client(port, timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
        except (ValueError, IndexError, NATSError):
            time.sleep(0.05)
    raise NATSError(f"no broker at port {port}")
