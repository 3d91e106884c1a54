"""A file that keeps a position, as `groupstore watch --token-file` does."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Optional

from ._protocol import MAX_LINE_LENGTH, Path
from .errors import GroupStoreError


class TokenFile:
    """A file of one line, which is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        # A later change of the working directory doesn't move the file.
        self._path = os.path.abspath(os.fsdecode(path))
        self._written: Optional[str] = None

    def read(self) -> Optional[str]:
        """Returns the token; None if there is no file yet. Raises OSError, and GroupStoreError for other content."""
        try:
            with open(self._path, "rb") as file:
                content = file.read(MAX_LINE_LENGTH + 1)
        except FileNotFoundError:
            return None
        line = content[:-1] if content.endswith(b"\n") else content
        if len(content) > MAX_LINE_LENGTH or not line or any(byte <= 0x20 for byte in line):
            raise self._bad()
        try:
            self._written = line.decode("utf-8")
        except UnicodeDecodeError:
            raise self._bad() from None
        return self._written

    def write(self, token: Optional[str]) -> None:
        """Replaces the token. If this raises OSError, the file is unchanged."""
        if not token or token == self._written:
            return
        directory, name = os.path.split(self._path)
        # Readable by its owner alone, as mkstemp makes it.
        descriptor, place = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(token + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(place, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(place)
            raise
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
        self._written = token

    def _bad(self) -> GroupStoreError:
        return GroupStoreError(
            "bad_token_file", f"{self._path} doesn't hold a token", "name another file, or remove it to start over"
        )
