"""Runs the groupstore program on one store."""

import json
import os
import subprocess


class Program:
    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.launches = 0
        # True to record what rows held before, too.
        self.before = False

    def run(self, *arguments, timeout=120):
        self.launches += 1
        environment = dict(os.environ, XDG_CONFIG_HOME="/nonexistent", GROUPSTORE_SOCKET="/nonexistent/socket")
        done = subprocess.run([self.path, *arguments], env=environment, capture_output=True, timeout=timeout)
        lines = [json.loads(line) for line in done.stdout.decode("utf-8", "surrogateescape").splitlines() if line.startswith("{")]
        return done.returncode, lines, done.stderr.decode("utf-8", "replace").strip()

    def enable(self, store):
        return self.run("history", "enable", store, "--json", *(["--before"] if self.before else []))

    def disable(self, store):
        return self.run("history", "disable", store, "--json")

    def purge(self, store, *arguments):
        return self.run("history", "purge", store, "--json", *arguments)

    def changes(self, store, since=None, limit=1000000):
        return self.run("changes", store, "--json", "--limit", str(limit), *(["--since", since] if since else []))
