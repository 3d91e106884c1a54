import AppRelocation
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// Recipes: their form, and what a move does with one.
@Suite(.ownThreads) struct AppRecipeTests {
    private static let text = """
        recipe: 1
        name: sample
        about: "A program"
        stores: [store.db, sub/*.db]
        files: [file, "*"]
        keys: [file]
        leave:
          - cache/
          - "*.lock"
        after:
          - store: store.db
            table: t

        """

    private func recipe(_ text: String = Self.text) throws(AppRecipeError) -> AppRecipe {
        try AppRecipe(Array(text.utf8), at: "/r.yaml")
    }

    @Test(arguments: [
        ("recipe: 1", "recipe: 2", 1, "unknown"), ("name: sample", "nme: sample", 2, "unknown key nme"),
        ("stores: [store.db, sub/*.db]", "stores: []", 4, "empty"),
        ("sub/*.db", "../x", 4, "not a pattern"), ("sub/*.db", "/x", 4, "not a pattern"),
        ("  - cache/", "  - {a: b}", 8, "leave is not a string"), ("table: t", "tabl: t", 12, "unknown key tabl"),
        ("sub/*.db", "'[a-'", 4, "[a- has a bracket"), ("sub/*.db", "\"a\\0b\"", 4, "not a pattern"),
        ("store: store.db", "store: \"a\\0b\"", 11, "not a store's path"),
        ("store: store.db", "store: a/../b", 11, "not a store's path"), ("keys: [file]", "keys: file", 6, "not a list"),
        ("keys: [file]", "keys: [file", 0, "did not find"), ("keys: [file]", "keys: [x]\nkeys: [y]", 6, "duplicate"),
        ("about: \"A program\"\n", "", 1, "has no about"),
    ])
    func namesTheLineOfAnError(_ right: String, _ wrong: String, _ line: Int, _ reason: String) throws {
        _ = try recipe()
        let error = #expect(throws: AppRecipeError.self) { try recipe(Self.text.replacing(right, with: wrong)) }
        #expect(error?.reason.contains(reason) == true, "\(error?.reason ?? "")")
        // libyaml names the line after an unclosed list.
        if line > 0 { #expect(error?.line == line, "\(error?.message ?? "")") }
    }

    @Test func aPatternMatchesWholeNames() throws {
        func matches(_ pattern: String, _ path: FilePath) throws -> Bool {
            try #require(PathPattern(pattern)).matches(path)
        }
        for (pattern, path) in [("a*", "ab"), ("a/b", "a/b"), ("a/", "a/b/c"), ("x/*/", "x/a/b"), ("[ab]", "b")] {
            #expect(try matches(pattern, FilePath(path)), "\(pattern) \(path)")
        }
        for (pattern, path) in [("a*", "a/b"), ("a/", "a"), ("a/", "ab/c"), ("a", "ab"), ("*/", "a")] {
            #expect(try !matches(pattern, FilePath(path)), "\(pattern) \(path)")
        }
        for pattern in ["", "/", "/a", "a//b", "../a", "a/..", "./a", "a\0b"] {
            #expect(PathPattern(pattern) == nil, "\(pattern)")
        }
    }

    @Test func aPatternThatMatchesNothingIsNone() throws {
        for pattern in ["[", "a[", "[a-", "[!]", "[]", "x/[a/b]", "[[:alpha:]", "[[:nope:]]", "[z-a]", "[a][b"] {
            #expect(PathPattern(pattern) == nil, "\(pattern)")
        }
        for (pattern, path) in [
            ("[]]", "]"), ("[!]]", "a"), ("[^a]", "b"), ("[[:alpha:]]9", "x9"), ("a]", "a]"), ("[[]", "["),
            ("[a-c]*", "bx"), ("[[]/[]a-]", "[/-"),
        ] {
            #expect(PathPattern(pattern)?.matches(FilePath(path)) == true, "\(pattern)")
        }
    }

    private func request(_ rig: AppRig) throws -> AppMoveRequest {
        let script = "cd \"$1\" && mkdir cache && echo 1 >cache/a && echo 2 >cache/b && : >x.lock"
        try run("sh", ["-c", Word(script), "sh", Word(rig.source)])
        var request = rig.request()
        request.recipe = try recipe()
        return request
    }

    private func kill(_ request: AppMoveRequest, at point: AppMoveStep) throws {
        let move = AppRelocation(request) {
            false
        } report: { _ in
        } step: { step in
            if step == point { throw AppRelocation.Abandonment() }
        }
        #expect(throws: RelocationFailure.self) { try move.run() }
    }

    @Test(arguments: AppRig.FileSystem.allCases)
    func aMoveLeavesOutAndChecksWhatTheRecipeSays(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        let request = try request(rig)
        let preview = try AppRelocation(request).dryRun()
        let left = "3 files are left out and removed: cache/a, cache/b, x.lock"
        #expect(preview.notes.contains(left) == (fileSystem == .another), "\(preview.notes)")
        let unknown = "sub/hard is unknown to the recipe, and moves along"
        #expect(preview.notes.contains(unknown), "\(preview.notes)")
        let summary = try AppRelocation(request).run()
        #expect(summary.notes.contains(left) == (fileSystem == .another), "\(summary.notes)")
        #expect(summary.checked.map(\.rows) == [100])
        #expect(summary.notes.filter { $0.contains("stay") } == [])
        let cache = try Directory(rig.destination.appending("cache")).names()
        #expect(cache.isEmpty == (fileSystem == .another))
        #expect(try rig.leftovers() == [])
        #expect(try AppRelocation(rig.request()).undo().outcome == .undone)
        #expect(try rig.rows(rig.source) == "100")
    }

    /// Firefox names its process by a link to no file, which nobody else removes.
    @Test(arguments: [AppMoveStep.copied, .withdrawn, .published, .receipt, nil])
    func aLinkIsLeftOutItselfAndNotWhatItLeadsTo(_ killed: AppMoveStep?) throws {
        let rig = try AppRig(.another)
        let script = "cd \"$1\"; mkdir cache; ln -s 127.0.0.1:+99 dead.lock; ln -s ../file cache/l; mkfifo p.lock"
        try run("sh", ["-c", Word(script), "sh", Word(rig.source)])
        let before = try rig.files(rig.source)
        var request = rig.request()
        request.recipe = try recipe()
        let left = "3 files are left out and removed: cache/l, dead.lock, p.lock"
        #expect(try AppRelocation(request).dryRun().notes.contains(left))
        if let killed { try kill(request, at: killed) }
        let summary = try AppRelocation(request).run()
        #expect(summary.notes.contains(left) && summary.notes.allSatisfy { !$0.contains("stay") }, "\(summary.notes)")
        let leftOut = Set(["cache/l", "dead.lock", "p.lock"].map { Array($0.utf8) })
        let expected = Set(before.keys).subtracting(leftOut)
        #expect(try Set(rig.files(rig.destination).keys) == expected)
        #expect(try AppRelocation(rig.request()).undo().outcome == .undone)
        #expect(try Set(rig.files(rig.source).keys) == expected && rig.rows(rig.source) == "100")
        #expect(try rig.leftovers() == [])
    }

    /// The journal has what is to be left out: the next run needs no recipe.
    @Test func aKilledMoveLeavesTheSameFilesOut() throws {
        let rig = try AppRig(.another)
        try kill(request(rig), at: .published)
        let summary = try AppRelocation(rig.request()).run()
        #expect(summary.notes.filter { $0.contains("stay") } == [])
        #expect(try rig.leftovers() == [])
        #expect(try Directory(rig.destination.appending("cache")).names() == [])
    }

    /// Nothing is decided yet, so the second command's options count.
    @Test func aKilledCopyFollowsTheNextCommand() throws {
        let rig = try AppRig(.another)
        try kill(request(rig), at: .copied)
        let summary = try AppRelocation(rig.request()).run()
        #expect(summary.outcome == .moved)
        #expect(try Directory(rig.destination.appending("cache")).names().count == 2)
        #expect(try rig.rows(rig.destination) == "100")
        #expect(try rig.leftovers() == [])
    }

    @Test func aCopyWithFewerRowsIsNotMoved() throws {
        let rig = try AppRig(.another)
        let parent = rig.destination.removingLastComponent()
        let move = try AppRelocation(request(rig)) {
            false
        } report: { _ in
        } step: { step in
            guard step == .copied else { return }
            let name = try #require(try Directory(parent).names().first { $0.string.hasSuffix(".staged") })
            try run(
                "sqlite3", [Word(parent.appending(name).pushing("tree/store.db")), "DELETE FROM t WHERE rowid = 9"])
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(failure?.code == "check" && failure?.message.contains("99 rows in the copy, and 100") == true)
        #expect(try !rig.isLink(rig.source) && rig.rows(rig.source) == "100")
        #expect(try rig.leftovers() == [] && FileStatus(following: rig.destination) == nil)
    }

    @Test func leavesOutNoExternalData() throws {
        let rig = try AppRig(.another)
        let script = "cd \"$1\"; mkdir -p .store_SUPPORT/_EXTERNAL_DATA; echo photo >.store_SUPPORT/_EXTERNAL_DATA/X"
        try run("sh", ["-c", Word(script), "sh", Word(rig.source)])
        var request = try request(rig)
        request.recipe = try recipe(Self.text.replacing("  - cache/", with: "  - .store_SUPPORT/"))
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
        #expect(failure?.message.contains(".store_SUPPORT/_EXTERNAL_DATA/X would be left out") == true)
        #expect(try !rig.isLink(rig.source))
    }

    /// A store is content whether the recipe names it or not, and so is a log beside a file that may be encrypted.
    @Test(arguments: [
        ("mkdir cache && cp store.db cache/in.db", "cache/", "cache/in.db"),
        ("cp store.db other.x", "'*.x'", "other.x"), ("ln -s sub/small.db other.x", "'*.x'", "other.x"),
        ("head -c 8192 /dev/urandom >e; head -c 99 /dev/urandom >e-wal", "e-wal", "e-wal"),
        ("mkdir cache; echo 1 >cache/e; echo 2 >cache/e-journal", "cache/", "cache/e-journal"),
    ])
    func leavesOutNoStore(_ making: String, _ pattern: String, _ name: String) throws {
        for fileSystem in AppRig.FileSystem.allCases {
            let rig = try AppRig(fileSystem)
            try run("sh", ["-c", Word("cd \"$1\"; " + making), "sh", Word(rig.source)])
            var request = rig.request()
            request.recipe = try recipe(Self.text.replacing("  - cache/", with: "  - \(pattern)"))
            let checked = #expect(throws: RelocationFailure.self) { try request.recipe?.report(on: rig.source) }
            let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
            #expect(failure?.message.contains("\(name) would be left out") == true, "\(failure?.message ?? "")")
            #expect(failure?.code == "recipe" && checked?.message == failure?.message)
            #expect(try !rig.isLink(rig.source))
        }
    }

    /// The recipe was checked before.
    @Test func aStoreThatComesLaterIsNotRemoved() throws {
        let rig = try AppRig(.another)
        let parent = rig.source.removingLastComponent()
        let move = try AppRelocation(request(rig)) {
            false
        } report: { _ in
        } step: { step in
            guard step == .receipt else { return }
            let name = try #require(try Directory(parent).names().first(where: AppRig.isHidden))
            let store = Word(parent.appending(name).pushing("cache/late.db"))
            try run("sqlite3", [store, "CREATE TABLE t (x)"])
        }
        let notes = try move.run().notes
        #expect(notes.contains { $0.hasPrefix("1 file stays") && $0.hasSuffix("cache/late.db (a store)") }, "\(notes)")
    }

    @Test(arguments: [
        ("stores: [store.db", "stores: [other.db", "recipe", "no SQLite store other.db"),
        ("keys: [file]", "keys: [secret]", "recipe", "no secret"),
        ("  - cache/", "  - store.db", "recipe", "store.db would be left out"),
        ("  - cache/", "  - '*-wal'", "recipe", "-wal would be left out"),
        ("  - cache/", "  - file", "recipe", "file would be left out"),
        ("table: t", "table: u", "check", "no such table"),
    ])
    func aDirectoryThatDoesNotSuitIsLeftAlone(
        _ right: String, _ wrong: String, _ code: String, _ message: String
    ) throws {
        for fileSystem in AppRig.FileSystem.allCases {
            let rig = try AppRig(fileSystem)
            var request = rig.request()
            request.recipe = try recipe(Self.text.replacing(right, with: wrong))
            let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
            #expect(failure?.code == code && failure?.message.contains(message) == true, "\(failure?.message ?? "")")
            #expect(try !rig.isLink(rig.source))
            #expect(try rig.leftovers() == [])
            #expect(FileStatus(following: rig.destination) == nil)
        }
    }
}
