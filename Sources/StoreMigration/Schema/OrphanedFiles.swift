import CoreDataStore
import Glibc
import ManagedObjectModels
import SQLiteStore
import SystemPackage

/// Files of external data that objects named before a migration, and that none names after it.
struct OrphanedFiles {
    private let before: Set<String>
    private let external: ExternalData

    init(_ store: StoreWriter, beside keeper: FilePath, _ model: ManagedObjectModel) throws {
        // What lacks its model's tables is refused where it is migrated.
        let isWhole = try StoreSchema(store).missing(of: StoreLayout(model)).isEmpty
        before = isWhole ? try ExternalReferences(store, beside: keeper, model).files() : []
        external = ExternalData(of: keeper)
    }

    /// What is told of them. Where the folder is a copy's own, and the store is kept with all of them in the archive,
    /// `removing` them leaves none behind that nothing would ever remove.
    func settle(
        _ store: StoreWriter, beside keeper: FilePath, _ model: ManagedObjectModel, removing: Bool
    ) throws -> String? {
        guard !before.isEmpty else { return nil }
        let orphans = before.subtracting(try ExternalReferences(store, beside: keeper, model).files()).sorted()
        let left = removing ? orphans.filter { !remove($0) } : orphans
        guard let first = left.first else { return nil }
        let rest = left.count > 1 ? " and \(left.count - 1) others" : ""
        return "external files that no object names any more stay in the support folder: \(first)\(rest)"
    }

    private func remove(_ name: String) -> Bool {
        external.file(named: name).map { $0.withPlatformString { unlink($0) } == 0 } ?? false
    }
}
