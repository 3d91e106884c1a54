import Glibc
import LinuxSystem
import SQLiteFormat
import StoreHazards
import SystemPackage

/// Finds states in which commits to the stores in a directory can be lost or hidden.
package struct HazardDiagnosis {
    private let path: FilePath
    private let only: StoreName?

    /// - Parameter only: The store to look at; nil for all in the directory.
    package init(_ path: FilePath, only: StoreName? = nil) { (self.path, self.only) = (path, only) }

    /// Returns one finding per hazard, as far as this process may look. The check is the hazard's code. This process
    /// must have no SQLite connection.
    package func findings() -> [Finding] {
        guard let directory = try? Directory(path) else { return [] }
        let stores = only.map { [$0] } ?? Self.stores(in: directory)
        let scan = HazardScan(stores.map { ($0, directory) }, readsLogs: true)
        return scan.hazards().filter { !Self.isSideFile($0.store) }.map {
            Finding(
                $0.code.rawValue, .problem(.badData), $0.message, remedy: $0.remedy, code: $0.code.rawValue)
        }
    }

    /// Returns the stores by name. One that was removed under a program may still have a log there.
    private static func stores(in directory: Directory) -> [StoreName] {
        let names = (try? directory.names()) ?? []
        return Set(names + names.compactMap(database(ofLog:)))
            .sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }.compactMap { StoreName($0) }
    }

    /// True for a log or index that has another name than SQLite gave it, such as `app.db-wal.bak`: it is no store.
    private static func isSideFile(_ path: FilePath) -> Bool {
        guard FileStatus(following: path)?.kind == .regular else { return false }
        let start = try? Descriptor(opening: path, flags: O_RDONLY).read(count: 4, at: 0, path: path)
        return start.map { WriteAheadLog.isStart($0) || WriteAheadIndex.isStart($0) } ?? false
    }

    /// Returns the name of the database that a log has; nil for another file.
    private static func database(ofLog name: FilePath.Component) -> FilePath.Component? {
        guard name.bytes.suffix(4).elementsEqual("-wal".utf8) else { return nil }
        return FilePath.Component(bytes: Array(name.bytes.dropLast(4)))
    }
}
