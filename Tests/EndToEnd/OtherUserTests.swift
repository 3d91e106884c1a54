import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Relocation by a user who is not root: what root may do anyway hides what is asked for too much.
@Suite(.ownThreads, .enabled(if: geteuid() == 0, "needs root, to become another user"))
struct OtherUserTests {
    private static let user: Word = "65534"

    /// Runs the command as that user, who owns both places.
    private func relocate(_ store: FilePath, _ places: Places, _ more: Word...) throws -> FinishedProcess {
        for directory in [places.legacy.removingLastComponent(), places.group.removingLastComponent()] {
            try run("chown", ["-R", Self.user, Word(directory)])
        }
        // The program may be where that user can't go.
        let program = places.scratch("groupstore")
        try run("cp", [Programs.groupstore, Word(program)])
        return try run(
            "setpriv",
            ["--reuid", Self.user, "--regid", Self.user, "--clear-groups", Word(program), "relocate", Word(store)]
                + [Word(places.group), "--json"] + more,
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    @Test(arguments: Places.FileSystem.allCases, [true, false])
    func aStoreIsRelocatedByItsOwner(_ fileSystem: Places.FileSystem, unflushed: Bool) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: unflushed)
        let support = try store.supportSnapshot()
        let done = try relocate(store.path, places)
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        #expect(try noteCount(published.path) == 10)
        #expect(try published.supportSnapshot() == support)
        #expect(try Directory(places.legacy).names().isEmpty)
    }

    /// With rows in its log: SQLite would fail in the middle, and leave an index behind.
    @Test(arguments: ["", "-wal"]) func aFileThatCantBeWrittenToIsNamed(_ suffix: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
        try run("chmod", ["0444", Word(store.path.string + suffix)])
        let before = try DirectorySnapshot(places.legacy)
        let refused = try relocate(store.path, places)
        #expect(refused.status == 77 && refused.errors.contains("Notes.sqlite\(suffix) can't be written to"))
        #expect(try DirectorySnapshot(places.legacy) == before)
        try run("chmod", ["0644", Word(store.path.string + suffix)])
        #expect(try relocate(store.path, places).outcome == "relocated")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 10)
    }

    @Test func aHolderThatCantBeSeenHoldsItOff() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let shell = try sqliteShell(store.path)
        let refused = try relocate(store.path, places, "--deadline", "0.2")
        #expect(refused.status == 75, "\(refused.output)")
        #expect(refused.errors.contains("can't be seen from here"))
        shell.closeInput()
        try shell.wait()
        #expect(try relocate(store.path, places).outcome == "relocated")
    }
}
