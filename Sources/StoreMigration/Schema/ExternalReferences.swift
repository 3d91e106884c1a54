import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The files that objects name as their data, and that aren't beside the store: nobody can bring them back but a backup, and
/// who looks at the store, moves or migrates it should hear of it.
package struct ExternalReferences {
    /// Those of one attribute.
    package struct Missing: Equatable, Sendable {
        package let entity: String
        package let attribute: String
        package let files: Int
        /// One of their names, as it would be in the folder.
        package let first: String

        package var sentence: String {
            let rest = files > 1 ? " and \(files - 1) others" : ""
            return "\(entity).\(attribute) names external files that are not there: \(first)\(rest); " + Self.remedy
        }

        package static let remedy = "restore them from a backup"
    }

    private let store: SQLiteConnection
    private let layout: StoreLayout
    private let external: ExternalData

    init(_ store: SQLiteConnection, beside keeper: FilePath, _ model: ManagedObjectModel) {
        self.store = store
        layout = StoreLayout(model)
        external = ExternalData(of: keeper)
    }

    /// Of a store whose own model is known; nil where its tables aren't the model's. Throws `StoreError`, `SystemError`.
    package static func missing(_ reader: StoreReader, _ model: ManagedObjectModel) throws -> [Missing]? {
        guard try StoreSchema(reader).missing(of: StoreLayout(model)).isEmpty else { return nil }
        return try ExternalReferences(reader, beside: reader.location.path, model).missing()
    }

    /// The same of a store by its place and the model that it carries; none where it carries none.
    package static func missing(of store: StoreLocation) throws -> [Missing] {
        try StoreReader.read(store) { reader in
            try StoreModel(reader)?.cachedModel.flatMap { try missing(reader, $0) } ?? []
        }
    }

    /// Returns whether objects name files that are there. Throws `StoreError`.
    package static func areNamed(_ reader: StoreReader, _ model: ManagedObjectModel) throws -> Bool {
        guard try StoreSchema(reader).missing(of: StoreLayout(model)).isEmpty else { return false }
        return try !ExternalReferences(reader, beside: reader.location.path, model).files().isEmpty
    }

    /// One for each attribute of which files are missing.
    func missing() throws -> [Missing] {
        var found: [Missing] = []
        try forEachAttribute { entity, name, files in
            let missing = files.filter { !isThere($0) }
            guard let first = missing.first else { return }
            found.append(Missing(entity: entity, attribute: name, files: missing.count, first: first))
        }
        return found
    }

    /// Those that are there and that an object names.
    func files() throws -> Set<String> {
        var found: Set<String> = []
        try forEachAttribute { _, _, files in found.formUnion(files.filter(isThere)) }
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
        layout.model.entity(named: entity)?.attribute(at: path)?.allowsExternalBinaryDataStorage ?? false
    }

    /// The column holds 2, the file's name and 0 where the data is outside.
    private func names(in column: String, of table: String) throws -> [String] {
        let value = column.sqlName
        let rows = try store.prepare(
            "SELECT CAST(substr(\(value), 2, 36) AS TEXT) FROM \(table.sqlName) NOT INDEXED "
                + "WHERE typeof(\(value)) = 'blob' AND length(\(value)) = 38 AND substr(\(value), 1, 1) = x'02'")
        var names: [String] = []
        while try rows.step() { if let name = rows.text(0) { names.append(name) } }
        return names
    }

    private func isThere(_ name: String) -> Bool {
        external.file(named: name).flatMap { FileStatus(following: $0) }?.kind == .regular
    }
}
