"""What must hold in a round: while it waits, and at its end."""
import os
import signal
import time

PATIENCE = 75      # how long after the last remedy a store may take


class Judge:
    def judge_idle(self, when):
        """Nothing changes: then the agent does nothing, for whatever it waits."""
        busy = [p for p in self.places if p.retries] + [p for p in self.presenters if p.mood != "polite"]
        if self.rights_taken and when != "at the end":     # of the group: then all of its stores are tried again, less and less often
            busy += self.places
        self.frozen = True
        # A holder that has changed its user can't be seen without CAP_SYS_PTRACE. The agent looks again for a minute then.
        self.spend(70 if any(p.case.__name__ == "while_held" for p in self.places) else 20)
        lines, work = len(self.agent.log_lines()), self.agent.work_done()
        heard, asked = [len(p.events) for p in self.places], [len(p.times) for p in self.presenters]
        self.spend(15)
        switches, seconds = (now - then for now, then in zip(self.agent.work_done(), work))
        logged = self.agent.log_lines()[lines:]
        self.count("idle agents looked at %s%s" % (when, ", with causes to look again" if busy else ""))
        self.totals["most runs of an idle agent"] = max(self.totals["most runs of an idle agent"], switches if not busy else 0)
        # The files' status of a refused store is checked less and less often: once or twice in this time.
        waiting = sum(bool(p.steps) for p in self.places)
        if switches > 10 + 20 * waiting and not busy or seconds > 0.1 + 0.3 * len(busy):
            self.problem(None, "%s, the idle agent ran %d times in 15 s, %.2f s of processor time; places: %s\n%s" % (
                when, switches, seconds, "; ".join("%s (%s)" % (p.case.__name__, p.notes[-1:]) for p in self.places),
                self.agent.wakers()))
        if len(logged) > 6 * len(busy):
            self.problem(None, "%s, the idle agent logged %d lines in 15 s, such as: %s" % (when, len(logged), logged[-1]))
        for place, before in zip(self.places, heard):
            if len(place.events) - before > (6 if busy else 0):
                self.problem(place, "%s, %d events came in 15 s" % (when, len(place.events) - before))
        for presenter, before in zip(self.presenters, asked):
            if len(presenter.times) - before > (1 if busy else 0):
                self.problem(presenter.place, "%s, a presenter was asked %d times in 15 s" % (
                    when, len(presenter.times) - before))
        self.frozen = False

    def judge_places(self):
        """Everything is out of the way: every store gets to where it belongs."""
        waiting = list(self.places)
        checked = [0.0]

        def done():
            if time.monotonic() - checked[0] > 0.5:
                waiting[:] = [p for p in waiting if not p.fulfilled()]
                checked[0] = time.monotonic()
            return not waiting

        patience = PATIENCE + (75 if self.presenters else 0)
        begun = time.monotonic()
        self.spend(patience, done)
        self.totals["longest wait at the end, s"] = max(
            self.totals["longest wait at the end, s"], int(time.monotonic() - begun))
        for place in list(waiting):
            self.problem(place, "nothing is in the way any more, and after %d s the store is not relocated" % patience)
        if waiting:
            os.kill(self.agent.process.pid, signal.SIGHUP)
            if self.spend(15, done):
                print("    a SIGHUP helped")
            else:
                self.restart()
                print("    another agent helped" if self.spend(30, done) else "    not even another agent helped", flush=True)
        for place in self.places:
            missing = place.missing()
            self.count("rows looked for", len(place.tags))
            if missing and place.strict:
                self.problem(place, "%d of %d rows are nowhere to be found (%s)" % (
                    len(missing), len(place.tags), sorted(missing)[:3]))
            self.count(place.case.__name__ + ": " + ("relocated" if os.path.isfile(place.group) else "not relocated"))

    def judge_talk(self):
        """Each beginning has had its end, and nobody was asked too often."""
        for place in self.places:
            last = next((e for _, e in reversed(place.events) if e["type"] in (
                "relocating", "relocated", "abandoned", "reset")), None)
            if last and last["type"] == "relocating" and not os.path.lexists(place.legacy):
                self.problem(place, "`relocating` was never ended")
            if len(place.events) > 60 and place.case.__name__ != "made_in_place":
                self.problem(place, "%d events for one store" % len(place.events))
        for presenter in self.presenters:
            if presenter.connection and not presenter.connection.closed and presenter.asked != presenter.reacquired:
                self.problem(presenter.place, "a presenter was asked to let go %d times, and told %d times that it may go on" % (
                    presenter.asked, presenter.reacquired))
            if len(presenter.times) > 14 + 4 * presenter.connected:
                self.problem(presenter.place, "a presenter was asked to let go %d times in %d s" % (
                    len(presenter.times), self.elapsed()))
