#!/usr/bin/env python3
"""Tries the recipes with the real programs. For each: the program makes a directory, and counts what it has; the directory
is moved with its recipe within one file system and to another, the program opens it again, adds something and counts;
`--undo` takes it back. Its own count must be equal each time.

usage: recipes.py GROUPSTORE [--installed | RECIPE...]
Needs the programs (Debian: newsboat buku beets calibre gpodder fossil vnstat), and /dev/shm on another file system than the
temporary directory. A program that is missing is named, and fails the run unless --installed is given."""

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPES = os.path.join(HERE, "..", "..", "Packaging", "apps.d")
FEED = """<?xml version="1.0"?><rss version="2.0"><channel><title>News</title><link>http://localhost/</link>
<description>d</description>%s</channel></rss>"""
ITEM = "<item><title>Item %d</title><link>http://localhost/%d</link><guid>g%d</guid><description>text %d</description></item>"
# One frame of silence: MPEG 1, layer III, 128 kbit/s, 44.1 kHz.
FRAME = b"\xff\xfb\x90\x64" + bytes(413)


class Program:
    """A program with a home of its own. `make` fills it, `add` adds something, `count` is what the program says."""

    needs = ()

    def __init__(self, home):
        self.home = home
        self.env = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home + "/.config", "XDG_DATA_HOME": home + "/.local/share",
                    "XDG_CACHE_HOME": home + "/.cache", "LC_ALL": "C.UTF-8", "GROUPSTORE_SOCKET": "/nonexistent/agent.sock"}

    def run(self, *words, check=True, stdin=""):
        done = subprocess.run(words, env=self.env, cwd=self.home, input=stdin, capture_output=True, text=True, timeout=120)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def write(self, path, content):
        path = os.path.join(self.home, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def feed(self, items):
        self.write("web/feed.xml", FEED % "".join(ITEM % ((i,) * 4) for i in range(items)))


class Newsboat(Program):
    needs = ("newsboat",)
    directory = ".newsboat"

    def make(self, url):
        self.write(".newsboat/urls", url + "\n")
        self.feed(7)
        self.run("newsboat", "-x", "reload")

    def add(self):
        self.feed(9)
        self.run("newsboat", "-x", "reload")

    def count(self):
        return self.run("newsboat", "-x", "print-unread").strip()


class Buku(Program):
    needs = ("buku",)
    directory = ".local/share/buku"

    def make(self, url):
        self.url = url
        for number in range(5):
            self.bookmark(number)

    def bookmark(self, number):
        self.run("buku", "--nostdin", "--np", "-a", f"{self.url}?{number}", "tag", "--title", f"T{number}")

    def add(self):
        self.bookmark(99)

    def count(self):
        return len(self.run("buku", "--nostdin", "--np", "-p", "-f", "1").split("\n")) - 1


class Beets(Program):
    needs = ("beet",)
    directory = ".config/beets"

    def make(self, url):
        self.write(".config/beets/config.yaml", f"directory: {self.home}/Music\nimport: {{copy: no, write: no}}\n")
        self.songs(3, "a")

    def songs(self, count, album):
        for number in range(count):
            # Files of equal length are duplicates for nobody: each has its own name.
            self.write(f"Music/{album}/{number}.mp3", FRAME * (100 + number))
        self.run("beet", "import", "-A", "-q", f"{self.home}/Music/{album}")

    def add(self):
        self.songs(2, "b")

    def count(self):
        return len(self.run("beet", "ls", "-f", "$path").splitlines())


class Calibre(Program):
    needs = ("calibredb",)
    directory = "Calibre Library"

    def make(self, url):
        self.env["QT_QPA_PLATFORM"] = "offscreen"
        for number in range(3):
            self.book(number)

    def calibre(self, *words):
        return self.run("calibredb", words[0], "--with-library", f"{self.home}/{self.directory}", *words[1:])

    def book(self, number):
        self.calibre("add", self.write(f"books/b{number}.txt", f"A book, number {number}\n"))

    def add(self):
        self.book(9)

    def count(self):
        return [book["formats"][0].rsplit("/", 1)[1] for book in json.loads(
            self.calibre("list", "--for-machine", "--fields", "title,formats", "--sort-by", "id"))]


class GPodder(Program):
    needs = ("gpo",)
    directory = "gPodder"

    def make(self, url):
        self.feed(4)
        self.run("gpo", "subscribe", url, "News")

    def add(self):
        self.feed(6)
        self.run("gpo", "update")

    def count(self):
        return self.run("gpo", "episodes").count("Item ")


class Fossil(Program):
    needs = ("fossil",)
    directory = "museum"

    def make(self, url):
        os.makedirs(self.home + "/museum")
        self.env["USER"] = "me"
        self.run("fossil", "init", "museum/notes.fossil")
        self.run("fossil", "init", "museum/other.fossil")
        os.makedirs(self.home + "/work")
        self.fossil("open", self.home + "/museum/notes.fossil")
        self.commit("one")

    def fossil(self, *words):
        return subprocess.run(
            ["fossil", *words], env=self.env, cwd=self.home + "/work", capture_output=True, text=True, check=True).stdout

    def commit(self, name):
        self.write(f"work/{name}", name)
        self.fossil("add", name)
        self.fossil("commit", "-m", name, "--no-warnings")

    def add(self):
        self.commit("two")

    def count(self):
        return [line for line in self.fossil("dbstat", "-R", self.home + "/museum/notes.fossil").splitlines()
                if line.startswith(("check-ins:", "files:"))]


class VnStat(Program):
    needs = ("vnstat", "vnstatd")
    directory = "vnstat"

    def make(self, url):
        os.makedirs(self.home + "/vnstat")
        self.write("vnstat.conf", f'DatabaseDir "{self.home}/vnstat"\n')
        self.run("vnstatd", "--config", "vnstat.conf", "--initdb")
        self.run("vnstat", "--config", "vnstat.conf", "-i", "lo", "--add")

    def add(self):
        self.run("vnstat", "--config", "vnstat.conf", "-i", "lo", "--setalias", "loop")

    def count(self):
        found = json.loads(self.run("vnstat", "--config", "vnstat.conf", "--json"))
        return [(interface["name"], interface["alias"]) for interface in found["interfaces"]]


PROGRAMS = {"newsboat": Newsboat, "buku": Buku, "beets": Beets, "calibre": Calibre, "gpodder": GPodder, "fossil": Fossil, "vnstat": VnStat}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def move(program, groupstore, *words):
    done = subprocess.run([groupstore, "move-app", *words], env=program.env, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"move-app {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def attempt(name, groupstore, place):
    """Returns the program's counts before, after the move, and after the way back."""
    home, there = tempfile.mkdtemp(prefix="recipes."), tempfile.mkdtemp(prefix="recipes.", dir=place)
    os.makedirs(home + "/web")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=home + "/web"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        program = PROGRAMS[name](home)
        program.make(f"http://127.0.0.1:{server.server_port}/feed.xml")
        source, destination = f"{home}/{program.directory}", there + "/app"
        recipe = os.path.join(RECIPES, name + ".yaml")
        first = program.count()
        assert first, "the program counts nothing"
        report = subprocess.run([groupstore, "app", "check", recipe, source], capture_output=True, text=True)
        assert report.returncode == 0 and "unknown" not in report.stdout, report.stdout + report.stderr
        said = move(program, groupstore, source, destination, "--recipe", recipe)
        assert os.path.islink(source) and ("copy" in said) == (place == "/dev/shm"), said
        second = program.count()
        program.add()
        third = program.count()
        assert second == first and third != first, f"{first}, moved: {second}, then added: {third}"
        move(program, groupstore, "--undo", source)
        assert not os.path.islink(source) and not os.listdir(there), os.listdir(there)
        fourth = program.count()
        assert fourth == third, f"{third}, back: {fourth}"
        return f"{first} -> {third}"
    finally:
        server.shutdown()
        for path in (home, there):
            shutil.rmtree(path, ignore_errors=True)


def main():
    groupstore, is_partial = os.path.abspath(sys.argv[1]), "--installed" in sys.argv
    names = [word for word in sys.argv[2:] if word != "--installed"]
    failed = 0
    shipped = sorted(name[:-5] for name in os.listdir(RECIPES) if name.endswith(".yaml"))
    for name in names or shipped:
        missing = [word for word in PROGRAMS[name].needs if not shutil.which(word)]
        if missing:
            print(f"{name}: {', '.join(missing)} is not installed")
            failed += not is_partial
            continue
        for place in (None, "/dev/shm"):
            try:
                print(f"{name}, {'copied' if place else 'renamed'}: {attempt(name, groupstore, place)}")
            except (AssertionError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"{name}, {'copied' if place else 'renamed'}: FAILED: {error}")
    sys.exit(1 if failed else 0)


main()
