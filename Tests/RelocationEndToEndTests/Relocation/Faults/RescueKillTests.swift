import EndToEndSupport
import Glibc
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// `groupstore rescue`, killed at random moments.
@Suite(.ownThreads) struct RescueKillTests {
    private static let rounds = Tier.cases(Array(0..<40), quick: [0, 3])

    /// The store at the name is the old one or the joined one, and the next run joins it.
    @Test(arguments: rounds) func leavesTheOldStoreOrTheJoinedOne(round: Int) throws {
        let scratch = try TemporaryDirectory()
        let store = scratch.path.appending("Notes.sqlite")
        try sqlite(
            store,
            "PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'base')")
        let holder = try SQLiteHolder(store)
        try holder.run("c.execute(\"INSERT INTO t VALUES (2, 'holder')\")")
        if round % 2 == 0 {
            for suffix in ["-wal", "-shm"] { #expect(unlink(store.string + suffix) == 0) }
        } else {
            let other = scratch.path.appending("other")
            try sqlite(other, "CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'base')")
            #expect(rename(other.string, store.string) == 0)
        }
        // With the log still at the name, a program that opens the store would mix both.
        if round % 2 == 0 { try sqlite(store, "INSERT INTO t VALUES (3, 'other')") }
        let old = round % 2 == 0 ? ["1|base", "3|other"] : ["1|base"]
        let joined = round % 2 == 0 ? ["1|base", "2|holder", "3|other"] : ["1|base", "2|holder"]

        var generator = SeededGenerator(seed: Tier.seed &+ UInt64(round))
        let rescue = try RunningProcess(
            Programs.groupstore, ["rescue", Word(store)],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        let moment = Duration.milliseconds(Int64.random(in: 0..<900, using: &generator))
        if try !rescue.hasEnded(within: moment) {
            rescue.signal(SIGKILL)
            try rescue.wait()
        }
        // Once a copy is whole, the rows are safe: the program that had them may end too.
        let saved = try SavedBranches(Relocation.container(at: scratch.path))
        if try !saved.copies().isEmpty || !saved.archived().isEmpty { try holder.kill() }
        // The next rescue recovers by itself.
        let recovers = round % 4 < 2
        if recovers {
            let recovered = try groupstore("recover", Word(scratch.path))
            #expect(recovered.status == 0, "\(recovered.errors)")
        }
        // While the log is at the name, the old store can't be read by its name.
        if recovers, round % 2 == 0 {
            let rows = try sqlite(store, "SELECT id, v FROM t ORDER BY id").split(separator: "\n").map(String.init)
            #expect(rows == old || rows == joined, "killed after \(moment), seed \(Tier.seed)")
        }
        let again = try groupstore("rescue", Word(store))
        #expect(again.status == 0, "killed after \(moment), seed \(Tier.seed): \(again.errors)")
        #expect(
            try sqlite(store, "SELECT id, v FROM t ORDER BY id").split(separator: "\n").map(String.init) == joined,
            "killed after \(moment), seed \(Tier.seed)")
        let records = try Directory(scratch.path.appending(".groupstore"))
        // A rescue copies twice. A second copy that its end cut short was begun later than the whole one: once the
        // program has ended too, nothing shows that it has no more, so it stays and is named.
        let left = try saved.unfinished()
        for copy in left {
            let place = try #require(copy).location.directory.path
            #expect((again.output + again.errors).contains(place.string), "\(again.output)\(again.errors)")
        }
        #expect(try left.isEmpty == (records.status("rescue") == nil))
        #expect(try records.directory("staging").names().isEmpty)
    }
}
