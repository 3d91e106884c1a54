import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport

/// Runs SQL in an unmodified `sqlite3` shell, which opens the store and closes it again.
@discardableResult
package func sqlite(_ store: FilePath, _ sql: String) throws -> String {
    let done = try run(
        "sqlite3", ["-batch", "-bail", "-init", "/dev/null", "-cmd", ".timeout 30000", Word(store), Word(sql)])
    guard done.status == 0 else { throw Unexpected("sqlite3: \(done.errors)") }
    return done.output
}

/// Starts an interactive `sqlite3` shell that keeps the store open.
package func sqliteShell(_ store: FilePath) throws -> RunningProcess {
    let shell = try RunningProcess("sqlite3", ["-batch", "-init", "/dev/null", Word(store)])
    shell.send("PRAGMA busy_timeout = 10000; SELECT count(*) FROM sqlite_schema; SELECT 'open';")
    try shell.line { $0 == "open" }
    return shell
}

extension RunningProcess {
    /// Runs SQL in an interactive shell and waits until it is done.
    package func execute(_ sql: String) throws {
        send("\(sql); SELECT 'done';")
        try line { $0 == "done" }
    }
}

/// A store on disk, with all files that belong to it.
package struct StoreFiles: Sendable, CustomStringConvertible {
    package let path: FilePath
    package let name: StoreName

    package init(_ path: FilePath) throws {
        guard let last = path.lastComponent, let name = StoreName(last) else { throw Errno.invalidArgument }
        self.path = path
        self.name = name
    }

    package var description: String { path.string }

    package var directory: FilePath { path.removingLastComponent() }
    package var support: FilePath { directory.appending(name.support) }

    /// Returns the store's existing parts.
    package func parts() throws -> [FilePath.Component] {
        let directory = try Directory(directory)
        return try ([name.database] + name.sideFiles + [name.support]).filter { try directory.status($0) != nil }
    }

    /// True if nothing of the store is left, or nothing but a link.
    package func isRetired() throws -> Bool {
        let parts = try parts()
        return try parts.isEmpty
            || parts == [name.database] && Directory(directory).status(name.database)?.kind == .symbolicLink
    }

    /// Copies every part into another directory, as `cp -a` does.
    package func copy(to directory: FilePath) throws -> StoreFiles {
        let parts = try parts()
        guard !parts.isEmpty else { return try StoreFiles(directory.appending(name.database)) }
        let done = try run("cp", ["-a", "--"] + parts.map { Word(self.directory.appending($0)) } + [Word(directory)])
        guard done.status == 0 else { throw Unexpected("cp: \(done.errors)") }
        try run("chmod", ["-R", "u+rwX", "--"] + parts.map { Word(directory.appending($0)) })
        return try StoreFiles(directory.appending(name.database))
    }

    /// Returns SQLite's `.dump` of a copy. Opening the store itself would change it.
    package func dump() throws -> String {
        let place = try TemporaryDirectory()
        return try sqlite(copy(to: place.path).path, ".dump")
    }

    /// Returns a snapshot of the external-data folder, or nil if there is none.
    package func supportSnapshot() throws -> DirectorySnapshot? {
        try Directory(directory).status(name.support) == nil ? nil : DirectorySnapshot(support)
    }
}

/// The places of a test's stores: a legacy directory, and a group directory on the same or another file system.
package struct Places {
    package enum FileSystem: String, CaseIterable {
        case same, another
    }

    private let here: TemporaryDirectory
    private let there: TemporaryDirectory?
    package let legacy: FilePath
    package let group: FilePath

    package init(_ fileSystem: FileSystem = .same) throws {
        here = try TemporaryDirectory()
        there = fileSystem == .another ? try TemporaryDirectory(in: "/dev/shm") : nil
        legacy = here.path.appending("legacy")
        group = (there ?? here).path.appending("group")
        for directory in [legacy, group] {
            try Directory(directory.removingLastComponent()).makeDirectory(directory.lastComponent ?? "", mode: 0o755)
        }
    }

    /// Returns a path for another file of the test.
    package func scratch(_ name: String) -> FilePath { here.path.appending(name) }
}

/// Makes a store of `rows` notes with an external-data folder. With `unflushed`, every row but the first stays in the
/// `-wal`, as after an app's kill.
@discardableResult
package func makeStore(_ path: FilePath, rows: Int, unflushed: Bool = false, padding: Int = 100) throws -> StoreFiles {
    let store = try StoreFiles(path)
    let shell = try sqliteShell(path)
    try shell.execute(
        """
        PRAGMA journal_mode = \(unflushed ? "WAL" : "DELETE"); PRAGMA wal_autocheckpoint = 0;
        CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT);
        INSERT INTO note (text) VALUES ('the first'); PRAGMA wal_checkpoint(TRUNCATE);
        WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < \(rows))
        INSERT INTO note SELECT i, 'note ' || i || hex(zeroblob(\(padding))) FROM n WHERE i <= \(rows)
        """)
    if unflushed { try shell.killAtOnce() } else { shell.closeInput() }
    try shell.wait()
    let external = store.support.appending("_EXTERNAL_DATA")
    for folder in [store.support, external] where FileStatus(following: folder) == nil {
        try Directory(folder.removingLastComponent()).makeDirectory(folder.lastComponent ?? "", mode: 0o755)
    }
    try copy(path, to: external.appending("1F2E"))
    return store
}

/// Copies a file's content, as `cp` does. Its descriptors are closed when it returns.
package func copy(_ source: FilePath, to destination: FilePath) throws {
    let from = try Descriptor(opening: source, flags: O_RDONLY)
    let file = try Descriptor(opening: destination, flags: O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
    let size = try from.status(path: source).size
    try file.write(try from.read(count: Int(size), at: 0), at: 0, path: destination)
}

package func noteCount(_ store: FilePath) throws -> Int {
    Int(try sqlite(store, "SELECT count(*) FROM note").split(separator: "\n").first ?? "") ?? -1
}

/// Creates or replaces a text file.
package func write(_ text: String, to path: FilePath) throws {
    let file = try Descriptor(opening: path, flags: O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
    try file.write(Array(text.utf8), at: 0, path: path)
}

extension Places {
    /// Makes the hidden directory beside the legacy one in which the last move of an app would have left a file that it
    /// could not remove. Returns its path.
    package func leaveFileBehind() throws -> FilePath {
        let receipts = try Directory(group.pushing(".groupstore/app-receipts")).names()
        guard let id = receipts.first(where: { $0.extension == "json" })?.stem else {
            throw Unexpected("no move has a receipt")
        }
        let left = legacy.appending(".groupstore-\(id)")
        guard mkdir(left.string, 0o700) == 0 else { throw Errno(rawValue: errno) }
        try write("immutable", to: left.appending("file"))
        return left
    }
}

/// True if a directory has nothing but a link of the store's name that leads to the store.
package func holdsLinkAlone(_ directory: FilePath, to store: FilePath) throws -> Bool {
    guard let name = store.lastComponent, let target = FileStatus(following: store)?.identity else { return false }
    let directory = try Directory(directory)
    return try directory.names() == [name] && directory.status(name)?.kind == .symbolicLink
        && FileStatus(following: directory.path.appending(name))?.identity == target
}
