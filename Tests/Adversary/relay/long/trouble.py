"""The harm of a run. Each function of `Trouble` does one kind, and returns whether it could.

What lasts is begun, and ended later, while other harm is done: one at a time for each of the programs, links and brokers.
"""

import signal
import time

import stories


class Trouble:
    def __init__(self, hosts):
        self.hosts, self.chance, self.pending = hosts, hosts.chance, {}

    # What lasts

    def begin(self, subject, seconds, end):
        self.pending[subject] = (time.monotonic() + seconds, end)

    def free(self, subject):
        """Ends what is done to a subject."""
        if subject in self.pending:
            _, end = self.pending.pop(subject)
            end()

    def look(self):
        """Ends what has lasted long enough."""
        for subject in [each for each, (due, _) in self.pending.items() if due <= time.monotonic()]:
            self.free(subject)

    def end(self):
        for subject in list(self.pending):
            self.free(subject)
        self.hosts.heal()
        for program in (self.hosts.publisher, self.hosts.follower):
            program.start()

    def do(self, kind):
        """Does one kind of harm. Counts it, and returns whether it was done."""
        done = getattr(self, kind.replace(" ", "_"), None) or (lambda: getattr(stories, kind.replace(" ", "_"))(self))
        if not done():
            return False
        self.hosts.count(kind)
        return True

    # Links

    def connected(self, side, seconds=4):
        """Waits until a program is connected, so that there is a link to cut."""
        end = time.monotonic() + seconds
        while not any(proxy.pairs for proxy in self.hosts.links[side]):
            if time.monotonic() > end:
                return False
            self.hosts.check()
            self.look()
            time.sleep(0.02)
        return True

    def side(self):
        """Returns one that is connected, if there is one."""
        connected = [side for side in ("publisher", "follower") if any(proxy.pairs for proxy in self.hosts.links[side])]
        return self.chance.choice(connected or ["publisher", "follower"])

    def cut(self):
        side = self.side()
        self.free(side + " link")
        if not self.connected(side):
            return False
        proxies, mode = self.hosts.links[side], self.chance.choice(["pass", "pass", "pass", "refuse", "refuse", "stall", "truncate"])
        if mode == "stall":
            for proxy in proxies:
                proxy.mode = mode

            def end():
                for proxy in proxies:
                    proxy.mode = "pass"
                    proxy.cut()
            self.begin(side + " link", self.chance.random(), end)
        elif mode == "truncate":
            for proxy in proxies:
                proxy.mode = mode
            self.begin(side + " link", 1, lambda: [proxy.cut() for proxy in proxies if proxy.mode == "truncate"] and self.pass_on(proxies))
        else:
            for proxy in proxies:
                proxy.mode = mode
                proxy.cut()
            self.begin(side + " link", self.chance.random() * 1.5, lambda: self.pass_on(proxies))
        return True

    @staticmethod
    def pass_on(proxies):
        for proxy in proxies:
            proxy.mode = "pass"

    def flip(self):
        """Flips a bit of a message: on its way, or where a broker stores it."""
        if self.chance.random() < 0.4:
            node = self.chance.choice(self.hosts.brokers.nodes)
            self.free("broker")
            node.stop()
            flipped = node.flip(self.chance)
            node.start()
            return flipped
        side = self.side()
        self.free(side + " link")
        if not self.connected(side):
            return False
        proxies = self.hosts.links[side]
        before = sum(proxy.flipped for proxy in proxies)
        for proxy in proxies:
            proxy.mode = "flip a message"
        end = time.monotonic() + 5
        while sum(proxy.flipped for proxy in proxies) == before and time.monotonic() < end:
            self.hosts.check()
            time.sleep(0.01)
        self.pass_on(proxies)
        return sum(proxy.flipped for proxy in proxies) > before

    # Programs

    def kill_publisher(self):
        return self.kill(self.hosts.publisher)

    def kill_follower(self):
        return self.kill(self.hosts.follower)

    def kill(self, program):
        self.free(program.name)
        if not program.alive:
            return False
        program.kill()
        self.begin(program.name, self.chance.random() ** 2, program.start)
        return True

    def pause(self):
        """Stops a program or a broker for a moment, as a machine that sleeps."""
        programs = [each for each in (self.hosts.publisher, self.hosts.follower) if each.name not in self.pending and each.alive]
        if programs and self.chance.random() < 0.5:
            program = self.chance.choice(programs)
            process = program.process
            process.send_signal(signal.SIGSTOP)
            self.begin(program.name, self.chance.random(), lambda: process.send_signal(signal.SIGCONT))
        else:
            self.free("broker")
            node = self.chance.choice(self.hosts.brokers.nodes)
            node.signal(signal.SIGSTOP)
            self.begin("broker", self.chance.random() * 2, lambda: node.signal(signal.SIGCONT))
        return True

    # Brokers

    def kill_broker(self):
        """Kills a broker: in a cluster the stream's leader, each second time."""
        self.free("broker")
        node = self.chance.choice(self.hosts.brokers.nodes)
        if self.hosts.brokers.is_cluster and self.chance.random() < 0.5:
            leader = self.hosts.brokers.leader("GS_" + self.hosts.stream)
            if leader:
                node = leader
                self.hosts.count("leaders killed")
        node.kill()
        self.begin("broker", self.chance.random() * (6 if self.hosts.brokers.is_cluster else 1), node.start)
        return True

    def copy(self):
        """Copies the brokers' directories: of brokers that were stopped, or of killed ones."""
        self.free("broker")
        nodes = self.hosts.brokers.nodes
        for node in nodes:
            self.chance.choice([node.stop, node.kill])()
        for node in nodes:
            node.copy()
        self.hosts.brokers.start()
        return True

    def set_back(self):
        """Sets brokers back to an older copy of their directories: all to one moment; in a cluster also a single one."""
        self.free("broker")
        nodes = self.hosts.brokers.nodes
        if not nodes[0].copies:
            self.copy()
            return False
        place = self.chance.randrange(len(nodes[0].copies))
        chosen = nodes if not self.hosts.brokers.is_cluster or self.chance.random() < 0.5 else [self.chance.choice(nodes)]
        for node in chosen:
            self.chance.choice([node.stop, node.kill])()
        nothing = self.chance.random() < 0.1
        for node in chosen:
            node.put_back(None if nothing else node.copies[place])
        self.hosts.brokers.start()
        return True

    def partition(self):
        """Cuts a broker off from the others, and from the relay."""
        network = self.hosts.brokers.network
        if not network:
            return False
        self.free("broker")
        number = self.chance.randrange(len(self.hosts.brokers.nodes)) + 1
        network.link(number, "down")
        self.begin("broker", 1 + self.chance.random() * 8, lambda: network.link(number, "up"))
        return True

    # The home

    def change_schema(self):
        return stories.change_schema(self)

    def vacuum(self):
        return stories.vacuum(self)

    def purge(self):
        self.hosts.groupstore("history", "purge", self.hosts.home, "--keep", "5000")
        return True

    def two_relays(self):
        """Lets another publisher serve the same store for a while."""
        self.free("second")
        second = self.hosts.second
        second.start()

        def end():
            code = second.stop() if second.alive else second.process.returncode
            if code == 73:
                self.hosts.superseding(second)
            elif code == -signal.SIGTERM and not second.lines():
                return  # the machine was so busy that it hadn't begun
            elif code not in (0, 75):
                raise stories.Failure(f"the second publisher ended with {code}: {second.last_words()}")
        self.begin("second", 3 + self.chance.random() * 6, end)
        return True
