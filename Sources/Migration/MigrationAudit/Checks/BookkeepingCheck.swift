import FoundationEssentials
import ManagedObjectModels
import PropertyLists
import SQLiteStore
import XMLDocuments

/// A check of Core Data's own tables: entity numbers, highest keys and the store's identity.
struct BookkeepingCheck {
    let context: AuditContext
    let isInferred: Bool

    func check() throws {
        try checkEntities()
        try checkMetadata()
        try checkModelCache()
        for pragma in ["application_id", "user_version", "auto_vacuum", "encoding"] where isInferred {
            let old = try context.displayText("PRAGMA was.\(pragma)")
            let new = try context.displayText("PRAGMA main.\(pragma)")
            guard old == new else { throw AuditFailure(property: pragma, expected: old, found: new) }
        }
    }

    // MARK: Z_PRIMARYKEY

    private func checkEntities() throws {
        let tree = context.newLayout.tree
        let rows = try context.reader.prepare("SELECT Z_ENT, Z_SUPER, Z_MAX FROM main.Z_PRIMARYKEY ORDER BY Z_ENT")
        var seen: Set<Int64> = []
        while try rows.step() {
            let number = rows.integer(0)
            // The entities of persistent history and synchronization have a number range of their own.
            guard let name = tree.name(of: number) else { continue }
            seen.insert(number)
            let parent = tree.model.entity(named: name)?.superentityName.map(tree.number(of:)) ?? 0
            guard rows.integer(1) == parent else {
                throw AuditFailure(
                    entity: name, property: "Z_SUPER", expected: "\(parent)", found: "\(rows.integer(1))")
            }
            if parent == 0 { try checkHighestKey(of: name, rows.integer(2)) }
        }
        for name in tree.names where !seen.contains(tree.number(of: name)) {
            throw AuditFailure(entity: name, property: "Z_ENT", expected: "its row in Z_PRIMARYKEY", found: "none")
        }
        guard isInferred else { return }
        // The entities of the framework.
        let lost = try context.integer(
            "SELECT w.Z_ENT FROM was.Z_PRIMARYKEY AS w LEFT JOIN main.Z_PRIMARYKEY AS n ON n.Z_ENT = w.Z_ENT "
                + "WHERE w.Z_ENT >= 16000 AND (n.Z_ENT IS NULL OR n.Z_NAME IS NOT w.Z_NAME OR n.Z_MAX < w.Z_MAX)")
        if let lost {
            throw AuditFailure(property: "Z_PRIMARYKEY", expected: "entity \(lost) unchanged", found: "a change")
        }
    }

    private func checkHighestKey(of root: String, _ found: Int64) throws {
        let tree = context.newLayout.tree
        let highest =
            try context.integer("SELECT max(Z_PK) FROM \(context.newSchema.qualified(tree.table(of: root)))") ?? 0
        var least = highest
        let survivors = isInferred ? context.pairing.survivors(among: tree.family(of: root)) : []
        for number in Set(survivors.map { context.oldLayout.tree.number(of: context.oldLayout.tree.root(of: $0.old)) })
        {
            // The key of a deleted object is not reused.
            least = max(least, try context.integer("SELECT Z_MAX FROM was.Z_PRIMARYKEY WHERE Z_ENT = \(number)") ?? 0)
        }
        guard found >= least else {
            throw AuditFailure(entity: root, property: "Z_MAX", expected: "at least \(least)", found: "\(found)")
        }
    }

    // MARK: Z_METADATA

    private func checkMetadata() throws {
        let (old, new) = (try metadata("was"), try metadata("main"))
        guard old.row == new.row else {
            throw AuditFailure(
                property: "Z_UUID", expected: old.row.joined(separator: ", "), found: new.row.joined(separator: ", "))
        }
        for (key, value) in (old.list ?? [:]).sorted(by: { $0.key < $1.key }) where !Self.isModelKey(key) {
            guard new.list?[key] == value else {
                throw AuditFailure(property: "Z_METADATA", expected: "the key \(key) unchanged", found: "another value")
            }
        }
        if isInferred,
            let added = new.list?.keys.sorted().first(where: { old.list?[$0] == nil && !Self.isModelKey($0) }),
            old.list != nil
        {
            throw AuditFailure(property: "Z_METADATA", expected: "no key \(added)", found: "one")
        }
        let hashes = context.newLayout.tree.model.entityVersionHashesByName.mapValues { PropertyList.data(Data($0)) }
        guard new.list?["NSStoreModelVersionHashes"] == .dictionary(hashes) else {
            throw AuditFailure(property: "Z_METADATA", expected: "the new model's version hashes", found: "others")
        }
        for (key, value) in [
            ("NSStoreModelVersionHashesDigest", context.newLayout.tree.model.versionHashesDigest),
            ("NSStoreModelVersionChecksumKey", context.newLayout.tree.model.versionChecksum),
        ] {
            guard let found = new.list?[key] else { continue }
            guard found == .string(value) else {
                throw AuditFailure(property: "Z_METADATA", expected: "the new model's \(key)", found: "another")
            }
        }
    }

    /// Returns true for a key that Core Data writes for a model.
    private static func isModelKey(_ key: String) -> Bool {
        key.hasPrefix("NSStoreModelVersion") || key.hasPrefix("NSPersistence") && key.hasSuffix("Version")
    }

    private func metadata(_ database: String) throws -> (row: [String], list: [String: PropertyList]?) {
        let rows = try context.reader.prepare("SELECT Z_VERSION, Z_UUID, Z_PLIST FROM \(database).Z_METADATA LIMIT 1")
        guard try rows.step() else { return ([], nil) }
        let row = [rows.text(0) ?? "NULL", rows.text(1) ?? "NULL"]
        guard let bytes = rows.bytes(2, limit: PropertyListValue.maximumSize),
            (try? PropertyListValue(parsing: bytes)) != nil
        else {
            return (row, nil)
        }
        // The values come from Foundation's decoder: a value that PropertyLists loses would be missing in what the
        // migration wrote and in what the audit compares it with. PropertyLists only rejects what is nested too deeply.
        return (row, try? PropertyListDecoder().decode([String: PropertyList].self, from: Data(bytes)))
    }

    // MARK: Z_MODELCACHE

    private func checkModelCache() throws {
        guard context.newSchema.table("Z_MODELCACHE") != nil else { return }
        let rows = try context.reader.prepare("SELECT Z_CONTENT FROM main.Z_MODELCACHE LIMIT 1")
        guard try rows.step(), let content = rows.bytes(0, limit: ModelCache.maximumContentSize) else { return }
        let cached = try? ModelCache.model(content, of: context.reader.path)
        guard cached?.entityVersionHashesByName == context.newLayout.tree.model.entityVersionHashesByName else {
            throw AuditFailure(property: "Z_MODELCACHE", expected: "the new model", found: "another")
        }
    }
}

/// A property list that can be compared.
private enum PropertyList: Decodable, Equatable {
    case boolean(Bool)
    case integer(Int64)
    case unsigned(UInt64)
    case real(Double)
    case string(String)
    case date(Date)
    case data(Data)
    case array([PropertyList])
    case dictionary([String: PropertyList])

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode(Data.self) {
            self = .data(value)
        } else if let value = try? container.decode(Date.self) {
            self = .date(value)
        } else if let value = try? container.decode(Bool.self) {
            self = .boolean(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(UInt64.self) {
            self = .unsigned(value)
        } else if let value = try? container.decode(Double.self) {
            self = .real(value)
        } else if let value = try? container.decode([String: PropertyList].self) {
            self = .dictionary(value)
        } else {
            self = .array(try container.decode([PropertyList].self))
        }
    }
}
