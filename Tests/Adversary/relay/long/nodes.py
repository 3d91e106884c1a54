"""The brokers: one nats-server, or a cluster of three, each in a network namespace of its own where that is allowed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from broker import Server, free_port
from nats_client import Client, NATSError


class Node(Server):
    """One nats-server with its directory and older copies of it."""

    def __init__(self, program, directory, name, host="127.0.0.1", prefix=()):
        self.program, self.name, self.host, self.prefix = program, name, host, list(prefix)
        self.directory, self.port, self.route = os.path.join(directory, name), free_port(), free_port()
        self.file, self.log = os.path.join(directory, name + ".conf"), os.path.join(directory, name + ".log")
        self.copies, self.made = [], 0

    def configure(self, nodes):
        with open(self.file, "w") as file:
            file.write(f'server_name: {self.name}\nlisten: "{self.host}:{self.port}"\nlog_file: "{self.log}"\nlogfile_size_limit: 50MB\n'
                       f'jetstream {{ store_dir: "{self.directory}", max_memory_store: 64MB, max_file_store: 4GB }}\n')
            if len(nodes) > 1:
                routes = ", ".join(f'"nats://{node.host}:{node.route}"' for node in nodes if node is not self)
                file.write(f'cluster {{ name: soak, listen: "{self.host}:{self.route}", routes: [{routes}], no_advertise: true }}\n')

    def start(self):
        if not self.alive:
            self.launch([*self.prefix, self.program, "-c", self.file])

    def copy(self):
        """Copies the directory of a server that doesn't run; the last four copies are kept."""
        if not os.path.isdir(self.directory):
            return
        self.made += 1
        self.copies.append(f"{self.directory}.{self.made}")
        shutil.copytree(self.directory, self.copies[-1])
        if len(self.copies) > 4:
            shutil.rmtree(self.copies.pop(0))

    def forget_copies(self):
        while self.copies:
            shutil.rmtree(self.copies.pop())

    def put_back(self, copy):
        """Puts back a copy, or nothing."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if copy:
            shutil.copytree(copy, self.directory)

    def flip(self, chance):
        """Flips a bit of a stored message. Returns whether there was one."""
        files = [os.path.join(at, name) for at, _, names in os.walk(self.directory) for name in names if name.endswith(".blk") and "GS_" in at]
        files = [each for each in files if os.path.getsize(each) > 1000]
        if not files:
            return False
        with open(chance.choice(files), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            place = chance.randrange(max(0, size - 60_000), size)
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))
        return True

    def client(self):
        return Client(self.port, timeout=2, host=self.host)


class Network:
    """Three namespaces on one bridge. Needs root, and `ip` of iproute2."""

    def __init__(self):
        self.tag, self.net = f"gs{os.getpid()}", f"10.{random.randrange(100, 250)}.{random.randrange(250)}"
        self.namespaces = []

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def make(self):
        self.ip("link", "add", self.tag, "type", "bridge")
        self.ip("addr", "add", f"{self.net}.254/24", "dev", self.tag)
        self.ip("link", "set", self.tag, "up")

    def add(self, number):
        """Makes a host. Returns its address, and the words that run a program there."""
        name = f"{self.tag}n{number}"
        self.ip("netns", "add", name)
        self.namespaces.append(name)
        self.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        self.ip("link", "set", name, "master", self.tag, "up")
        self.ip("-n", name, "addr", "add", f"{self.net}.{number}/24", "dev", "eth0")
        self.ip("-n", name, "link", "set", "lo", "up")
        self.ip("-n", name, "link", "set", "eth0", "up")
        return f"{self.net}.{number}", ["ip", "netns", "exec", name]

    def link(self, number, state):
        self.ip("link", "set", f"{self.tag}n{number}", state)

    def remove(self):
        for name in self.namespaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.tag], capture_output=True)


class Brokers:
    """All nodes, seen as one broker."""

    def __init__(self, program, directory, count):
        self.network, self.nodes = None, []
        if count > 1:
            self.network = Network()
            try:
                self.network.make()
                hosts = [self.network.add(number + 1) for number in range(count)]
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"long: no network namespaces ({error}): the brokers share one host", flush=True)
                self.network.remove()
                self.network = None
        for number in range(count):
            host, prefix = hosts[number] if self.network else ("127.0.0.1", [])
            self.nodes.append(Node(program, directory, f"node{number + 1}", host, prefix))
        for node in self.nodes:
            node.configure(self.nodes)

    @property
    def is_cluster(self):
        return len(self.nodes) > 1

    def start(self):
        for node in self.nodes:
            node.start()

    def await_ready(self, seconds=60):
        """Waits until the brokers answer as JetStream."""
        end = time.monotonic() + seconds
        while True:
            try:
                client = self.nodes[0].client()
                try:
                    client.api("INFO")
                finally:
                    client.close()
                return
            except (OSError, NATSError, ValueError, IndexError):
                if time.monotonic() > end:
                    raise SystemExit("long: the brokers don't begin to answer")
                time.sleep(0.1)

    def info(self, stream):
        """Returns what the brokers say of the stream; None if they don't."""
        for node in self.nodes:
            try:
                client = node.client()
                try:
                    return client.api("STREAM.INFO." + stream)
                finally:
                    client.close()
            except (OSError, NATSError, ValueError, IndexError):
                pass
        return None

    def leader(self, stream):
        """Returns the stream's leader; None if it isn't known."""
        name = ((self.info(stream) or {}).get("cluster") or {}).get("leader")
        return next((node for node in self.nodes if node.name == name), None)

    def close(self):
        for node in self.nodes:
            node.signal(signal.SIGCONT)
            node.kill()
        if self.network:
            self.network.remove()
