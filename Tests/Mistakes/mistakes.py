#!/usr/bin/python3
"""Makes the mistakes of mistakes.txt through the program, compares its answers, and runs their remedies.

    python3 Tests/Mistakes/mistakes.py GROUPSTORE [--only PART] [--part N/M] [--update]

Each paragraph of mistakes.txt is one mistake:

    # what somebody does
    + what is there before (bash; prelude.sh has functions)
    $ the mistake
      the answer, on standard output and standard error
    [its exit code]
    ! the command in the answer's remedy
    > what somebody does by a remedy that isn't a command
    ? what must succeed then; `again` is the mistake, made again

`--update` writes the answers, exit codes and remedies as they are; read each of them before you commit it. A remedy
that is a command must have a check: it is run as printed, must succeed, and must do what it promises. `@root` in the
title says that only root can make the mistake, `@setfacl` that its remedy needs that program, and `@small` that it
searches the whole file system, and so is made on a small one.
"""
import argparse, concurrent.futures, os, pathlib, re, shutil, signal, subprocess, sys, tempfile

here = pathlib.Path(__file__).resolve().parent
programs = r"groupstore|groupstore-relay|mkdir|mv|rm|chmod|setfacl|sqlite3|find|mount|kill|git|systemctl"
command_in_remedy = re.compile(rf"(?:^|(?<=: )|(?<=; ))(?:{programs}) .*?(?=; |$)")
limit = 60


def can_mount():
    """Returns true for root that may mount: in a container it may not."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode == 0


class Mistake:
    def __init__(self, lines):
        self.lines = lines
        self.title = lines[0][2:]
        kinds = {kind: [line[2:] for line in lines if line.startswith(kind)] for kind in "+$!>?"}
        self.before, self.mistake = kinds["+"], kinds["$"]
        self.remedy, self.advice, self.checks = kinds["!"], kinds[">"], kinds["?"]
        self.answer = [line[2:] for line in lines if line.startswith("  ")]
        self.status = next((int(line[1:-1]) for line in lines if line.startswith("[")), None)
        if len(self.mistake) != 1:
            raise SystemExit(f"{self.title}: one line must begin with $")

    def applies(self):
        if "@setfacl" in self.title and not shutil.which("setfacl"):
            return False
        return "@root" not in self.title or can_mount()

    def text(self, answer, status, remedy):
        shown = ["# " + self.title] + ["+ " + line for line in self.before] + ["$ " + self.mistake[0]]
        shown += ["  " + line for line in answer] + [f"[{status}]"] + ["! " + line for line in remedy]
        return shown + ["> " + line for line in self.advice] + ["? " + line for line in self.checks]


class Trial:
    """One mistake in directories of its own."""

    def __init__(self, program, mistake):
        self.mistake = mistake
        small = "@small" in mistake.title and os.access("/dev/shm", os.W_OK)
        self.directory = tempfile.mkdtemp(prefix="gsm-", dir="/dev/shm" if small else "/tmp")
        place = pathlib.Path(self.directory)
        for name in ("work", "home", "run", "bin", "vendor", "system"):
            (place / name).mkdir()
        (place / "bin/groupstore").symlink_to(program)
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "GROUPSTORE_", "HOST_"))}
        self.environment = keep | {
            "D": self.directory, "HOME": f"{place}/home", "XDG_RUNTIME_DIR": f"{place}/run", "TZ": "UTC",
            "GROUPSTORE_SOCKET": f"{place}/run/agent.sock", "XDG_DATA_DIRS": f"{place}/vendor", "LC_ALL": "C.UTF-8",
            "XDG_CONFIG_DIRS": f"{place}/system", "PATH": f"{place}/bin:{os.environ['PATH']}",
            "BASH_ENV": str(here / "prelude.sh"), "COLUMNS": "500",
        }

    def run(self, line):
        # Not through a pipe: what the line leaves in the background may keep it open.
        with tempfile.TemporaryFile() as output:
            try:
                done = subprocess.run(
                    ["bash", "-c", line], cwd=f"{self.directory}/work", env=self.environment, timeout=limit,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
                status = done.returncode
            except subprocess.TimeoutExpired:
                status = "timeout"
            output.seek(0)
            return status, output.read().decode(errors="backslashreplace")

    def end(self):
        try:
            pids = pathlib.Path(self.directory, "pids").read_text().split()
        except FileNotFoundError:
            pids = []
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGCONT)
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        subprocess.run(["bash", "-c", "unmount_all"], env=self.environment)
        subprocess.run(["chmod", "-R", "u+rwX", self.directory], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def normalised(self, text):
        text = text.replace(self.directory, "DIR")
        text = re.sub(r"\bpid \d+", "pid N", text)
        text = re.sub(r"process \d+", "process N", text)
        text = re.sub(r"\b1\d{9}-[0-9a-z]{6,}\b", "ID", text)
        text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME", text)
        text = re.sub(r"\b[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}\b", "UUID", text)
        text = re.sub(r"token [a-z0-9]+-[\w.-]*", "token TOKEN", text)
        # The help's own tests know them.
        text = re.sub(r"^(Usage|Help): .*", r"\1: ...", text, flags=re.M)
        return [line.rstrip() for line in text.rstrip("\n").split("\n")] if text else []

    @staticmethod
    def remedies(text):
        """Returns the commands in the answer's remedy: what the last parentheses hold, or the help that it names."""
        found = []
        for line in text.split("\n"):
            help = re.search(r"See '(groupstore[^']*)' for more", line)
            if help:
                found.append(help[1])
            if not line.endswith(")"):
                continue
            depth, start = 0, None
            for index in range(len(line) - 1, -1, -1):
                depth += {")": 1, "(": -1}.get(line[index], 0)
                if depth == 0:
                    start = index + 1
                    break
            if start is not None:
                found += command_in_remedy.findall(line[start:-1])
        return found[-1:]

    def trial(self):
        """Returns the answer, the exit code, the remedy, and what is wrong with the remedy."""
        mistake, problems = self.mistake, []
        for line in mistake.before:
            status, output = self.run(line)
            if status != 0:
                problems.append(f"+ {line}: {status}: {output}")
        status, text = self.run(mistake.mistake[0])
        remedy = self.remedies(text)
        for line in remedy + mistake.advice:
            # An agent runs until it is stopped.
            code, output = self.run("agent" if line == "groupstore agent" else line)
            # find(1) fails for a directory that it may not read, and prints what it finds all the same.
            if code != 0 and not (line.startswith("find ") and output):
                problems.append(f"the remedy '{line}' ends with {code}: {output}")
        if remedy and not mistake.checks and not remedy[0].endswith("--help"):
            problems.append(f"nothing checks the remedy '{remedy[0]}'")
        for line in mistake.checks:
            line = mistake.mistake[0] if line == "again" else line
            code, output = self.run(line)
            if code != 0:
                problems.append(f"after the remedy, '{line}' ends with {code}: {output}")
        return self.normalised(text), status, sum((self.normalised(line) for line in remedy), []), problems


def attempt(program, mistake):
    trial = Trial(program, mistake)
    try:
        return trial.trial()
    finally:
        trial.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("groupstore")
    parser.add_argument("--only", default="", help="mistakes whose title contains this")
    parser.add_argument("--part", default="1/1", help="every Mth mistake, beginning with the Nth")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    number, parts = map(int, options.part.split("/"))
    program = pathlib.Path(options.groupstore).resolve()
    file = here / "mistakes.txt"
    paragraphs = [part.split("\n") for part in file.read_text().strip().split("\n\n")]
    mistakes = [Mistake(lines) for lines in paragraphs]
    chosen = [
        mistake for index, mistake in enumerate(mistakes)
        if index % parts == number - 1 and options.only in mistake.title and mistake.applies()
    ]
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for mistake, found in zip(chosen, pool.map(lambda one: attempt(program, one), chosen)):
            answer, status, remedy, problems = found
            expected = (mistake.answer, mistake.status, mistake.remedy)
            if options.update:
                mistake.lines = mistake.text(answer, status, remedy)
            elif expected != (answer, status, remedy):
                problems.append("expected:\n" + "\n".join(mistake.lines))
                problems.append("found:\n" + "\n".join(mistake.text(answer, status, remedy)))
            if problems:
                failures += 1
                print(f"{mistake.title}:\n" + "\n".join(problems) + "\n")
    if options.update:
        file.write_text("\n\n".join("\n".join(mistake.lines) for mistake in mistakes) + "\n")
    print(f"{len(chosen)} mistakes, {failures} with a wrong answer")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
