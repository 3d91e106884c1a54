"""Prints a JSON object for each event of a store: `python3 -m groupstore STORE`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import Any, Optional

from . import Changed, GroupStoreError, NoAgent, ProgramFailed, __version__, watch, watch_async
from ._rows import plain
from .events import Event

NAME_LISTS = ("tables", "entities", "operations", "authors", "except-authors")
NO_AGENT_STATUS = 69
"""The exit status of `groupstore watch` without an agent."""


def _print(event: Event) -> None:
    members = asdict(event)
    if isinstance(event, Changed):
        members["rows"] = plain(event.rows)
    print(json.dumps({"event": type(event).__name__, **members}), flush=True)


async def _print_all(store: str, options: dict[str, Any]) -> None:
    async with await watch_async(store, **options) as events:
        async for event in events:
            _print(event)


def _names(text: str) -> list[str]:
    return text.split(",")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m groupstore",
        description="Prints a JSON object for each event of a store, from an agent that serves it, or without one.",
    )
    parser.add_argument("store", metavar="STORE", help="a database file, or GROUP_ID/NAME")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--agent", action="store_true", default=None, help="receive events from the agent only")
    source.add_argument(
        "--direct", action="store_false", dest="agent", default=None, help="watch the file even if an agent serves it"
    )
    source.add_argument("--wait", action="store_true", help="wait for an agent that isn't there yet")
    parser.add_argument("--since", metavar="TOKEN", help="begin with the events after this token")
    parser.add_argument("--token-file", metavar="FILE", help="continue from the token in this file, and update it")
    for name in NAME_LISTS:
        parser.add_argument("--" + name, metavar="A,B", type=_names)
    parser.add_argument("--rows", action="store_true", help="add the changed rows")
    parser.add_argument("--durable", action="store_true", help="request tokens that are valid with any agent")
    parser.add_argument("--no-detail", action="store_false", dest="detail", help="don't determine the tables")
    parser.add_argument("--progress", action="store_true", help="report the progress of a relocation or migration")
    parser.add_argument("--program", metavar="FILE", help="the groupstore program that watches a file")
    parser.add_argument("--async", action="store_true", dest="is_async", help="use asyncio")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def main() -> Optional[int]:
    """Runs the program and returns its exit status."""
    options = vars(_parser().parse_args())
    store, is_async = options.pop("store"), options.pop("is_async")
    try:
        if is_async:
            import asyncio

            asyncio.run(_print_all(store, options))
        else:
            with watch(store, **options) as events:
                for event in events:
                    _print(event)
    except NoAgent as error:
        print(f"groupstore: {error}", file=sys.stderr)
        return NO_AGENT_STATUS
    except (GroupStoreError, ValueError) as error:
        print(f"groupstore: {error}", file=sys.stderr)
        status = error.exit_status if isinstance(error, ProgramFailed) else None
        return status if status is not None and status > 0 else 1
    except BrokenPipeError:
        # stdout is closed. Without this, the interpreter reports a failed flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return None


if __name__ == "__main__":
    sys.exit(main())
