import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Migrations on a full disk: an in-memory file system with less and less room. Mounting it needs root; without root
/// these tests are skipped.
@Suite(.ownThreads, .enabled(if: SmallDisk.canBeMounted, "mounting a tmpfs needs root"))
struct MigrationSpaceTests {
    private static let notes = 20_000
    private static let size = 16 << 20

    /// Migrates in place and during a relocation, by inference and by a mapping model. Without enough room, the command
    /// refuses with a disk error, sets nothing aside and leaves the store unchanged. With room again, it migrates the
    /// store.
    @Test(arguments: [true, false], [true, false])
    func reportsAFullDisk(_ isMapped: Bool, _ isInPlace: Bool) throws {
        let stores = try ModelStores()
        let pristine = try stores.makeOld(stores.places.scratch("Pristine.sqlite"), title: "x", notes: Self.notes)
        let mapping = stores.places.scratch("loud.yaml")
        try write(ModelRelocationTests.appendingMapping, to: mapping)
        let disk = try SmallDisk(Self.size)
        let legacy = isInPlace ? disk.path.appending("Notes.sqlite") : stores.legacy
        let words: [Word] =
            [
                "relocate", Word(legacy), Word(disk.path), "--model", Word(stores.model), "--on-incompatible",
                "set-aside", "--retire", "delete", "--json",
            ] + (isMapped ? ["--mapping", Word(mapping)] : [])
        let step = try #require(FileStatus(following: pristine.path)).size / 4
        var refused = 0
        for share in Tier.cases(Array(0..<12), quick: [0, 4, 8, 11]) {
            try run("cp", [Word(pristine.path), Word(legacy)])
            try disk.fill(leaving: step * Int64(share))
            let first = try run(Programs.groupstore, words, environment: ["GROUPSTORE_SOCKET": "/nonexistent"])
            try disk.empty()
            if first.status != 0 {
                refused += 1
                #expect(first.status == 74, "\(share): \(first.output)")
                #expect(try sqlite(legacy, "SELECT count(ZTITLE) FROM ZNOTE") == "\(Self.notes)\n", "\(share)")
                #expect(try sqlite(legacy, "PRAGMA integrity_check") == "ok\n", "\(share)")
                let again = try run(Programs.groupstore, words, environment: ["GROUPSTORE_SOCKET": "/nonexistent"])
                #expect(again.status == 0, "\(share): \(again.errors)")
            }
            let store = disk.path.appending("Notes.sqlite")
            #expect(try sqlite(store, "SELECT count(ZCAPTION) FROM ZNOTE") == "\(Self.notes)\n", "\(share)")
            let bookkeeping = try Directory(disk.path.appending(".groupstore"))
            #expect(try bookkeeping.status("journal.json") == nil, "\(share)")
            #expect(
                try bookkeeping.status("archive").map { _ in try bookkeeping.directory("archive").names() } ?? [] == [])
            try run("rm", [Word(store)])
        }
        #expect(refused > 1)
    }
}

/// A small file system, unmounted at the end.
private final class SmallDisk {
    static let canBeMounted = (try? SmallDisk(1 << 20)) != nil

    private let directory: TemporaryDirectory
    var path: FilePath { directory.path }

    init(_ size: Int) throws {
        directory = try TemporaryDirectory()
        let done = try run("mount", ["-t", "tmpfs", "-o", "size=\(size)", "tmpfs", Word(directory.path)])
        guard done.status == 0 else { throw Unexpected("mount: \(done.errors)") }
    }

    deinit { _ = try? run("umount", [Word(directory.path)]) }

    var free: Int64 { get throws { Int64(try Directory(path).fileSystem().available) } }

    /// Fills the disk except for `free` bytes.
    func fill(leaving free: Int64) throws {
        let wanted = try self.free - free
        guard wanted > 0 else { return }
        let done = try run("fallocate", ["-l", "\(wanted)", Word(filler)])
        guard done.status == 0 else { throw Unexpected("fallocate: \(done.errors)") }
    }

    func empty() throws { try run("rm", ["-f", Word(filler)]) }
    private var filler: FilePath { path.appending("filler") }
}
