import Foundation
import SQLiteStore
import SystemPackage
import TestSupport

@testable import ManagedObjectModels
@testable import MigrationAudit

/// Returns a model with the given content of `<model>`.
func model(_ content: String) throws -> ManagedObjectModel {
    try XMLModelReader.read(Array("<model>\(content)</model>".utf8), path: "/M/contents", name: "M").model
}

/// A store and its migrated copy, both written by the test.
final class AuditedStores {
    let before: FilePath
    let after: FilePath
    let old: ManagedObjectModel
    let new: ManagedObjectModel
    private let directory: TemporaryDirectory

    /// Creates both with their models' tables and Core Data's own. Runs `rows` in both, `before` in the store, `after`
    /// in the copy.
    init(
        _ old: String, _ new: String, rows: [String] = [], before: [String] = [], after: [String] = [],
        uuid: String = "STORE"
    ) throws {
        directory = try TemporaryDirectory()
        self.old = try model(old)
        self.new = try model(new)
        self.before = directory.path.appending("before.sqlite")
        self.after = directory.path.appending("after.sqlite")
        try Self.make(self.before, self.old, "STORE", rows + before)
        try Self.make(self.after, self.new, uuid, rows + after)
    }

    private static func make(_ path: FilePath, _ model: ManagedObjectModel, _ uuid: String, _ rows: [String]) throws {
        let writer = try StoreWriter(path, creating: true)
        let layout = AuditLayout(model)
        for (table, columns) in layout.columns {
            let properties = columns.filter { !["Z_PK", "Z_ENT", "Z_OPT"].contains($0) }.sorted().map { quoted($0) }
            let all = ["Z_PK INTEGER PRIMARY KEY", "Z_ENT INTEGER", "Z_OPT INTEGER"] + properties
            try writer.execute("CREATE TABLE \(quoted(table)) (\(all.joined(separator: ", ")))")
        }
        try writer.execute(
            "CREATE TABLE Z_PRIMARYKEY (Z_ENT INTEGER PRIMARY KEY, Z_NAME VARCHAR, Z_SUPER INTEGER, Z_MAX INTEGER)")
        for name in layout.tree.names {
            let parent = layout.tree.lineage(of: name).dropFirst().first.map(layout.tree.number(of:)) ?? 0
            try writer.execute(
                "INSERT INTO Z_PRIMARYKEY VALUES (\(layout.tree.number(of: name)), '\(name)', \(parent), "
                    + "\(parent == 0 ? 9 : 0))")
        }
        try writer.execute(
            "CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID VARCHAR(255), Z_PLIST BLOB)")
        let hashes = model.entityVersionHashesByName.map {
            "<key>\($0)</key><data>\(Data($1).base64EncodedString())</data>"
        }
        let list =
            "<plist version='1.0'><dict><key>app</key><string>kept</string>"
            + "<key>NSStoreModelVersionHashes</key><dict>\(hashes.joined())</dict></dict></plist>"
        try writer.execute("INSERT INTO Z_METADATA VALUES (1, ?1, ?2)", [.text(uuid), .blob(Array(list.utf8))])
        for statement in rows { try writer.execute(statement) }
    }

    /// Returns the difference that the audit finds, or nil.
    func audit(
        _ kind: MigratedStoreAudit.Kind = .inferred, writes: TableWrites? = nil, early: EarlyComparison? = nil
    ) throws -> AuditFailure? {
        do {
            try MigratedStoreAudit(from: old, to: new, kind: kind).check(
                before: before, after: after, writes: writes, early: early)
            return nil
        } catch let failure as AuditFailure {
            return failure
        }
    }

    func earlyComparison(_ kind: MigratedStoreAudit.Kind) throws -> EarlyComparison {
        EarlyComparison(MigratedStoreAudit(from: old, to: new, kind: kind), before: before)
    }

    /// Opens both for a comparison.
    func context() throws -> AuditContext {
        let reader = try ComparisonReader(after, beside: before)
        return try AuditContext(
            reader, search: RowSearch(reader, before: before, after: after, isCancelled: { false }), from: old, to: new,
            writes: nil)
    }

    var names: [String] {
        get throws { try FileManager.default.contentsOfDirectory(atPath: directory.path.string).sorted() }
    }
}
