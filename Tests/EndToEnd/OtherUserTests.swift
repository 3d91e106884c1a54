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
        try own(places)
        return try relocateAgain(store, places, more)
    }

    private func own(_ places: Places) throws {
        for directory in [places.legacy.removingLastComponent(), places.group.removingLastComponent()] {
            try run("chown", ["-R", "65534:65534", Word(directory)])
        }
    }

    private func relocateAgain(_ store: FilePath, _ places: Places, _ more: [Word]) throws -> FinishedProcess {
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

    /// rename(2) of a directory into another one wants its owner to be allowed to write to it, and so does taking away what
    /// was copied from it.
    @Test(arguments: Places.FileSystem.allCases, ["delete", "archive", "symlink"])
    func aFolderThatIsClosedToItsOwnerKeepsItsMode(_ fileSystem: Places.FileSystem, _ retirement: String) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
        let blob = store.support.pushing("_EXTERNAL_DATA/1F2E")
        let closed = [store.support, store.support.appending("_EXTERNAL_DATA"), blob]
        // An attribute can be given only to what may be written to.
        let paint = "import os, sys; [os.setxattr(path, 'user.colour', b'blue') for path in sys.argv[1:]]"
        try run("python3", ["-c", Word(paint)] + closed.map { Word($0) })
        try run("chmod", ["0444", Word(blob)])
        try run("chmod", ["0555"] + closed.dropLast().map { Word($0) })
        try own(places)
        let before = try attributes(store)

        let done = try relocateAgain(store.path, places, ["--retire", Word(retirement)])
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        let now = try attributes(published)
        #expect(now == before, "\(now)\n\(before)")
        #expect(try Directory(places.legacy).names().isEmpty == (retirement != "symlink"))

        let undone = try relocateAgain(store.path, places, ["--undo"])
        #expect(undone.outcome == "undone", "\(undone.output)\(undone.errors)")
        #expect(try attributes(store) == before)
        #expect(try Directory(places.group).names() == [".groupstore"])
    }

    /// What makes room for the store is moved, too.
    @Test(arguments: [true, false]) func aClosedFolderThatIsInTheWayIsArchived(ofAStore: Bool) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let other = try makeStore(places.group.appending("Notes.sqlite"), rows: 3)
        try run("chmod", ["0555", Word(other.support)])
        if !ofAStore { try run("rm", [Word(other.path)]) }
        let done = try relocate(store.path, places, "--on-conflict", "keep-legacy")
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        #expect(try noteCount(other.path) == 10)
        let archived = try run(
            "find", [Word(places.group.appending(".groupstore")), "-name", ".Notes_SUPPORT", "-perm", "0555"])
        #expect(archived.output.split(separator: "\n").count == 1, "\(archived.output)")
    }

    /// It can't be opened by this user, or not be closed again as it was.
    @Test(arguments: Places.FileSystem.allCases, [["chown", "1234"], ["chgrp", "4321"], ["chmod", "0300"]])
    func aFolderThatCantBeOpenedIsNamed(_ fileSystem: Places.FileSystem, _ change: [String]) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        try own(places)
        try run("chmod", ["2555", Word(store.support)])
        try run(Word(change[0]), [Word(change[1]), Word(store.support)])
        if change[0] == "chgrp" { try run("chmod", ["2555", Word(store.support)]) }
        let before = try DirectorySnapshot(places.legacy)
        let refused = try relocateAgain(store.path, places, [])
        #expect(refused.status == 77, "\(refused.output)\(refused.errors)")
        #expect(refused.errors.contains(".Notes_SUPPORT can't be "))
        #expect(refused.summary.object("error")?.string("hint")?.hasPrefix("allow it: chmod u+") == true)
        #expect(try DirectorySnapshot(places.legacy) == before)
        try run("chmod", ["u+rwx", Word(store.support)])
        #expect(try relocate(store.path, places).outcome == "relocated")
    }

    /// What a folder has besides its files' bytes.
    private func attributes(_ store: StoreFiles) throws -> String {
        let look = """
            import os, sys
            for top, folders, files in os.walk(sys.argv[1]):
                folders.sort()
                for path in [top] + [os.path.join(top, name) for name in sorted(files)]:
                    status = os.stat(path)
                    names = [(name, os.getxattr(path, name)) for name in os.listxattr(path)]
                    print(os.path.relpath(path, sys.argv[1]), oct(status.st_mode), status.st_uid, status.st_gid, sorted(names))
            """
        return try run("python3", ["-c", Word(look), Word(store.support)]).output
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
