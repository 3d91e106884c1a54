import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// A program's directory, and a place for it on the same or another file system.
final class AppRig {
    enum FileSystem: String, CaseIterable, Sendable {
        case same, another
    }

    private let here: TemporaryDirectory
    private let there: TemporaryDirectory
    let source: FilePath
    let destination: FilePath

    /// Makes the directory, with a store that has its last rows in its log, a store in another directory, a file with
    /// two names, an empty and a long one, links, a FIFO, and names that are no UTF-8.
    ///
    /// - Parameter isOneParent: True for two places in one directory.
    init(_ fileSystem: FileSystem, isOneParent: Bool = false) throws {
        here = try TemporaryDirectory()
        there =
            try isOneParent
            ? here : fileSystem == .same ? TemporaryDirectory() : TemporaryDirectory(in: "/dev/shm")
        source = here.path.appending("app")
        destination = there.path.appending("moved")
        let script = """
            import os, sqlite3, sys
            os.makedirs("sub/deep/empty")
            with open("file", "w") as f: f.write("text" * 1000)
            os.link("file", "sub/hard")
            os.symlink("file", "relative")
            os.symlink(os.getcwd() + "/file", "absolute")
            os.symlink("nowhere", "dangling")
            os.mkfifo("fifo", 0o640)
            open(b"\\xff\\xfe", "w").close()
            open("new\\nline", "w").close()
            with open("sparse", "wb") as f: f.truncate(1 << 18); f.seek(1 << 18); f.write(b"end")
            os.chmod("sub/deep", 0o550)
            os.chmod("sub", 0o2750)
            os.utime("file", (1e9, 1e9))
            small = sqlite3.connect("sub/small.db")
            small.execute("CREATE TABLE t (x)"); small.execute("INSERT INTO t VALUES (1)"); small.commit(); small.close()
            store = sqlite3.connect("store.db")
            store.execute("PRAGMA journal_mode = WAL"); store.execute("PRAGMA wal_autocheckpoint = 0")
            store.execute("CREATE TABLE t (x)")
            store.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(100)])
            store.commit()
            os._exit(0)
            """
        try Directory(here.path).makeDirectory("app", mode: 0o755)
        let made = try run("sh", ["-c", "cd \"$1\" && exec python3 -c \"$2\"", "sh", Word(source), Word(script)])
        guard made.status == 0 else { throw Errno.invalidArgument }
    }

    func request(deadline: Duration = .ample) -> AppMoveRequest {
        var request = AppMoveRequest(source: source, destination: destination)
        request.deadline = deadline
        return request
    }

    /// The program's files at a path, without those that SQLite makes again.
    func files(_ path: FilePath) throws -> [[UInt8]: DirectorySnapshot.Entry] {
        try DirectorySnapshot(path).entries.filter { name, _ in
            !["store.db", "store.db-wal", "store.db-shm"].contains(String(decoding: name, as: UTF8.self))
        }
    }

    /// The number of rows of the store at a path, as SQLite counts them in a copy.
    func rows(_ path: FilePath) throws -> String {
        let copy = try TemporaryDirectory()
        try run("sh", ["-c", "cp \"$1\"/store.db* \"$2\"", "sh", Word(path), Word(copy.path)])
        let counted = try run("sqlite3", [Word(copy.path.appending("store.db")), "SELECT count(*) FROM t"])
        return counted.output.trimmed
    }

    /// The names beside the two places that a move may leave there.
    func leftovers() throws -> [String] {
        try [here, there].flatMap { try Directory($0.path).names() }.map(\.string)
            .filter { $0.hasPrefix(".groupstore-") }
    }

    /// True for the hidden name of an old directory, beside which a move's note lies.
    static func isHidden(_ name: FilePath.Component) -> Bool {
        name.string.hasPrefix(".groupstore-") && name.extension == nil
    }

    func isLink(_ path: FilePath) throws -> Bool {
        let name = try #require(path.lastComponent)
        return try Directory(path.removingLastComponent()).status(name)?.kind == .symbolicLink
    }
}

extension String {
    fileprivate var trimmed: String { String(drop { $0.isWhitespace }.prefix { !$0.isWhitespace }) }
}
