"""Shows a store: knows how many rows each table has and how far the history goes, and reads a table
again only when an event says that it changed. Keeps its knowledge and its token in a file, from which it resumes
after a kill.

usage: subscriber.py CLIENT_DIRECTORY STORE GROUP_DIRECTORY STATE_FILE [--async | --direct GROUPSTORE]

The events are an agent's, or with --direct those of `groupstore watch --direct`.

Prints a line for each event after the read that it asks for: {"event":…,"token":…,"known":{TABLE: ROWS},"reads":…}.
"""

import asyncio
import ctypes
import json
import os
import signal
import sqlite3
import subprocess
import sys

sys.path.insert(0, sys.argv[1])
import groupstore  # noqa: E402  (it lies where the first argument says)

STORE, DIRECTORY, STATE = sys.argv[2:5]
PATH = os.path.join(DIRECTORY, STORE.split("/", 1)[1])


class View:
    def __init__(self):
        self.known, self.token, self.reads, self.resets = {}, None, 0, 0
        if os.path.exists(STATE):
            with open(STATE, encoding="utf-8") as file:
                kept = json.load(file)
            self.known, self.token = kept["known"], kept["token"]

    def take(self, event):
        if isinstance(event, groupstore.Changed):
            # A subscriber relies on this case: nothing else was written.
            self.read(event.tables if event.complete else None)
        elif isinstance(event, (groupstore.Reset, groupstore.Relocated)):
            self.resets += isinstance(event, groupstore.Reset)
            self.read(None)
        token = getattr(event, "token", self.token)
        self.keep(token)
        line = {"event": type(event).__name__, "reason": getattr(event, "reason", None), "token": token}
        print(json.dumps({**line, "known": self.known, "reads": self.reads}), flush=True)

    def read(self, tables):
        """Reads tables. A missing store holds nothing."""
        if not os.path.exists(PATH):
            self.known = {}
            return
        for attempt in range(600):
            try:
                store = sqlite3.connect(f"file:{PATH}?mode=rw", uri=True, timeout=60, isolation_level=None)
                break
            except sqlite3.OperationalError:
                if not os.path.exists(PATH) or attempt == 599:
                    self.known = {}
                    return
        try:
            everything = [name for (name,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            for name in everything if tables is None else tables:
                if name in everything and self.shows(name):
                    what = "coalesce(max(number), 0)" if name == "GS_CHANGE" else "count(*)"
                    self.known[name] = store.execute(f"SELECT {what} FROM {name}").fetchone()[0]
                    self.reads += 1
        except sqlite3.OperationalError as error:
            # The store is being moved away: the next event reports the cause.
            print(json.dumps({"event": "Unreadable", "message": str(error)}), flush=True)
        finally:
            store.close()

    @staticmethod
    def shows(name):
        """Returns whether a table counts: of the history's own tables, only the one that grows with each commit."""
        return name == "GS_CHANGE" or not name.startswith(("sqlite_", "GS_"))

    def keep(self, token):
        self.token = token
        with open(STATE + ".new", "w", encoding="utf-8") as file:
            json.dump({"known": self.known, "token": token}, file)
        os.replace(STATE + ".new", STATE)


def direct_changes(program, view):
    """Yields the events of a program that watches the store; after its end, those of another one that resumes."""
    while True:
        words = [program, "watch", "--direct", "--json"] + (["--since", view.token] if view.token else [])
        watch = subprocess.Popen(
            [*words, "--", PATH], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=end_with_parent)
        print(json.dumps({"event": "Watching", "pid": watch.pid}), flush=True)
        for line in watch.stdout:
            if line.endswith(b"\n") and (event := direct_event(json.loads(line), view)):
                yield event
        watch.wait()


def direct_event(line, view):
    token = line.get("token")
    if line["type"] == "change":
        return groupstore.Changed(token, line.get("tables"), line["complete"])
    if line["type"] == "reset":
        return groupstore.Reset(token, line["reason"])
    if line["type"] == "relocated":
        return groupstore.Relocated(token, line.get("from"), line.get("to"))
    if line["type"] == "watching" and view.token is None:
        return groupstore.Reset(token, "subscribed")
    # A resumed watch may yet report what happened before its first line, whose token is later.
    return None


def end_with_parent():
    """Ends the watcher when this program is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG


def main():
    view = View()
    if "--direct" in sys.argv:
        for event in direct_changes(sys.argv[sys.argv.index("--direct") + 1], view):
            view.take(event)
    if view.token is None:
        # A subscriber without any event so far reads everything: an unknown token requests that.
        view.token = ""
    if "--async" in sys.argv:
        asyncio.run(listen(view))
    else:
        for event in groupstore.Changes(STORE, since=view.token, wait=True):
            view.take(event)


async def listen(view):
    async for event in groupstore.AsyncChanges(STORE, since=view.token, wait=True):
        view.take(event)


main()
