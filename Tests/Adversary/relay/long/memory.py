"""The memory of the relay's programs over the run."""

import time


class Memory:
    """Samples the resident size of programs, once a second, with the age of the process."""

    def __init__(self):
        self.samples, self.next = {}, 0

    def sample(self, programs):
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + 1
        for program in programs:
            size = resident(program.process.pid) if program.alive else None
            if size:
                self.samples.setdefault(program.name, []).append((program.started, now, size))

    def summary(self, name):
        """Returns in words: the peak of all, and the largest size of the longest life's second and last quarter, in KiB."""
        peak, early, late, life = self.figures(name)
        return f"{name} at most {peak} KiB; in its longest life, of {life:.0f} s, {early} KiB early and {late} KiB late"

    def figures(self, name):
        samples, lives = self.samples.get(name, []), {}
        for started, now, size in samples:
            lives.setdefault(started, []).append((now, size))
        longest = max(lives.values(), key=len, default=[(0, 0)])
        quarter = len(longest) // 4
        early, late = longest[quarter:2 * quarter] or longest, longest[-quarter:] if quarter else longest
        return max((size for *_, size in samples), default=0), max(s for _, s in early), max(s for _, s in late), longest[-1][0] - longest[0][0]

    def growth(self, name):
        """Returns what grew, in words; None if memory is flat: within a life, and from the run's first half to its second."""
        samples = self.samples.get(name, [])
        _, early, late, life = self.figures(name)
        if life >= 60 and late > early * 1.25 + 8192:
            return f"{name}: {self.summary(name)}"
        half = len(samples) // 2
        if half >= 60:
            first, second = (max(size for *_, size in part) for part in (samples[:half], samples[half:]))
            if second > first * 1.4 + 16384:
                return f"{name} at most {first} KiB in the first half, {second} KiB in the second"
        return None


def resident(process):
    try:
        with open(f"/proc/{process}/status") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("VmRSS")), None)
    except OSError:
        return None
