import CoreDataStore
import Glibc
import LinuxSystem
import ManagedObjectModels
import SQLiteStore
import SystemPackage

/// External data files that objects referenced before a migration, and that none references after it.
struct OrphanedFiles {
    private let before: Set<String>
    private let external: ExternalData

    init(_ store: StoreWriter, beside supportOwner: FilePath, _ model: ManagedObjectModel) throws {
        // The migration itself refuses a store that lacks its model's tables.
        let isComplete = try !DatabaseSchema(store).lacksParts(of: model)
        before = isComplete ? try ExternalReferences(store, beside: supportOwner, model).files() : []
        external = ExternalData(of: supportOwner)
    }

    /// Returns a note about the orphaned files that remain; nil if there are none.
    ///
    /// - Parameter removing: Deletes the files. Use it only if the support folder belongs to a copy and the archive
    ///   keeps the store with all its files; otherwise nothing would ever remove them from the copy's folder.
    func cleanUp(
        _ store: StoreWriter, beside supportOwner: FilePath, _ model: ManagedObjectModel, removing: Bool
    ) throws -> String? {
        guard !before.isEmpty else { return nil }
        let orphans = before.subtracting(try ExternalReferences(store, beside: supportOwner, model).files()).sorted()
        let remaining = removing ? orphans.filter { !remove($0) } : orphans
        guard let first = remaining.first else { return nil }
        let rest = remaining.count > 1 ? " and \(Counted(remaining.count - 1, "other"))" : ""
        return "external files that no object references any more stay in the support folder: \(first)\(rest)"
    }

    private func remove(_ name: String) -> Bool {
        external.file(named: name).map { $0.withPlatformString { unlink($0) } == 0 } ?? false
    }
}
