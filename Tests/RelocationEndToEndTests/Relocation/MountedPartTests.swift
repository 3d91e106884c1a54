import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of mounts among a store's files. A move would take the mount along, and a copy would empty it.
@Suite(.ownThreads, .enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"))
struct MountedPartTests {
    /// Runs the command after `mount`, in a mount namespace of its own.
    private func relocate(_ places: Places, _ mount: String, _ options: String = "") throws -> FinishedProcess {
        let script = """
            \(mount) || exit 1
            '\(Programs.groupstore)' relocate '\(places.legacy)/Notes.sqlite' '\(places.group)' --deadline 5 --json \(options)
            """
        return try run(
            "unshare", ["--user", "--map-root-user", "--mount", "sh", "-c", Word(script)],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    @Test(
        arguments: Places.FileSystem.allCases,
        ["/.Notes_SUPPORT", "/.Notes_SUPPORT/_EXTERNAL_DATA", "/.Notes_SUPPORT/deep/er", "/.Notes_SUPPORT/file"])
    func refusesAMountBeforeAnyChange(_ fileSystem: Places.FileSystem, _ place: String) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5, unflushed: true)
        let victim = places.scratch("victim")
        try run("mkdir", ["-p", Word(victim), Word(store.support.pushing("deep/er"))])
        try write("precious", to: victim.appending("precious"))
        try write("", to: store.support.appending("file"))
        let before = try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group))
        let target = "'\(places.legacy)\(place)'"
        let source = place.hasSuffix("file") ? "'\(victim)/precious'" : "'\(victim)'"
        for options in ["", "--dry-run", "--retire archive"] {
            let refused = try relocate(places, "mount --bind \(source) \(target)", options)
            #expect(refused.status == 74, "\(refused.output)\(refused.errors)")
            #expect(refused.summary.object("error")?.string("code") == "mount_point", "\(refused.output)")
            #expect(FileStatus(following: victim.appending("precious"))?.size == 8)
        }
        let after = try (DirectorySnapshot(places.legacy), DirectorySnapshot(places.group))
        #expect(after == before)
    }

    /// The group's store may also contain a mount, and it must make room.
    @Test func refusesAMountInTheStoreToArchive() throws {
        let places = try Places()
        try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
        try sqlite(places.group.appending("Notes.sqlite"), "CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
        let victim = places.scratch("victim")
        try run("mkdir", ["-p", Word(victim), Word(places.group.pushing(".Notes_SUPPORT/m"))])
        let refused = try relocate(places, "mount --bind '\(victim)' '\(places.group)/.Notes_SUPPORT/m'")
        #expect(refused.summary.object("error")?.string("code") == "mount_point", "\(refused.output)")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 0)
        #expect(try noteCount(places.legacy.appending("Notes.sqlite")) == 5)
    }

    /// An unfinished relocation of one store must not block the group's other stores.
    @Test func anUnfinishedRelocationBlocksNoOtherStore() throws {
        let places = try Places(.another)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
        let other = try makeStore(places.legacy.appending("Diary.sqlite"), rows: 3)
        let killed = try groupstore(
            "relocate", Word(store.path), Word(places.group), environment: ["GROUPSTORE_SOCKET": "/nonexistent/s"])
        #expect(killed.status == 0)
        // A kill between the commit and the end leaves such a journal. The source directory has vanished since.
        let journal = places.group.pushing(".groupstore/journal.json")
        try write(Self.journal(of: places), to: journal)
        let unfinished = try groupstore("recover", Word(places.group), "--json")
        #expect(unfinished.status != 0, "\(unfinished.output)")
        let done = try groupstore("relocate", Word(other.path), Word(places.group), "--json")
        #expect(done.outcome == "relocated", "\(done.output)")
        let status = try groupstore("status", Word(places.group), "--json")
        #expect(status.objects.filter { $0.type == "interrupted" }.count == 1, "\(status.output)")
        // Recovery finishes the relocation once the directory is back.
        try run("mkdir", [Word(places.scratch("gone"))])
        let recovered = try groupstore("recover", Word(places.group), "--json")
        #expect(recovered.status == 0, "\(recovered.output)")
        let after = try groupstore("status", Word(places.group), "--json")
        #expect(after.objects.filter { $0.type == "interrupted" }.isEmpty, "\(after.output)")
    }

    /// Returns the journal of a store whose source directory doesn't exist.
    private static func journal(of places: Places) -> String {
        """
        {"version":1,"state":{"intended":{}},"transfer":{"id":"1795412400-g72sbl2ct",
        "purpose":{"publish":{"as":"Gone.sqlite"}},"directory":"\(places.scratch("gone"))","name":"Gone.sqlite",
        "database":{"device":1,"inode":1},"copies":false,"retirement":"delete","hadWAL":false}}
        """
    }
}
