import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// Finds the external data files that objects reference. Files that are missing can only be restored from a backup, so
/// commands that inspect, move or migrate the store report them.
package struct ExternalReferences {
    /// The missing files of one attribute.
    package struct Missing: Equatable, Sendable {
        package let entity: String
        package let attribute: String
        package let files: Int
        /// The name of one of the files.
        package let first: String

        package var sentence: String {
            let rest = files > 1 ? " and \(Counted(files - 1, "other"))" : ""
            return "\(entity).\(attribute) references external files that are missing: \(first)\(rest); " + Self.remedy
        }

        package static let remedy = "restore them from a backup"
    }

    private let store: SQLiteConnection
    private let layout: StoreLayout
    private let external: ExternalData

    init(_ store: SQLiteConnection, beside supportOwner: FilePath, _ model: ManagedObjectModel) {
        self.store = store
        layout = StoreLayout(model)
        external = ExternalData(of: supportOwner)
    }

    /// Returns the missing files of a store whose own model is known; nil if its tables aren't the model's. Throws
    /// `StoreError`, `SystemError`.
    package static func missing(_ reader: StoreReader, _ model: ManagedObjectModel) throws -> [Missing]? {
        guard try !DatabaseSchema(reader).lacksParts(of: model) else { return nil }
        return try ExternalReferences(reader, beside: reader.location.path, model).missing()
    }

    /// Returns the missing files of the store at a location by its cached model; none if it has no cached model.
    package static func missing(of store: StoreLocation) throws -> [Missing] {
        try StoreReader.read(store) { reader in
            try StoreModel(reader)?.cachedModel.flatMap { try missing(reader, $0) } ?? []
        }
    }

    /// Returns true if objects reference files, which may be missing. Throws `StoreError`.
    package static func exist(in reader: StoreReader, _ model: ManagedObjectModel) throws -> Bool {
        guard try !DatabaseSchema(reader).lacksParts(of: model) else { return false }
        var found = false
        try ExternalReferences(reader, beside: reader.location.path, model).forEachAttribute { _, _, files in
            found = found || !files.isEmpty
        }
        return found
    }

    /// Returns an element for each attribute with missing files.
    func missing() throws -> [Missing] {
        var found: [Missing] = []
        try forEachAttribute { entity, name, files in
            let missing = files.filter { !exists($0) }
            guard let first = missing.first else { return }
            found.append(Missing(entity: entity, attribute: name, files: missing.count, first: first))
        }
        return found
    }

    /// Returns the names of the existing files that an object references.
    func files() throws -> Set<String> {
        var found: Set<String> = []
        try forEachAttribute { _, _, files in found.formUnion(files.filter(exists)) }
        return found
    }

    private func forEachAttribute(_ body: (_ entity: String, _ name: String, _ files: [String]) -> Void) throws {
        for table in layout.tables {
            for column in table.columns {
                guard case .attribute(let entity, let path) = column.content, isExternal(path, of: entity) else {
                    continue
                }
                body(entity, path.joined(separator: "."), try names(in: column.name, of: table.name))
            }
        }
    }

    private func isExternal(_ path: [String], of entity: String) -> Bool {
        layout.model.attribute(at: path, of: entity)?.allowsExternalBinaryDataStorage ?? false
    }

    /// Returns the file names in a column, which holds 2, the name and 0 if the data is external.
    private func names(in column: String, of table: String) throws -> [String] {
        let value = column.sqlName
        let rows = try store.prepare(
            "SELECT CAST(substr(\(value), 2, 36) AS TEXT) FROM \(table.sqlName) NOT INDEXED "
                + "WHERE typeof(\(value)) = 'blob' AND length(\(value)) = 38 AND substr(\(value), 1, 1) = x'02'")
        var names: [String] = []
        while try rows.step() { if let name = rows.text(0) { names.append(name) } }
        return names
    }

    private func exists(_ name: String) -> Bool {
        external.file(named: name).flatMap { FileStatus(following: $0) }?.kind == .regular
    }
}
