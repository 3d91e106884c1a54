import FileCoordination
import Foundation
import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreMerging
import StoreRelocation
import Synchronization
import SystemPackage
import TestSupport

@testable import StoreRescue

/// A store with a table `t` in write-ahead mode, and the ways to split it.
struct RescueRig {
    private let scratch: TemporaryDirectory
    let path: FilePath
    let store: StoreLocation

    /// True if the times of files show every write here.
    static var hasTimes: Bool {
        guard let place = try? TemporaryDirectory(), let directory = try? Directory(place.path),
            let name = try? directory.fileSystem().name
        else { return false }
        return SplitBase.fileSystems.contains(name)
    }

    init() throws {
        FileLease.ignoreBreakSignal()
        scratch = try TemporaryDirectory()
        path = scratch.path.appending("Notes.sqlite")
        guard let name = StoreName("Notes.sqlite") else { throw Unexpected("not a name") }
        store = StoreLocation(directory: try Directory(scratch.path), name: name)
        try sql(
            path, "PRAGMA journal_mode = WAL", "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (1, 'base')")
    }

    /// Another store in the same directory.
    init(_ other: RescueRig, _ path: FilePath) throws {
        scratch = other.scratch
        self.path = path
        guard let name = path.lastComponent.flatMap(StoreName.existing) else { throw Unexpected("not a name") }
        store = StoreLocation(directory: other.store.directory, name: name)
    }

    /// Runs statements on a store that is opened and closed for it.
    func sql(_ path: FilePath, _ statements: String...) throws {
        let writer = try StoreWriter(path, creating: true)
        for statement in statements { try writer.execute(statement) }
    }

    /// Returns a program that has the store open in write-ahead mode, and has read it.
    func holder() throws -> SQLiteHolder {
        let holder = try SQLiteHolder(path)
        try holder.run("c.execute('SELECT * FROM t').fetchall()")
        return holder
    }

    func unlink(_ suffixes: String...) {
        for suffix in suffixes { _ = Glibc.unlink(path.string + suffix) }
    }

    func rename(_ suffix: String, to name: String) throws {
        let target = scratch.path.appending(name)
        guard Glibc.rename(path.string + suffix, target.string) == 0 else { throw Unexpected("rename: \(errno)") }
    }

    /// Renames the database to `Notes.old`, and puts a copy in its place.
    func renameAndCopy() throws {
        try rename("", to: "Notes.old")
        // Another process: a holder that closes a file of its own drops its locks.
        let done = try run("cp", [Word(scratch.path.appending("Notes.old")), Word(path)])
        guard done.status == 0 else { throw Unexpected("cp: \(done.errors)") }
    }

    /// Moves a new store with the same table over the store.
    func replace(rows: String) throws {
        let other = scratch.path.appending("other")
        try sql(other, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES \(rows)")
        guard Glibc.rename(other.string, path.string) == 0 else { throw Unexpected("rename: \(errno)") }
    }

    /// Other tests start processes, which have all files of this one open until they run their program.
    func rescue(
        prefer: MergePreference..., deadline: Duration = .ample,
        registry: any PresenterRegistry = InProcessRegistry(), baseMargin: Duration? = nil,
        isCancelled: @escaping @Sendable () -> Bool = { false }
    ) -> StoreRescue {
        var options = MergeOptions()
        options.preferences = prefer
        return StoreRescue(
            store, options, request(deadline), registry: registry, baseMargin: baseMargin, isCancelled: isCancelled)
    }

    /// Returns a registry with a program as presenter of the store. `close` runs in another thread when it is asked to
    /// close it, while this one waits.
    func presenting(_ holder: SQLiteHolder, close: @escaping () -> Void) throws -> InProcessRegistry {
        let registry = InProcessRegistry()
        let presenter = Mutex<UInt64>(0)
        nonisolated(unsafe) let close = close
        let added = try registry.add(
            Relocation.container(at: scratch.path).item(store.name.database),
            FileHolder(pid: holder.pid, program: "python3")
        ) { message in
            guard case .request(let claim, let request) = message else { return }
            Thread.detachNewThread {
                close()
                registry.answer(presenter.withLock { $0 }, claim: claim, request, failure: nil)
            }
        }
        presenter.withLock { $0 = added.presenter }
        return registry
    }

    func request(_ deadline: Duration = .ample) -> RelocationRequest {
        var request = RelocationRequest(source: path, group: store.directory.path)
        request.deadline = deadline
        return request
    }

    /// The rows of the store as programs see it, `id=v`.
    func rows(_ path: FilePath? = nil) throws -> [String] {
        let writer = try StoreWriter(path ?? self.path)
        let statement = try writer.prepare("SELECT id || '=' || v FROM t ORDER BY id")
        var found: [String] = []
        while try statement.step() { found.append(statement.text(0) ?? "") }
        return found
    }

    /// The copies of branches in the archive, by their rows.
    func archivedBranches() throws -> [(rows: [String], isJoined: Bool)] {
        try SavedBranches(Relocation.container(at: scratch.path)).archived().map {
            (try rows($0.location.path), $0.branch.isJoined)
        }
    }

    /// The rows of each archived store.
    func archivedRows() throws -> Set<[String]> {
        let container = try Relocation.container(at: scratch.path)
        return Set(try ArchivedStore.all(in: container).compactMap(\.location).compactMap { try? rows($0.path) })
    }

    var entries: [String] { get throws { try store.directory.names().map(\.string).sorted() } }
}

extension RescueReport {
    /// Whether a note says that the shared database may have been written depends on the store's age, too.
    var otherNotes: [String] { notes.filter { !$0.contains("under another side's log") } }
}

extension SQLiteHolder {
    /// Commits a change of the database's first page, which has its size: the log then shows on what it follows.
    func changeFirstPage() throws {
        try run("c.execute('INSERT INTO t VALUES (0, zeroblob(9000))'); c.execute('DELETE FROM t WHERE id = 0')")
    }

    func insert(_ id: Int, _ value: String) throws {
        try run("c.execute(\"INSERT INTO t VALUES (\(id), '\(value)')\")")
    }
}
