import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A process that has a store open, and the SQLite that it runs.
package struct StoreHolder: Equatable, Sendable {
    package let process: FileHolder
    /// True if one of its descriptors allows writing. groupstore's agent only reads.
    package let canWrite: Bool
    /// The version of its SQLite; nil if unknown.
    package let version: SQLiteVersion?

    var sentence: String { "\(process), SQLite \(version.map(\.description) ?? "unknown")" }
}

/// Finds the processes that have the stores in a directory open, and their SQLite versions.
package struct HolderDiagnosis {
    private let path: FilePath

    package init(_ path: FilePath) { self.path = path }

    /// Returns one finding per open store, as far as this process may look.
    package func findings() -> [Finding] {
        guard let directory = try? Directory(path), let names = try? directory.names() else { return [] }
        var files: [FileIdentity: FilePath.Component] = [:]
        for name in names where StoreName(name) != nil {
            guard let status = try? directory.status(name), status.kind == .regular else { continue }
            files[status.identity] = name
        }
        let open = OpenFiles.of(Set(files.keys))
        return open.sorted { files[$0.key]?.string ?? "" < files[$1.key]?.string ?? "" }.compactMap {
            identity, processes in
            guard let name = files[identity], let header = header(name, in: directory) else { return nil }
            let holders = processes.sorted { $0.key < $1.key }.compactMap { pid, canWrite in
                let version = LoadedSQLite.version(inProcess: pid)
                return FileHolder(process: pid).map { StoreHolder(process: $0, canWrite: canWrite, version: version) }
            }
            // They may all have ended meanwhile.
            guard !holders.isEmpty else { return nil }
            return Self.finding(path.appending(name), mode: header.journalMode, holders: holders)
        }
    }

    /// Reads the header. The file is open elsewhere, so nobody has a lease on it that this would break.
    private func header(_ name: FilePath.Component, in directory: Directory) -> DatabaseHeader? {
        guard let descriptor = try? directory.open(name, flags: O_RDONLY) else { return nil }
        return (try? descriptor.read(count: DatabaseHeader.length, at: 0)).flatMap { DatabaseHeader($0) }
    }

    static func finding(
        _ store: FilePath, mode: DatabaseHeader.JournalMode, holders: [StoreHolder]
    ) -> Finding {
        let message = "\(PrintablePath(store)): open in " + holders.map(\.sentence).joined(separator: "; ")
        let writers = holders.filter(\.canWrite)
        let older = writers.filter { $0.version.map { $0 < .withoutResetBug } ?? false }
        guard mode == .writeAhead, writers.count > 1, !older.isEmpty else {
            return Finding("holders", .fine, message, holders: holders)
        }
        return Finding(
            "holders", .warning,
            "\(message): before \(SQLiteVersion.withoutResetBug), SQLite can corrupt a store in write-ahead mode that two "
                + "connections write or checkpoint at once",
            remedy: "update SQLite in " + older.map(\.process).list, code: "old_sqlite", holders: holders)
    }
}

/// The files that processes have open, by their descriptors.
private enum OpenFiles {
    /// Returns which processes have which of the files open, and whether for writing, without this process.
    static func of(_ files: Set<FileIdentity>) -> [FileIdentity: [Int32: Bool]] {
        guard !files.isEmpty, let processes = ProcFileSystem.processes else { return [:] }
        var found: [FileIdentity: [Int32: Bool]] = [:]
        for pid in processes where pid != getpid() {
            for file in HeldFile.of(pid, only: files) {
                found[file.identity, default: [:]][pid, default: false] =
                    file.canWrite || found[file.identity]?[pid] == true
            }
        }
        return found
    }
}
