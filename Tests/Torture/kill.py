"""Kills everywhere: at each call of a relocation, and again at each change of the recovery that follows."""

import walk

# With a time limit, some points of many recoveries are tried rather than all of few.
SECOND_KILLS = 4


def first_kills(world, progress, every_call=False):
    """Kills the program at each point. Returns a point for each resulting state of the disk."""
    options = [] if every_call else ["--changes-only"]
    world.reset()
    total = len(walk.calls(world, *options))
    progress.judge(f"{world.scenario} undisturbed", world.problems())
    states = {}
    for point in progress.choose(range(1, total + 1)):
        world.reset()
        status, _, said = world.step("--kill", point, *options)
        found = world.problems_of_two()
        if status not in (137, 0):
            found.append(f"status {status}: {said}")
        states.setdefault(world.signature(), point)
        progress.judge(f"{world.scenario} killed at {point} of {total}", found + recovered(world, point))
    return sorted(states.values())


def recovered(world, point):
    """Runs the recovery, by the command or the agent, and judges."""
    by = "agent" if world.scenario.by == "agent" and point % 2 else "command"
    status, summary, said = world.run_again(by)
    found = world.problems()
    if status != 0:
        found.append(f"recovered by the {by} with {status}: {summary or said}")
    return found


def second_kills(world, progress, first_points):
    """Kills the program at each of these changes, and again at each change of the recovery."""
    for first in progress.choose(first_points):
        _kill(world, first)
        total = len(walk.calls(world, "--changes-only", by="command"))
        for second in progress.choose(range(1, total + 1), SECOND_KILLS):
            _kill(world, first)
            status, _, said = world.step("--changes-only", "--kill", second, by="command")
            found = [] if status in (137, 0) else [f"status {status}: {said}"]
            where = f"{world.scenario} killed at {first}, then at {second} of {total}"
            progress.judge(where, found + recovered(world, second))


def _kill(world, point):
    world.reset()
    world.step("--changes-only", "--kill", point)
