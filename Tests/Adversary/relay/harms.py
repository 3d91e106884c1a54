"""Harm to the connection, to the broker, and to the programs. Each function does one, and returns how to end it."""

import signal
import sqlite3
import subprocess
import time

from forgery import forge


def pause_broker(self):
    self.broker.signal(signal.SIGSTOP)
    return lambda: self.broker.signal(signal.SIGCONT)


def kill_broker(self):
    self.broker.kill()
    return self.broker.start


def proxied(mode):
    def harm(self):
        proxy = self.chance.choice([self.publisher_proxy, self.follower_proxy])
        proxy.mode = mode
        if mode == "refuse":
            proxy.cut()

        def end():
            proxy.mode = "pass"
            if mode == "stall" and self.chance.random() < 0.5:
                proxy.cut()
        return end
    harm.__name__ = mode
    return harm


def cut(self):
    self.chance.choice([self.publisher_proxy, self.follower_proxy]).cut()


def kill_publisher(self):
    self.publisher.now.kill()
    return self.publisher.start


def kill_follower(self):
    follower = self.chance.choice(self.followers)
    follower.now.kill()
    return follower.start


def kill_both(self):
    kill_publisher(self)
    return kill_follower(self)


def pause_follower(self):
    process = self.chance.choice(self.followers).now.process
    process.send_signal(signal.SIGSTOP)
    return lambda: process.poll() is None and process.send_signal(signal.SIGCONT)


def copy_broker(self):
    self.broker.copy()


def set_back(self):
    self.broker.set_back(self.chance)


def forged(self):
    self.count("forgeries", forge(self))


def purge(self):
    subprocess.run([self.groupstore, "history", "purge", self.home, "--keep", str(self.chance.choice([1, 5, 50])), "--json",
                    *self.chance.choice([["--force"], []])], stdin=subprocess.DEVNULL, capture_output=True)


LINKS = [pause_broker, kill_broker, proxied("refuse"), proxied("stall"), proxied("delay"), proxied("truncate"), cut]
KILLS = [kill_publisher, kill_follower, kill_both, pause_follower]
BROKER = [copy_broker, copy_broker, set_back]
FLIPS = [proxied("flip"), forged, forged]


def do(self, harms, seconds):
    """Does harm for some seconds, one at a time, and calm in between."""
    end = time.monotonic() + seconds
    time.sleep(self.chance.random() * 2)
    while time.monotonic() < end:
        harm = self.chance.choice(harms)
        after = harm(self)
        self.count("harms")
        self.count(harm.__name__)
        time.sleep(self.chance.random() ** 2 * 2)
        if after:
            after()
        self.look_after()
        try:
            self.tokens.append(self.token()) if self.chance.random() < 0.3 else None
        except sqlite3.Error:
            pass
        time.sleep(self.chance.random() ** 3 * 2)
