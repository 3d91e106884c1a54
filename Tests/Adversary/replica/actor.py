"""Runs the test program that reads and writes batches and snapshots (Actor/)."""

import subprocess


class Part:
    """One message of a stream."""

    def __init__(self, number, last, source, upto, schema, body):
        self.number, self.last, self.source, self.upto, self.schema, self.body = number, last, source, upto, schema, body

    def copy(self, **changes):
        return Part(**{**self.__dict__, **changes})

    @property
    def header(self):
        return f"part {self.number} {int(self.last)} {self.source} {self.upto} {self.schema} {len(self.body)}\n".encode()


class Gone(Exception):
    """The program has ended."""


class Actor:
    """The program with one command, which answers a line to each of ours."""

    def __init__(self, program, *words):
        self.process = subprocess.Popen([program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def line(self):
        line = self.process.stdout.readline().decode()
        if not line.endswith("\n"):
            raise Gone(f"{self.process.wait()}: {self.process.stderr.read().decode()[-300:]}")
        return line.split()

    def send(self, data):
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Gone(f"{self.process.wait()}: {self.process.stderr.read().decode()[-300:]}") from None

    def ask(self, text):
        self.send(text.encode() + b"\n")
        return self.line()

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except OSError:
                pass
        self.process.wait()

    def batch(self, token, size):
        """Returns the parts of a batch, and the answer after them."""
        self.send(f"batch {token} {size}\n".encode())
        parts = []
        while True:
            words = self.line()
            if words[0] != "part":
                return parts, words
            number, last, source, upto, schema, length = words[1:]
            parts.append(Part(int(number), last == "1", source, upto, schema, self.process.stdout.read(int(length))))

    def apply(self, part):
        self.send(part.header + part.body)
        return self.line()


def run(program, *words):
    done = subprocess.run([program, *words], capture_output=True, timeout=300)
    lines = done.stdout.decode().splitlines()
    if not lines:
        raise Gone(f"{words}: {done.returncode} {done.stderr.decode()[-300:]}")
    return lines[-1].split()
