import CoreDataStore
import LinuxSystem
import ManagedObjectModel
import PersistentStore
import SystemPackage

/// The files that objects name as their data, and that aren't beside the store: a migration can't bring them back, and must
/// not be silent about them.
struct ExternalReferences {
    private let store: StoreWriter
    private let layout: StoreLayout
    private let external: ExternalData

    init(_ store: StoreWriter, beside keeper: FilePath, _ model: ManagedObjectModel) {
        self.store = store
        layout = StoreLayout(model)
        external = ExternalData(of: keeper)
    }

    /// A line for each attribute of which files are missing.
    func missing() throws -> [String] {
        var notes: [String] = []
        for table in layout.tables {
            for column in table.columns {
                guard case .attribute(let entity, let name) = column.content, isExternal(name, of: entity) else {
                    continue
                }
                let missing = try names(in: column.name, of: table.name).filter { !isThere($0) }
                guard let first = missing.first else { continue }
                let rest = missing.count > 1 ? " and \(missing.count - 1) others" : ""
                notes.append(
                    "\(entity).\(name) names external files that are not there: \(first)\(rest); restore them from a backup"
                )
            }
        }
        return notes
    }

    private func isExternal(_ name: String, of entity: String) -> Bool {
        layout.model.entity(named: entity)?.attributes.first { $0.name == name }?.allowsExternalBinaryDataStorage
            ?? false
    }

    /// The column holds 2, the file's name and 0 where the data is outside.
    private func names(in column: String, of table: String) throws -> [String] {
        let value = column.sqlName
        let rows = try store.prepare(
            "SELECT CAST(substr(\(value), 2, 36) AS TEXT) FROM \(table.sqlName) "
                + "WHERE typeof(\(value)) = 'blob' AND length(\(value)) = 38 AND substr(\(value), 1, 1) = x'02'")
        var names: [String] = []
        while try rows.step() { if let name = rows.text(0) { names.append(name) } }
        return names
    }

    private func isThere(_ name: String) -> Bool {
        external.file(named: name).flatMap { FileStatus(following: $0) }?.kind == .regular
    }
}
