"""The errors that the package raises. Each has a code for programs, and a message and a remedy for people."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Optional

from .events import Holder

__all__ = [
    "DirectoryMissing",
    "GroupStoreError",
    "InvalidOption",
    "NoAgent",
    "ProgramFailed",
    "ProgramMissing",
    "Refused",
    "UnknownOperation",
]


class GroupStoreError(Exception):
    """The base class of the package's errors."""

    code: str
    """A stable code, such as `no_agent`."""
    message: str
    """What is wrong, in one sentence."""
    remedy: str
    """What a person can do about it. Empty if nothing is known."""

    def __init__(self, code: str, message: str, remedy: str = "") -> None:
        super().__init__(code, message, remedy)
        self.code = code
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class NoAgent(GroupStoreError):
    """No agent answers at the socket.

    The codes: `no_agent` (nothing listens at that path, or no variable names the socket), `not_understood` (the program
    that listens there isn't an agent), `agent_silent` (it doesn't answer), `agent_lost` (it ends each connection).
    """


class DirectoryMissing(GroupStoreError, FileNotFoundError):
    """The directory of a store that is to be watched without an agent doesn't exist.

    The codes: `no_directory`, and `no_container` if the store's name is GROUP_ID/NAME and there is neither such a group
    nor such a directory. `errno` and `filename` are set, as in any FileNotFoundError.
    """

    def __init__(self, code: str, message: str, remedy: str = "", filename: Optional[str] = None) -> None:
        super().__init__(code, message, remedy)
        self.args = (code, message, remedy, filename)
        self.errno, self.strerror, self.filename = errno.ENOENT, message, filename


class InvalidOption(GroupStoreError, ValueError):
    """An option has a value that it doesn't take. The code is `bad_option`."""


class Refused(GroupStoreError):
    """The agent answered with an error; repeating the request won't help.

    The codes are those of the wire protocol's section "Errors", such as `unknown_store`.
    """

    holders: list[Holder]
    """The processes that the error names, for some codes."""

    def __init__(self, code: str, message: str, remedy: str = "", holders: Sequence[Holder] = ()) -> None:
        super().__init__(code, message, remedy)
        self.args = (code, message, remedy, tuple(holders))
        self.holders = list(holders)

    @property
    def hint(self) -> Optional[str]:
        """The remedy under its name in the wire protocol; None if the agent sent none."""
        return self.remedy or None


class UnknownOperation(Refused, ValueError):
    """The agent doesn't know the operation of `ask` or `ask_async`. The code is `unknown_op`."""


class ProgramFailed(GroupStoreError):
    """The `groupstore` program, which watches a store without an agent, could not be started or has ended.

    The codes are those of the program, such as `not_a_file`; `no_program` if it can't be started, `program_failed` if
    it ended without saying why.
    """

    exit_status: Optional[int]
    """The program's exit status, or a signal's number, negated; None if it wasn't started."""

    def __init__(self, code: str, message: str, remedy: str = "", exit_status: Optional[int] = None) -> None:
        super().__init__(code, message, remedy)
        self.args = (code, message, remedy, exit_status)
        self.exit_status = exit_status


class ProgramMissing(ProgramFailed, FileNotFoundError):
    """There is no `groupstore` program. The code is `no_program`.

    `errno` and `filename` are set, as in any FileNotFoundError.
    """

    def __init__(self, code: str, message: str, remedy: str = "", filename: Optional[str] = None) -> None:
        super().__init__(code, message, remedy)
        self.args = (code, message, remedy, filename)
        self.errno, self.strerror, self.filename = errno.ENOENT, message, filename
