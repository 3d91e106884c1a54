import Glibc
import LinuxSystem
import Synchronization
import SystemPackage

/// The SQLite that another process runs: a shared library, or code linked into its program or one of its libraries.
package enum LoadedSQLite {
    /// Returns the version, or nil if it is unknown: the process belongs to another user, the file was replaced since,
    /// or the build lacks the usual texts.
    ///
    /// - Parameter known: The versions of files that were read before.
    package static func version(inProcess pid: Int32, known: SQLiteVersions = SQLiteVersions()) -> SQLiteVersion? {
        let process = FilePath("/proc/\(pid)")
        guard let directory = try? Directory(process),
            let bytes = try? DurableFile.read("maps", in: directory, limit: 8 << 20)
        else { return nil }
        let files = MappedFile.code(in: String(decoding: bytes, as: UTF8.self))
        // Most programs use a shared library of that name.
        let (named, others) = (files.filter(\.isNamedSQLite), files.filter { !$0.isNamedSQLite })
        for file in named + others {
            if let version = version(of: file, in: process, known) { return version }
        }
        return nil
    }

    private static func version(
        of file: MappedFile, in process: FilePath, _ known: SQLiteVersions
    ) -> SQLiteVersion? {
        // Opening the mapping itself needs a capability that few processes have. The name may be another file's by now.
        let mapping = process.appending("map_files").appending(file.range)
        let named = FilePath(process.string + "/root" + file.path)
        for path in [mapping, named] {
            guard let descriptor = try? Descriptor(opening: path, flags: O_RDONLY | O_NONBLOCK),
                let status = try? descriptor.status(), status.kind == .regular, status.identity.inode == file.inode
            else { continue }
            return known.version(of: status) { scan(descriptor, status.size) }
        }
        return nil
    }

    private static func scan(_ descriptor: borrowing Descriptor, _ size: Int64) -> SQLiteVersion? {
        var scan = SQLiteVersionScan()
        var offset: Int64 = 0
        while offset < min(size, maxFileSize) {
            guard let bytes = try? descriptor.read(count: 1 << 20, at: offset), !bytes.isEmpty else { break }
            bytes.withUnsafeBytes { scan.add($0) }
            offset += Int64(max(1, bytes.count - SQLiteVersionScan.overlap))
            if bytes.count <= SQLiteVersionScan.overlap { break }
        }
        return scan.version
    }

    private static let maxFileSize: Int64 = 512 << 20
}

/// The versions of SQLite in files that were read before: a program or library has megabytes.
package final class SQLiteVersions: Sendable {
    private struct File: Hashable {
        let identity: FileIdentity
        let size: Int64
        let modified: Int64
    }

    private let versions = Mutex<[File: SQLiteVersion?]>([:])
    private static let limit = 1024

    package init() {}

    /// Returns the version of SQLite in a process; nil if it is unknown.
    package func version(inProcess pid: Int32) -> SQLiteVersion? { LoadedSQLite.version(inProcess: pid, known: self) }

    fileprivate func version(of status: FileStatus, read: () -> SQLiteVersion?) -> SQLiteVersion? {
        let file = File(identity: status.identity, size: status.size, modified: status.modified)
        if let known = versions.withLock({ $0[file] }) { return known }
        let found = read()
        versions.withLock { versions in
            if versions.count >= Self.limit { versions = [:] }
            versions[file] = .some(found)
        }
        return found
    }
}

/// A line of `/proc/PID/maps` (proc(5)).
private struct MappedFile {
    let range: String
    let inode: UInt64
    let path: String

    var isNamedSQLite: Bool { path.split(separator: "/").last?.contains("sqlite") == true }

    /// Returns the files with executable mappings, each once.
    static func code(in maps: String) -> [MappedFile] {
        var seen: Set<UInt64> = []
        return maps.split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ", maxSplits: 5, omittingEmptySubsequences: true)
            guard words.count == 6, words[1].contains("x"), let inode = UInt64(words[4]), inode != 0,
                let start = words[5].firstIndex(of: "/"), seen.insert(inode).inserted
            else { return nil }
            return MappedFile(range: String(words[0]), inode: inode, path: String(words[5][start...]))
        }
    }
}
