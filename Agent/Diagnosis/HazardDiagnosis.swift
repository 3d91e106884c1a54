import LinuxSystem
import SQLiteFormat
import StoreHazards
import SystemPackage

/// Finds states in which commits to the stores in a directory can be lost or hidden.
package struct HazardDiagnosis {
    private let path: FilePath

    package init(_ path: FilePath) { self.path = path }

    /// Returns one finding per hazard, as far as this process may look. The check is the hazard's code.
    package func findings() -> [Finding] {
        guard let directory = try? Directory(path), let names = try? directory.names() else { return [] }
        let stores = names.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }.compactMap { StoreName($0) }
        let scan = HazardScan(stores.map { ($0, directory) }, readsLogs: true)
        return scan.hazards().map {
            Finding($0.code.rawValue, .problem(.badData), $0.message, remedy: $0.remedy)
        }
    }
}
