import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// What a move refuses, its dry run as the run.
@Suite(.ownThreads) struct AppRefusalTests {
    /// Returns the failure of a move, which its dry run has, too.
    ///
    /// - Parameter isFoundByRun: True if only the run can find it.
    private func refusal(_ request: AppMoveRequest, isFoundByRun: Bool = false) throws -> RelocationFailure? {
        if isFoundByRun {
            #expect(try AppRelocation(request).dryRun().outcome == .wouldMove)
            return #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
        }
        let previewed = #expect(throws: RelocationFailure.self) { try AppRelocation(request).dryRun() }
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
        #expect(previewed?.message == failure?.message)
        #expect(previewed?.remedy == failure?.remedy)
        #expect(previewed?.kind == failure?.kind)
        return failure
    }

    private func shell(_ script: String, _ rig: AppRig) throws {
        let done = try run("sh", ["-ec", Word(script), "sh", Word(rig.source)])
        guard done.status == 0 else { throw Unexpected(done.errors) }
    }

    /// SQLite would find no log at the new place, and the last commits would be missing.
    @Test(arguments: AppRig.FileSystem.allCases)
    func refusesALogThatIsALinkToOutside(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        try shell("cd \"$1\" && mv store.db-wal ../log && ln -s ../log store.db-wal && rm store.db-shm", rig)
        let failure = try refusal(rig.request())
        #expect(failure?.code == "log_outside" && failure?.kind == .badData, "\(failure?.message ?? "")")
        #expect(failure?.message.contains("store.db-wal") == true)
        try shell((failure?.remedy.split(separator: ": ", maxSplits: 1).last).map(String.init) ?? "false", rig)
        _ = try AppRelocation(rig.request()).run()
        #expect(try rig.rows(rig.destination) == "100")
    }

    /// Each name has a log of its own.
    @Test(arguments: AppRig.FileSystem.allCases)
    func copiesNoStoreWithTwoNames(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        try shell("ln \"$1\"/sub/small.db \"$1\"/twin.db", rig)
        guard fileSystem == .another else {
            #expect(try AppRelocation(rig.request()).run().outcome == .moved)
            return
        }
        let failure = try refusal(rig.request())
        #expect(failure?.code == "two_names", "\(failure?.message ?? "")")
        #expect(failure?.message.contains("twin.db") == true && failure?.message.contains("small.db") == true)
    }

    @Test(arguments: [
        "CREATE INDEX i ON v (own(x))", "CREATE TABLE w (x, CHECK (own(x)))",
        "CREATE TABLE w (x, y AS (own(x)) STORED)",
    ])
    func refusesToChangeATableThatNeedsItsProgramsFunction(_ sql: String) throws {
        let rig = try AppRig(.same)
        let script = """
            import sqlite3, sys
            store = sqlite3.connect(sys.argv[1] + "/store.db")
            store.create_function("own", 1, lambda x: 1, deterministic=True)
            store.execute("CREATE TABLE v (x)")
            store.execute(sys.argv[2])
            for table in store.execute("SELECT name FROM sqlite_schema WHERE name IN ('v', 'w')").fetchall():
                store.execute(f"INSERT INTO {table[0]} (x) VALUES (?)", (sys.argv[1] + "/file",))
            store.commit()
            """
        let made = try run("python3", ["-c", Word(script), Word(rig.source), Word(sql)])
        #expect(made.status == 0, "\(made.errors)")
        var request = rig.request()
        request.rewriteOwnPath()
        // A read-only connection compiles no CHECK.
        let failure = try refusal(request, isFoundByRun: sql.contains("CHECK"))
        #expect(failure?.code == "function" && failure?.kind == .badData, "\(failure?.message ?? "")")
        #expect(failure?.remedy.hasPrefix("leave --rewrite out") == true)
        #expect(try !rig.isLink(rig.source))
    }

    /// A trigger doesn't run, and needs no function.
    @Test func changesATableWithATriggerOfItsProgram() throws {
        let rig = try AppRig(.same)
        let sql = "CREATE TABLE v (x); INSERT INTO v VALUES ('\(rig.source)');"
        let trigger = "CREATE TRIGGER g AFTER UPDATE ON v BEGIN SELECT own(1); END"
        try run("sqlite3", [Word(rig.source.appending("store.db")), Word(sql + trigger)])
        var request = rig.request()
        request.rewriteOwnPath()
        #expect(try AppRelocation(request).dryRun().rewritten.map(\.count) == [1])
        #expect(try AppRelocation(request).run().rewritten.map(\.count) == [1])
    }

    @Test func aStoreThatCannotBeOpenedIsCopiedAsItIsAlsoWithPathsToChange() throws {
        let rig = try AppRig(.same)
        try shell("head -c 100 \"$1\"/sub/small.db >\"$1\"/sub/cut && mv \"$1\"/sub/cut \"$1\"/sub/small.db", rig)
        var request = rig.request()
        request.rewriteOwnPath()
        let previewed = try AppRelocation(request).dryRun().notes.filter { $0.contains("can't open") }
        let moved = try AppRelocation(request).run().notes.filter { $0.contains("can't open") }
        #expect(previewed.count == 1 && moved.count == 1, "\(previewed) \(moved)")
    }

    @Test func refusesAJournalThatCannotBeRead() throws {
        let rig = try AppRig(.same)
        let records = rig.destination.removingLastComponent().appending(".groupstore")
        try run("mkdir", [Word(records)])
        try run("sh", ["-c", "echo '{}' >\"$1\"", "sh", Word(records.appending("app-journal.json"))])
        #expect(try refusal(rig.request())?.message.contains("app-journal.json") == true)
    }

    @Test(.enabled(if: geteuid() == 0, "needs root"), arguments: ["+a", "+i"], [true, false])
    func refusesParentsWhoseNamesCannotChange(_ flag: Word, _ isSource: Bool) throws {
        let rig = try AppRig(.same)
        let parent = (isSource ? rig.source : rig.destination).removingLastComponent()
        // Not every file system has the flag.
        guard try run("chattr", [flag, Word(parent)]).status == 0 else { return }
        defer { _ = try? run("chattr", ["-ia", Word(parent)]) }
        guard try Directory(parent.removingLastComponent()).isImmutable(parent.lastComponent ?? ".") else { return }
        let failure = try refusal(rig.request())
        #expect(["immutable", "not_writable"].contains(failure?.code), "\(failure?.message ?? "")")
        #expect(failure?.kind == .notPermitted)
    }

    @Test func refusesACheckOfAStoreThatIsNotThere() throws {
        let rig = try AppRig(.same)
        let text = """
            {recipe: 1, name: r, about: R, stores: [store.db], after: [{store: store.db, table: t},
            {store: absent.db, table: t}]}
            """
        var request = rig.request()
        request.recipe = try AppRecipe(Array(text.utf8), at: "/r.yaml")
        let failure = try refusal(request)
        #expect(failure?.code == "recipe" && failure?.message.contains("absent.db") == true)
    }

    /// The record of the other app names its place.
    @Test func namesTheAppThatADirectoryHolds() throws {
        let rig = try AppRig(.same)
        let other = rig.source.removingLastComponent().appending("other")
        try run("mkdir", [Word(other)])
        let inside = rig.source.appending("inner")
        _ = try AppRelocation(AppMoveRequest(source: other, destination: inside)).run()
        let failure = try refusal(rig.request())
        #expect(failure?.code == "own_directory")
        #expect(failure?.remedy.hasSuffix("groupstore move-app --undo \(inside)") == true, "\(failure?.remedy ?? "")")
        _ = try AppRelocation(AppMoveRequest(source: other, destination: inside)).undo()
        #expect(try AppRelocation(rig.request()).run().outcome == .moved)
    }

    @Test func showsWhatSurroundsAChangeOfALongText() throws {
        let rig = try AppRig(.same)
        let script = """
            import json, sqlite3, sys
            store = sqlite3.connect(sys.argv[1] + "/store.db")
            text = json.dumps(["ü" * 50000, sys.argv[1] + "/file", "é" * 100000], ensure_ascii=False)
            store.execute("CREATE TABLE v (x)")
            store.execute("INSERT INTO v VALUES (?)", (text,))
            store.commit()
            """
        let made = try run("python3", ["-c", Word(script), Word(rig.source)])
        #expect(made.status == 0, "\(made.errors)")
        var request = rig.request()
        request.rewriteOwnPath()
        let sample = try #require(try AppRelocation(request).dryRun().rewritten.first?.samples.first)
        #expect(sample.old.utf8.count < 300 && sample.old.hasPrefix("…") && sample.old.hasSuffix("…"))
        #expect(sample.old.contains("\(rig.source)/file"), "\(sample.old)")
        #expect(sample.new.contains("\(rig.destination)/file"), "\(sample.new)")
    }
}
