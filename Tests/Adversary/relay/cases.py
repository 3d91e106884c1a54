"""The cases: what harm is done in a round, and what must be true after it."""

import random
import time

import checks
import harms
import hostile
import replicas
import special
from round import Problem, Round


class Case(Round):
    harms, writer_count, followers_count, key_chance, publish = [], 2, 1, 0.85, ()
    supersede = False
    case_words = ("schema", "vacuum")

    def __init__(self, groupstore, relay, directory, seed, case):
        chance = random.Random(f"{seed}/{case}/setup")
        key = chance.random() < self.key_chance
        super().__init__(groupstore, relay, directory, seed, case, self.followers_count, self.case_words, key, self.publish)
        self.may_supersede = self.supersede

    def play(self, seconds):
        self.start(self.writer_count)
        if self.harms:
            harms.do(self, self.harms, seconds)
        else:
            self.calm(seconds)
        self.before_end(seconds)
        checks.end(self)
        if "forgeries" in self.counts and self.key:
            special.no_ghost(self)

    def calm(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.5)
            self.look_after()
            self.tokens.append(self.token())

    def before_end(self, seconds):
        pass


class Plain(Case):
    followers_count = 2


class Schema(Case):
    """The app changes its schema, and `history enable` follows a moment later."""

    case_words = ("schema", "often", "vacuum")


class UTF16(Case):
    """Texts that UTF-8 can't say, and BLOBs that are read as text."""

    case_words = ("utf16", "schema", "vacuum")

    def __init__(self, groupstore, relay, directory, seed, case):
        self.encoding = random.Random(seed).choice(["UTF-16le", "UTF-16be"])
        super().__init__(groupstore, relay, directory, seed, case)

    def before_end(self, seconds):
        checks.sound(self)


class Big(Case):
    case_words = ("big", "vacuum")
    harms = [harms.cut, harms.kill_follower, harms.kill_publisher, harms.proxied("truncate")]


class Links(Case):
    harms = harms.LINKS


class Kills(Case):
    harms, followers_count = harms.KILLS, 2


class Broker(Case):
    harms = harms.BROKER + [harms.kill_broker]
    case_words = ("vacuum",)


class Flips(Case):
    # Whoever may publish may stop a home, but no more: "a stop that says why".
    harms, key_chance, supersede = harms.FLIPS, 1, True
    case_words = ("vacuum",)


class Mixed(Case):
    harms, key_chance, supersede, writer_count = harms.LINKS + harms.KILLS + harms.BROKER + harms.FLIPS, 1, True, 3
    followers_count = 2


class Retention(Case):
    publish = ("--max-bytes", "1048576")
    harms = harms.KILLS + [harms.proxied("refuse")]
    case_words = ("fast", "big", "vacuum")


class Purge(Case):
    harms = harms.KILLS + [harms.purge, harms.purge, harms.proxied("stall")]
    case_words = ("purge", "vacuum")


class TwoPublishers(Case):
    """Two relays of one store: each is fenced, none does harm, and neither is superseded by the other's messages."""

    case_words = ()

    def calm(self, seconds):
        second = self.new_publisher("publisher2", self.home, self.broker.port)
        second.start()
        try:
            super().calm(seconds)
            code = second.unexpected_end()
            if code not in (None, 75):
                raise Problem("two publishers", f"the second ended with {code}: {second.last_words()}", "A mismatch: read again, publish anew from what is there")
        finally:
            if second.alive:
                second.now.kill()


class Memory(Case):
    """Memory stays flat: over a long run, with the broker away for a while, and with batches of many parts."""

    case_words, writer_count = ("fast", "big"), 2

    def calm(self, seconds):
        samples = {role.name: [] for role in [self.publisher, *self.followers]}
        end, number = time.monotonic() + max(seconds, 45), 0
        while time.monotonic() < end:
            time.sleep(0.5)
            number += 1
            if number % 40 == 20:
                self.broker.kill()
            if number % 40 == 30:
                self.broker.start()
            self.look_after()
            for role in [self.publisher, *self.followers]:
                samples[role.name].append(role.now.memory())
        for name, sizes in samples.items():
            third = len(sizes) // 3
            early, late = max(sizes[third // 2:third + third // 2]), max(sizes[-third:])
            self.count(f"KiB of the {name} early", early)
            self.count(f"KiB of the {name} late", late)
            if late > early * 1.3 + 12000:
                raise Problem("memory", f"{name}: {early} KiB, later {late} KiB; every tenth: {sizes[::10]}", "memory stays flat")


class Unsteady(Case):
    """A batch is longer than the publisher's connections last."""

    case_words, writer_count = (), 1

    def calm(self, seconds):
        checks.reached(self, self.followers[0])
        limit = self.chance.choice([2, 3]) << 20
        self.publisher_proxy.limit = limit
        self.publisher_proxy.cut()
        self.execute(*["INSERT INTO ticks(at) VALUES (randomblob(1500000))"] * (2 * limit >> 20))
        checks.reached(self, self.followers[0])
        self.publisher_proxy.limit = None


def case(function, **members):
    """A case that one function plays."""
    return type(function.__name__, (Case,), dict(dict(case_words=()), **members, play=lambda self, seconds: function(self, seconds)))


CASES = {
    "plain": Plain, "schema": Schema, "utf16": UTF16, "links": Links, "kills": Kills, "broker": Broker, "flips": Flips, "retention": Retention, "purge": Purge,
    "twopublishers": TwoPublishers, "big": Big, "unsteady": Unsteady, "mixed": Mixed, "memory": Memory,
    "restored": case(special.restored), "restoredquiet": case(special.restored_quiet), "remade": case(special.remade), "twohomes": case(special.two_homes),
    "handwritten": case(replicas.handwritten), "promoted": case(replicas.promoted), "full": case(replicas.full),
    "pagesize": case(special.page_size), "away": case(special.away_from_history), "wrongkey": case(replicas.wrong_key, key_chance=1),
    "noserver": case(replicas.no_server), "hostile": case(hostile.hostile), "hostilekeyless": case(hostile.hostile, key_chance=0),
}
