"""The package itself: its version, its page and what it exports."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import subprocess
import sys
import unittest

import groupstore

from .support import PATIENCE, PROGRAM, Places

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class PackageTests(Places):
    def test_has_the_version_of_the_program(self) -> None:
        done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), groupstore.__version__)

    def test_imports_asyncio_only_for_those_who_use_it(self) -> None:
        seen = "print('asyncio' in sys.modules)"
        use = f"import groupstore, sys; {seen}; groupstore.ask_async; {seen}"
        done = subprocess.run([sys.executable, "-c", use], cwd=ROOT, capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split(), ["False", "True"])
        self.assertLessEqual(set(groupstore.__all__), set(dir(groupstore)))

    def test_documents_every_public_name_and_option(self) -> None:
        for name in groupstore.__all__:
            value = getattr(groupstore, name)
            if not callable(value) or name in ("Event", "Value"):
                continue
            self.assertTrue(value.__doc__ and not value.__doc__.startswith(name + "("), name)
            for member, function in inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []:
                if not member.startswith("_"):
                    self.assertTrue(function.__doc__, f"{name}.{member}")
        for kind in (groupstore.Changes, groupstore.DirectChanges, groupstore.watch):
            for option in inspect.signature(kind).parameters:
                self.assertIn(f"`{option}`", kind.__doc__ or "", kind)

    def test_runs_the_first_lines_of_its_page(self) -> None:
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        self.assertLess(len(blocks[0].splitlines()), 7)
        path = os.path.dirname(PROGRAM) + os.pathsep + os.environ["PATH"]
        reader = subprocess.Popen(
            [sys.executable, "-u", "-c", blocks[0]],
            cwd=self.group,
            env={**os.environ, "PATH": path, "PYTHONPATH": ROOT},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert reader.stdout is not None
        try:
            self.assertRegex(reader.stdout.readline(), "^Reset")
            self.commit(file=os.path.join(self.group, "app.db"))
            self.assertRegex(reader.stdout.readline(), "^(Changed|Reset)")
        finally:
            # The reader ends its own child.
            reader.send_signal(2)
            reader.wait(PATIENCE)
            reader.stdout.close()

    def test_errors_survive_another_process(self) -> None:
        holder = groupstore.Holder(2**63, "app")
        for error in (
            groupstore.NoAgent("no_agent", "none", "start one"),
            groupstore.Refused("busy", "it is", "", [holder]),
            groupstore.ProgramFailed("failed", "it did", "again", 74),
            groupstore.ProgramMissing("no_program", "none", "install it", "/bin/none"),
            groupstore.DirectoryMissing("no_directory", "none", "make it", "/none"),
            groupstore.InvalidOption("bad_option", "none", "take another"),
        ):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((str(copy), vars(copy)), (str(error), vars(error)))
            self.assertEqual(getattr(copy, "filename", None), getattr(error, "filename", None))
        self.assertEqual(str(groupstore.NoAgent("no_agent", "none", "start one")), "none (start one)")


if __name__ == "__main__":
    unittest.main()
