"""Runs a program on a pseudoterminal, and shows its screen as a terminal would.

    python3 screen.py COLUMNS ROWS PROGRAM [ARGUMENT ...]

Commands come on standard input, one a line; each is answered with one JSON object on standard output.

    await PATTERN   waits until a row of the screen matches the regular expression somewhere
    vanish PATTERN  waits until none does
    resize C R      changes the terminal's size, and waits until the program has drawn on all of the new screen
    suspend         sends SIGTSTP, and waits until the program has stopped
    resume          sends SIGCONT, and waits until the program has drawn again
    signal NAME     sends a signal
    key TEXT        types the text
    end             waits for the program's end

It knows the control sequences below and no others: an unknown one, a character behind the last column and a line below
the last row are faults, which every answer lists.
"""

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
import unicodedata

PATIENCE = float(os.environ.get("PATIENCE", "60"))
SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Screen:
    """What the terminal shows. The alternate screen is a second page without a history."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.pages = {False: self.blank(), True: self.blank()}
        self.is_alternate = False
        self.has_cursor = True
        self.row = self.column = 0
        self.style = ""
        self.styles = set()
        self.faults = []
        self.drawn = 0
        self.pending = ""

    def blank(self):
        return [[" "] * self.columns for _ in range(self.rows)]

    @property
    def page(self):
        return self.pages[self.is_alternate]

    def lines(self, alternate=None):
        page = self.page if alternate is None else self.pages[alternate]
        return ["".join(row).rstrip() for row in page]

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.pages = {False: self.blank(), True: self.blank()}
        self.row = self.column = 0

    def fault(self, text):
        if len(self.faults) < 20:
            self.faults.append(text)

    def feed(self, text):
        text = self.pending + text
        self.pending = ""
        position = 0
        while position < len(text):
            character = text[position]
            if character == "\x1b":
                found = SEQUENCE.match(text, position)
                if not found:
                    if len(text) - position < 16:
                        self.pending = text[position:]
                        return
                    self.fault(f"unknown sequence {text[position:position + 16]!r}")
                    position += 1
                    continue
                self.control(*found.groups())
                position = found.end()
                continue
            position += 1
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self.row += 1
                if self.row >= self.rows:
                    if self.is_alternate:
                        self.fault("a line below the last row")
                    else:
                        self.page.append([" "] * self.columns)
                        del self.page[0]
                    self.row = self.rows - 1
            elif character < " " or "\x7f" <= character < "\xa0":
                self.fault(f"control character {character!r}")
            else:
                self.put(character)

    def put(self, character):
        if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
            return
        width = 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
        if self.column + width > self.columns:
            self.fault(f"{character!r} behind the last column in row {self.row}: {''.join(self.page[self.row])!r}")
            return
        self.page[self.row][self.column] = character
        if width == 2:
            self.page[self.row][self.column + 1] = ""
        self.column += width
        if self.style:
            self.styles.add(self.style)

    def control(self, private, parameters, final):
        match private, parameters, final:
            case "", "", "H":
                self.row = self.column = 0
                self.drawn += 1
            case "", "" | "0", "J":
                for row in range(self.row, self.rows):
                    start = min(self.column, self.columns - 1) if row == self.row else 0
                    self.page[row][start:] = [" "] * (self.columns - start)
            case "", "2", "J":
                self.pages[self.is_alternate] = self.blank()
                # What was drawn for the old size is gone.
                self.faults = [fault for fault in self.faults if "last" not in fault]
            case "", "2", "K":
                self.page[self.row] = [" "] * self.columns
            case "", _, "m":
                self.style = "" if parameters in ("", "0") else parameters
            case "?", "1049", "h" | "l":
                self.is_alternate = final == "h"
                if self.is_alternate:
                    self.pages[True] = self.blank()
            case "?", "25", "h" | "l":
                self.has_cursor = final == "h"
            case _:
                self.fault(f"unknown sequence {private}{parameters}{final}")


class Terminal:
    def __init__(self, columns, rows, arguments):
        self.screen = Screen(columns, rows)
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            # The size comes before the program.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvp(arguments[0], arguments)
        self.is_open = True
        # Its modes can't be read once nobody has it open. TIOCGPTN returns its number (ioctl_tty(2)).
        number = struct.unpack("I", fcntl.ioctl(self.master, 0x80045430, bytes(4)))[0]
        self.slave = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)

    def read(self, seconds):
        if not self.is_open:
            return False
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        if not data:
            self.is_open = False
            return False
        self.screen.feed(self.decoder.decode(data))
        return True

    def wait(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end or not self.is_open:
                return {"error": f"{what}: not in time", **self.state()}
            self.read(0.2)
        # A frame may come in parts.
        while self.read(0.05):
            pass
        return self.state()

    def state(self):
        state = {
            "screen": self.screen.lines(), "alternate": self.screen.is_alternate, "cursor": self.screen.has_cursor,
            "styles": sorted(self.screen.styles), "faults": self.screen.faults,
        }
        try:
            modes = termios.tcgetattr(self.master)[3]
            state["echo"] = bool(modes & termios.ECHO)
            state["canonical"] = bool(modes & termios.ICANON)
        except (OSError, termios.error):
            pass
        return state

    def has(self, text):
        return any(re.search(text, line) for line in self.screen.lines())

    def resize(self, columns, rows):
        while self.read(0.05):
            pass
        self.screen.resize(columns, rows)
        before = self.screen.drawn
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        # It may draw once more for the former size, of which it learns by a signal.
        return self.wait(lambda: self.screen.drawn > before and not self.screen.faults, "resize")

    def suspend(self):
        os.kill(self.pid, signal.SIGTSTP)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                while self.read(0.05):
                    pass
                return self.state()
        return {"error": "it does not stop", **self.state()}

    def resume(self):
        before = self.screen.drawn
        os.kill(self.pid, signal.SIGCONT)
        return self.wait(lambda: self.screen.drawn > before and self.screen.is_alternate, "resume")

    def end(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read(0.05):
                    pass
                return {"status": os.waitstatus_to_exitcode(status), **self.state()}
        return {"error": "it does not end", **self.state()}


def main():
    terminal = Terminal(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    while True:
        # The terminal is read meanwhile, so that the program never waits for it.
        while not select.select([sys.stdin], [], [], 0)[0]:
            select.select([sys.stdin] + ([terminal.master] if terminal.is_open else []), [], [])
            terminal.read(0)
        # One line at a time: a buffered reader would hide the next one from select.
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(0, 1)
            if not byte:
                os.kill(terminal.pid, signal.SIGKILL)
                return
            line += byte
        word, _, rest = line.decode().rstrip("\n").partition(" ")
        match word:
            case "await":
                answer = terminal.wait(lambda: terminal.has(rest), f"await {rest}")
            case "vanish":
                answer = terminal.wait(lambda: not terminal.has(rest), f"vanish {rest}")
            case "resize":
                columns, rows = map(int, rest.split())
                answer = terminal.resize(columns, rows)
            case "suspend":
                answer = terminal.suspend()
            case "resume":
                answer = terminal.resume()
            case "signal":
                os.kill(terminal.pid, getattr(signal, "SIG" + rest))
                answer = {}
            case "key":
                os.write(terminal.master, rest.encode())
                answer = {}
            case "end":
                answer = terminal.end()
            case _:
                answer = {"error": f"unknown command {word}"}
        print(json.dumps(answer), flush=True)


main()
