#!/usr/bin/env python3
"""Tries the recipes with the real programs. For each: the program makes a directory, and counts what it has; the directory
is moved with its recipe within one file system and to another, the program opens it again, adds something and counts;
`--undo` takes it back. Its own count must be equal each time.

usage: recipes.py GROUPSTORE [--installed | RECIPE...]
Needs the programs (Debian: beets bogofilter-sqlite buku calibre fail2ban firefox-esr fossil gpodder gramps ipython3 khal
libnss3-tools newsboat rpm subversion thunderbird vnstat), and /dev/shm on another file system than the temporary directory.
A program that is missing is named, and fails the run unless --installed is given."""

import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

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


class Mozilla(Program):
    """A program that is told what to do over Marionette, its own protocol for tests: JSON behind its length."""

    def run_script(self, script):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        env = {**self.env, "MOZ_MARIONETTE_PREF_STATE_ACROSS_RESTARTS": json.dumps({"marionette.port": port})}
        words = [self.needs[0], "--headless", "--marionette", "--remote-allow-system-access"]
        process = subprocess.Popen(words, env=env, cwd=self.home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with self.connection(process, port) as stream:
                self.answer(stream)
                self.ask(stream, "WebDriver:NewSession")
                self.ask(stream, "Marionette:SetContext", value="chrome")
                value = self.ask(stream, "WebDriver:ExecuteScript", script=script, args=[])["value"]
                self.ask(stream, "Marionette:Quit", flags=["eAttemptQuit"])
            process.wait(60)
            return value
        finally:
            process.kill()
            process.wait()

    @staticmethod
    def connection(process, port):
        deadline = time.monotonic() + 120
        while True:
            try:
                # The file keeps the connection open.
                with socket.create_connection(("127.0.0.1", port), 120) as connection:
                    return connection.makefile("rwb")
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "the program doesn't answer"
                time.sleep(0.05)

    @staticmethod
    def answer(stream):
        length = b""
        while (digit := stream.read(1)) not in (b":", b""):
            length += digit
        return json.loads(stream.read(int(length)))

    def ask(self, stream, command, **parameters):
        message = json.dumps([0, 1, command, parameters]).encode()
        stream.write(b"%d:%s" % (len(message), message))
        stream.flush()
        _, _, error, value = self.answer(stream)
        assert not error, error
        return value


class Firefox(Mozilla):
    needs = ("firefox-esr",)
    directory = ".config/mozilla/firefox"

    def bookmarks(self, script):
        return self.run_script(
            "const {PlacesUtils} = ChromeUtils.importESModule('resource://gre/modules/PlacesUtils.sys.mjs');"
            "const parentGuid = PlacesUtils.bookmarks.unfiledGuid;"
            f"return (async () => {{ {script} }})();")

    def bookmark(self, *titles):
        self.bookmarks("".join(
            f"await PlacesUtils.bookmarks.insert({{parentGuid, url: 'http://localhost/{title}', title: '{title}'}});"
            for title in titles))

    def make(self, url):
        self.bookmark("a", "b", "c")

    def add(self):
        self.bookmark("d")

    def count(self):
        return self.bookmarks(
            "let titles = []; await PlacesUtils.bookmarks.fetch({parentGuid, index: 0});"
            "for (const found of await PlacesUtils.bookmarks.search({query: 'http://localhost/'})) titles.push(found.title);"
            "return titles.sort();")


class Thunderbird(Mozilla):
    needs = ("thunderbird",)
    directory = ".thunderbird"

    def book(self, script):
        return self.run_script(
            "const {MailServices} = ChromeUtils.importESModule('resource:///modules/MailServices.sys.mjs');"
            f"const book = MailServices.ab.getDirectory('jsaddrbook://abook.sqlite'); {script}")

    def card(self, *names):
        self.book("".join(
            "{ const card = Cc['@mozilla.org/addressbook/cardproperty;1'].createInstance(Ci.nsIAbCard);"
            f"card.displayName = '{name}'; card.primaryEmail = '{name}@localhost'; book.addCard(card); }}"
            for name in names))

    def make(self, url):
        self.card("a", "b", "c")

    def add(self):
        self.card("d")

    def count(self):
        return self.book("return book.childCards.map(card => card.displayName).sort();")


class IPython(Program):
    needs = ("ipython3",)
    directory = ".ipython"

    def make(self, url):
        self.run("ipython3", stdin="1 + 1\nx = 3\n")

    def add(self):
        self.run("ipython3", stdin="x = 4\n")

    def count(self):
        return self.run("ipython3", "-c", "%history -g").split("\n")


class Khal(Program):
    needs = ("khal",)
    directory = ".local/share/khal"

    def make(self, url):
        os.makedirs(self.home + "/.local/share/khal/calendars/home")
        self.write(".config/khal/config", "[calendars]\n[[home]]\npath = ~/.local/share/khal/calendars/home\n"
                   "[default]\ndefault_calendar = home\n[locale]\n" + "".join(f"{name} = {form}\n" for name, form in (
                       ("timeformat", "%H:%M"), ("dateformat", "%Y-%m-%d"), ("longdateformat", "%Y-%m-%d"),
                       ("datetimeformat", "%Y-%m-%d %H:%M"), ("longdatetimeformat", "%Y-%m-%d %H:%M"))))
        for day in range(1, 4):
            self.event(day)

    def event(self, day):
        self.run("khal", "new", f"2030-01-{day:02}", "10:00", "11:00", f"Day {day}")

    def add(self):
        self.event(9)

    def count(self):
        return self.run("khal", "list", "--format", "{title}", "2030-01-01", "30d").split("\n")


class NSS(Program):
    needs = ("certutil",)
    directory = ".pki/nssdb"

    def certutil(self, *words):
        return self.run("certutil", *words, "-d", f"sql:{self.home}/{self.directory}")

    def make(self, url):
        os.makedirs(f"{self.home}/{self.directory}")
        self.certutil("-N", "--empty-password")
        self.certificate("one")

    def certificate(self, name):
        noise = self.write("noise", os.urandom(2048))
        self.certutil("-S", "-n", name, "-s", f"CN={name}", "-x", "-t", "C,,", "-z", noise, "-m", str(len(name)))

    def add(self):
        self.certificate("three")

    def count(self):
        return self.certutil("-L").split("\n"), self.certutil("-K").split("\n")


class Bogofilter(Program):
    needs = ("bogofilter-sqlite", "bogoutil-sqlite")
    directory = ".bogofilter"

    def make(self, url):
        for number in range(3):
            self.learn("-s", number)
        self.learn("-n", 3)

    def learn(self, kind, number):
        self.run("bogofilter-sqlite", kind, stdin=f"Subject: number {number}\n\nA letter, word{number} in it\n")

    def add(self):
        self.learn("-n", 9)

    def count(self):
        return self.run("bogoutil-sqlite", "-d", self.home + "/.bogofilter/wordlist.db").split("\n")


class Gramps(Program):
    needs = ("gramps",)
    directory = ".gramps"

    def make(self, url):
        self.run("gramps", "-C", "Lee", "-i", self.people("Ann", "Bob"))

    def people(self, *names):
        return self.write("people.ged", "0 HEAD\n1 GEDC\n2 VERS 5.5\n1 CHAR UTF-8\n" + "".join(
            f"0 @{name}@ INDI\n1 NAME {name} /Lee/\n" for name in names) + "0 TRLR\n")

    def add(self):
        # Without something to write, it would open a window.
        self.run("gramps", "-y", "-O", "Lee", "-i", self.people("Eve"), "-e", self.home + "/all.ged")

    def count(self):
        return [line.strip() for line in self.run("gramps", "-L").splitlines() if "Number of people" in line]


class RPM(Program):
    needs = ("rpm", "rpmbuild")
    directory = "rpm"

    def make(self, url):
        os.makedirs(self.home + "/rpm")
        self.rpm("--initdb")
        self.package("one")

    def rpm(self, *words):
        return self.run("rpm", "--dbpath", self.home + "/rpm", *words)

    def package(self, name):
        spec = self.write(
            name + ".spec", f"Name: {name}\nVersion: 1\nRelease: 1\nSummary: s\nLicense: l\nBuildArch: noarch\n"
            "%description\nd\n%files\n")
        self.run("rpmbuild", "-bb", "--define", f"_topdir {self.home}/build", spec)
        self.rpm("-i", "--justdb", "--nodeps", f"{self.home}/build/RPMS/noarch/{name}-1-1.noarch.rpm")

    def add(self):
        self.package("two")

    def count(self):
        return sorted(self.rpm("-qa").split())


class Fail2Ban(Program):
    needs = ("fail2ban-server", "fail2ban-client")
    directory = "fail2ban"

    def make(self, url):
        os.makedirs(self.home + "/fail2ban")
        self.write("log", "")
        shutil.copytree("/etc/fail2ban", self.home + "/etc", ignore=shutil.ignore_patterns("jail.d", "*.local"))
        self.write("etc/filter.d/test.conf", "[Definition]\nfailregex = ^refused <HOST>$\n")
        self.write("etc/jail.local", "[test]\nenabled = true\nbackend = polling\nfilter = test\naction =\n"
                   f"logpath = {self.home}/log\nbantime = 1y\n")
        self.write("etc/fail2ban.local", f"[DEFAULT]\nlogtarget = {self.home}/fail2ban.log\nsocket = {self.home}/socket\n"
                   f"pidfile = {self.home}/pid\ndbfile = {self.home}/fail2ban/fail2ban.sqlite3\ndbpurgeage = 2y\n")
        self.banned = 2
        self.served("set", "test", "banip", "192.0.2.1", "192.0.2.2")

    def served(self, *words):
        """Runs the server for one command. Returns the banned addresses, once it has all that are expected."""
        self.client("start")
        try:
            if words:
                self.client(*words)
            deadline = time.monotonic() + 60
            while len(found := sorted(self.client("get", "test", "banip").split())) < self.banned:
                assert time.monotonic() < deadline, found
                time.sleep(0.05)
            return found
        finally:
            self.client("stop")

    def client(self, *words):
        return self.run("fail2ban-client", "-c", self.home + "/etc", *words)

    def add(self):
        self.banned = 3
        self.served("set", "test", "banip", "192.0.2.9")

    def count(self):
        return self.served()


class Subversion(Program):
    needs = ("svn", "svnadmin", "svnlook")
    directory = "svn"

    def make(self, url):
        os.makedirs(self.home + "/svn")
        self.run("svnadmin", "create", "svn/notes")
        for name in ("one", "two"):
            self.commit(name)

    def commit(self, name):
        self.run("svn", "import", "-m", "Add " + name, self.write(name, name), f"file://{self.home}/svn/notes/{name}")

    def add(self):
        self.commit("three")

    def count(self):
        self.run("svnadmin", "verify", "svn/notes")
        return self.run("svnlook", "tree", "svn/notes").split("\n")


PROGRAMS = {
    "beets": Beets, "bogofilter": Bogofilter, "buku": Buku, "calibre": Calibre, "fail2ban": Fail2Ban, "firefox": Firefox,
    "fossil": Fossil, "gpodder": GPodder, "gramps": Gramps, "ipython": IPython, "khal": Khal, "newsboat": Newsboat,
    "nss": NSS, "rpm": RPM, "subversion": Subversion, "thunderbird": Thunderbird, "vnstat": VnStat}


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
