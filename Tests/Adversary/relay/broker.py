"""A nats-server that can be stopped, killed and set back, and a proxy that does harm to its connections."""

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

from nats_client import wait_for_port

NATS_SERVER = os.environ.get("NATS_SERVER") or shutil.which("nats-server") or "/usr/sbin/nats-server"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """A process of nats-server that a subclass starts."""

    process = None

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    def launch(self, words):
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def signal(self, number):
        if self.alive:
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        if self.process:
            self.process.wait()

    def stop(self):
        """Ends it in order, so that its files are whole."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            if self.process:
                self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


class Broker(Server):
    def __init__(self, directory):
        self.directory, self.port = os.path.join(directory, "js"), free_port()
        self.log = os.path.join(directory, "nats.log")
        self.copies = []

    def start(self):
        if self.alive:
            return
        self.launch([NATS_SERVER, "-js", "-sd", self.directory, "-a", "127.0.0.1", "-p", str(self.port), "-l", self.log])
        wait_for_port(self.port)

    def copy(self):
        """Stops it, copies its directory and starts it again."""
        self.stop()
        if os.path.isdir(self.directory):
            path = f"{self.directory}.{len(self.copies)}"
            shutil.copytree(self.directory, path)
            self.copies.append(path)
        self.start()

    def set_back(self, chance):
        """Puts back a copy, or nothing."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.copies and chance.random() < 0.8:
            shutil.copytree(chance.choice(self.copies), self.directory)
        self.start()


class Proxy:
    """Passes connections on, and damages them as `mode` says: pass, refuse, stall, delay, truncate, flip, flip a message."""

    def __init__(self, target, host="127.0.0.1"):
        self.target, self.host, self.mode, self.pairs = target, host, "pass", []
        self.lock, self.chance = threading.Lock(), random.Random(target)
        self.flipped, self.limit = 0, None  # the bytes after which a connection is cut
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.mode == "refuse":
                client.close()
                continue
            try:
                server = socket.create_connection((self.host, self.target), timeout=2)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            with self.lock:
                self.pairs.append((client, server))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one, other):
        passed = 0
        try:
            while data := one.recv(65536):
                passed += len(data)
                if self.limit and passed > self.limit:
                    break
                while self.mode == "stall":
                    time.sleep(0.02)
                if self.mode == "delay":
                    time.sleep(self.chance.random() * 0.2)
                if self.mode == "truncate" and len(data) > 200:
                    other.sendall(data[:self.chance.randrange(len(data))])
                    self.mode = "pass"
                    break
                message = data.find(b"Gs-From:") if self.mode == "flip a message" else 100 if self.mode == "flip" else -1
                if 0 <= message < len(data) - 200:
                    changed = bytearray(data)
                    changed[self.chance.randrange(message, len(data) - 2)] ^= 1 << self.chance.randrange(8)
                    data, self.mode = bytes(changed), "pass"
                    self.flipped += 1
                other.sendall(data)
        except OSError:
            pass
        with self.lock:
            self.pairs = [pair for pair in self.pairs if one not in pair]
        for each in (one, other):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for each in pair:
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                each.close()

    def close(self):
        self.listener.close()
        self.cut()
