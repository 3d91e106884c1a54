"""What must hold after each command: nothing that was readable is gone, and the summary is true."""
import base64, os, re

from accidents import Accidents
from stores import *


class Checks(Accidents):
    """Holds what a command leaves against what was there."""

    def is_released(self, place, released):
        """Asked away by name: an archive with --force, a group with --delete-stores (also under the group's other paths)."""
        return place.parent in self.asked_away or place.parent in released or any(
            p.split(".purged")[0] in self.forced for p in place.path.split("/")) or bool(
            released) and place.path.startswith(released[0] + "/")

    def check(self, before, after, when, whole=True, released=()):
        """What was readable before is readable after, in one place (whole) or anywhere."""
        union, raw, at = set().union(*[p.content.items for p in after] or [()]), None, {p.path: p for p in after}
        for place in before:
            items, same = place.content.items - self.forgiven, at.get(place.path)
            if place.doubled or self.is_released(place, released) or place.kind == "staging" and (place.content.damaged or when == "in the middle"):
                continue
            if place.content.damaged and when != "in the middle" and not (same and same.inode == place.inode):
                raw = raw if raw is not None else {t for f in files_in(self.top) if os.path.isfile(f) and not os.path.islink(f)
                                                   for t in TOKEN.findall(read_file(f))}
                lost = place.content.raw - raw - tokens_of(self.forgiven)
                if lost:
                    raise Problem("LOST %s: of the damaged %s the tokens %s are nowhere" % (
                        when, self.short(place.path), sorted(lost)[:4]))
            if not items or same and items <= same.content.items:
                continue
            if place.kind == "staging" and tokens_of(items) <= tokens_of(union):
                continue        # a migrated copy of a store that is still there has other columns
            if items - union:
                raise Problem("LOST %s: what %s (%s) held is in no readable place: %s" % (
                    when, self.short(place.path), place.kind, sorted(map(repr, items - union))[:4]))
            homes = [q for q in after if items <= q.content.items]
            if whole and not homes:
                raise Problem("SCATTERED %s: no place holds all that %s (%s) held; these lack: %s" % (
                    when, self.short(place.path), place.kind, [(self.short(q.path), sorted(map(repr, items - q.content.items))[:2])
                                                               for q in after if q.content.items & items]))
            if whole and all(q.kind in ("hidden", "staging", "purging") for q in homes) and place.kind in ("plain", "archive") \
                    and not self.unfinished():
                raise Problem("STRANDED %s: what %s held is only in %s, and nothing is unfinished" % (
                    when, self.short(place.path), [self.short(q.path) for q in homes]))

    def unchanged(self, before, after, paths, what, kinds=("plain",)):
        """Every visible place but those at these paths (or the same files elsewhere) is as it was."""
        at, touched = {p.path: p for p in after}, {p.inode for p in before if p.path in paths}
        if what.startswith("archive purge"):    # a mount shows an archive at a second path
            touched |= {p.inode for p in before if p.kind in ("archive", "purging")}
        parts = {support(p) for p in paths if p} | {p + side for p in paths if p for side in SIDES}
        # A mount shows the same directory at a second path.
        seen = {(p.parent, os.path.basename(p.path)) for p in before if p.path in paths or p.path in parts}
        for place in before:
            if (place.kind not in kinds or place.path in paths or place.path in parts or place.inode in touched
                    or (place.parent, os.path.basename(place.path)) in seen or place.parent in self.asked_away):
                continue
            other = at.get(place.path)
            if place.content.items - self.forgiven - (other.content.items if other else frozenset()):
                raise Problem("TOUCHED: %s changed %s, which is none of its places" % (what, self.short(place.path)))

    def snapshot(self):
        """Names, kinds, bytes and times of everything, for what promises to change nothing."""
        found = {}
        for top, directories, files in os.walk(self.top):
            for path in [os.path.join(top, name) for name in directories + files]:
                status = os.lstat(path)
                if not path.endswith(("/lock", "-shm", "/.groupstore")) and "/.groupstore/claims" not in path:
                    plain = os.path.isfile(path) and not os.path.islink(path)
                    found[path] = (status.st_mode, status.st_ino) + (
                        (status.st_size, status.st_mtime_ns, sha(read_file(path))) if plain else ())
        return found

    def check_outcome(self, what, args, result, before, after, held):
        """What the summary says has happened, and nothing else."""
        summary = next((x for x in reversed(result.lines) if x.get("type") == "summary"), None)
        if summary is None:
            if result.code != 64:
                raise Problem("SILENT: no summary, exit %d: %s" % (result.code, result.error[-300:]))
            return
        outcome, now, then = summary.get("outcome"), {p.path: p for p in after}, {p.path: p for p in before}

        def path_of(key):
            path = os.fsdecode(base64.b64decode(summary[key + "_b64"])) if key + "_b64" in summary else summary.get(key)
            return path and os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        source, target, good = path_of("from"), path_of("to"), outcome not in ("conflict", "busy", "refused", "failed")
        if (result.code == 0) != good and what != "archive show":
            raise Problem("FALSE: outcome %s with exit %d" % (outcome, result.code))
        if "--dry-run" in args:
            return
        directory = args[-2] if len(args) > 1 else ""
        inside = tuple(p.path for p in before if p.path.startswith(directory + "/"))
        if what.startswith("relocate") and good:
            self.unchanged(before, after, (source, target, self.source), what)
        elif what == "archive restore" and good:
            self.unchanged(before, after, (source, target), what)
        elif what == "group remove":
            self.unchanged(before, after, () if result.code in (64, 73, 75) else inside, what, ("plain", "archive"))
        else:
            self.unchanged(before, after, (), "%s (%s)" % (what, outcome))
        if what.startswith("relocate") and outcome in ("relocated", "undone") and source in then and "--model" not in args:
            lost = then[source].content.items - (now[target].content.items if target in now else frozenset()) - self.forgiven
            if lost:
                raise Problem("FALSE: %s, but %s lacks what %s held: %s" % (
                    outcome, self.short(target), self.short(source), sorted(map(repr, lost))[:3]))
        if what == "archive restore" and good and source in then:
            if target not in now or now[target].content.items != then[source].content.items:
                raise Problem("FALSE: restored, but %s isn't what the archive held" % self.short(target))
            if target in then:
                raise Problem("OVERWROTE: restore to %s, where something was" % self.short(target))
            if "--move" not in args and source not in now:
                raise Problem("LOST: restore without --move took the store out of the archive")
        if what == "archive show" and result.code == 0 and any(
                p.store and p.content.damaged and p.path.startswith("%s/.groupstore/archive/%s/" % tuple(args[-2:])) for p in before):
            raise Problem("FALSE: show calls a damaged store intact")
        if what == "archive list" and result.code == 0:
            there = {os.path.basename(a) for a in self.archives() if a.startswith(args[-1] + "/.groupstore/")}
            missing = there - {line.get("id") for line in result.lines}
            if any(not m.endswith(".purged") for m in missing):
                raise Problem("SILENT: list doesn't name %s" % sorted(missing))
        if what == "archive purge":
            group = args[args.index("--") + 1]
            for line in [x for x in result.lines if x.get("type") == "archive"]:
                if result.code == 0 and os.path.isdir("%s/.groupstore/archive/%s" % (group, line["id"])) == bool(line.get("purged")):
                    raise Problem("FALSE: purge says purged=%s of %s, and it isn't so" % (line.get("purged"), line["id"]))
            if result.code == 73 and {p.path for p in before if p.kind == "archive"} - set(now):
                raise Problem("LOST: a purge that exits with 73 removed something")
        if what == "group remove" and result.code == 0:
            if "--delete-stores" not in args and inside:
                raise Problem("LOST: group remove without --delete-stores removed %s" % [self.short(p) for p in inside])
            if held and held.path.startswith(directory + "/"):
                raise Problem("LOST: group remove removed %s, which a program has open" % self.short(held.path))
