import FoundationEssentials
import ManagedObjectModels
import SQLiteStore

/// Holds Core Data's own tables against the store's: the entities' numbers, the highest keys, the store's identity.
struct BookkeepingCheck {
    let context: AuditContext
    let isInferred: Bool
    private static let longestPropertyList = 16 << 20

    func check() throws {
        try checkEntities()
        try checkMetadata()
        try checkModelCache()
        for pragma in ["application_id", "user_version", "auto_vacuum", "encoding"] where isInferred {
            let was = try context.shown("PRAGMA was.\(pragma)")
            let now = try context.shown("PRAGMA main.\(pragma)")
            guard was == now else { throw AuditFailure(property: pragma, expected: was, found: now) }
        }
    }

    // MARK: Z_PRIMARYKEY

    private func checkEntities() throws {
        let tree = context.new.tree
        let rows = try context.reader.prepare("SELECT Z_ENT, Z_SUPER, Z_MAX FROM main.Z_PRIMARYKEY ORDER BY Z_ENT")
        var seen: Set<Int64> = []
        while try rows.step() {
            let number = rows.integer(0)
            // Those of persistent history and of synchronization have numbers of their own.
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
        // The framework's own entities.
        let lost = try context.integer(
            "SELECT w.Z_ENT FROM was.Z_PRIMARYKEY AS w LEFT JOIN main.Z_PRIMARYKEY AS n ON n.Z_ENT = w.Z_ENT "
                + "WHERE w.Z_ENT >= 16000 AND (n.Z_ENT IS NULL OR n.Z_NAME IS NOT w.Z_NAME OR n.Z_MAX < w.Z_MAX)")
        if let lost {
            throw AuditFailure(property: "Z_PRIMARYKEY", expected: "entity \(lost) as it was", found: "another")
        }
    }

    private func checkHighestKey(of root: String, _ found: Int64) throws {
        let tree = context.new.tree
        let highest = try context.integer("SELECT max(Z_PK) FROM \(context.now.qualified(tree.table(of: root)))") ?? 0
        var least = highest
        let survivors = isInferred ? context.pairing.survivors(among: tree.family(of: root)) : []
        for number in Set(survivors.map { context.old.tree.number(of: context.old.tree.root(of: $0.old)) }) {
            // A key that a deleted object had is not given to another one.
            least = max(least, try context.integer("SELECT Z_MAX FROM was.Z_PRIMARYKEY WHERE Z_ENT = \(number)") ?? 0)
        }
        guard found >= least else {
            throw AuditFailure(entity: root, property: "Z_MAX", expected: "\(least) at least", found: "\(found)")
        }
    }

    // MARK: Z_METADATA

    private func checkMetadata() throws {
        let (was, now) = (try metadata("was"), try metadata("main"))
        guard was.row == now.row else {
            throw AuditFailure(
                property: "Z_UUID", expected: was.row.joined(separator: ", "), found: now.row.joined(separator: ", "))
        }
        for (key, value) in (was.list ?? [:]).sorted(by: { $0.key < $1.key }) where !Self.isOfTheModel(key) {
            guard now.list?[key] == value else {
                throw AuditFailure(property: "Z_METADATA", expected: "the key \(key) as it was", found: "another value")
            }
        }
        if isInferred,
            let added = now.list?.keys.sorted().first(where: { was.list?[$0] == nil && !Self.isOfTheModel($0) }),
            was.list != nil
        {
            throw AuditFailure(property: "Z_METADATA", expected: "no key \(added)", found: "one")
        }
        let hashes = context.new.tree.model.entityVersionHashesByName.mapValues { PropertyList.data(Data($0)) }
        guard now.list?["NSStoreModelVersionHashes"] == .dictionary(hashes) else {
            throw AuditFailure(property: "Z_METADATA", expected: "the new model's version hashes", found: "others")
        }
        for (key, value) in [
            ("NSStoreModelVersionHashesDigest", context.new.tree.model.versionHashesDigest),
            ("NSStoreModelVersionChecksumKey", context.new.tree.model.versionChecksum),
        ] {
            guard let found = now.list?[key] else { continue }
            guard found == .string(value) else {
                throw AuditFailure(property: "Z_METADATA", expected: "the new model's \(key)", found: "another")
            }
        }
    }

    private static func isOfTheModel(_ key: String) -> Bool {
        key.hasPrefix("NSStoreModelVersion") || key.hasPrefix("NSPersistence") && key.hasSuffix("Version")
    }

    private func metadata(_ database: String) throws -> (row: [String], list: [String: PropertyList]?) {
        let rows = try context.reader.prepare("SELECT Z_VERSION, Z_UUID, Z_PLIST FROM \(database).Z_METADATA LIMIT 1")
        guard try rows.step() else { return ([], nil) }
        let row = [rows.text(0) ?? "NULL", rows.text(1) ?? "NULL"]
        guard let bytes = rows.bytes(2, limit: Self.longestPropertyList), PropertyListNesting.isBounded(bytes) else {
            return (row, nil)
        }
        return (row, try? PropertyListDecoder().decode([String: PropertyList].self, from: Data(bytes)))
    }

    // MARK: Z_MODELCACHE

    private func checkModelCache() throws {
        guard context.now.table("Z_MODELCACHE") != nil else { return }
        let rows = try context.reader.prepare("SELECT Z_CONTENT FROM main.Z_MODELCACHE LIMIT 1")
        guard try rows.step(), let content = rows.bytes(0, limit: ModelCache.largestContent) else { return }
        let cached = try? ModelCache.model(content, of: context.reader.path)
        guard cached?.entityVersionHashesByName == context.new.tree.model.entityVersionHashesByName else {
            throw AuditFailure(property: "Z_MODELCACHE", expected: "the new model", found: "another")
        }
    }
}

/// Any property list, read to be compared.
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
        let value = try decoder.singleValueContainer()
        if let one = try? value.decode(String.self) {
            self = .string(one)
        } else if let one = try? value.decode(Data.self) {
            self = .data(one)
        } else if let one = try? value.decode(Date.self) {
            self = .date(one)
        } else if let one = try? value.decode(Bool.self) {
            self = .boolean(one)
        } else if let one = try? value.decode(Int64.self) {
            self = .integer(one)
        } else if let one = try? value.decode(UInt64.self) {
            self = .unsigned(one)
        } else if let one = try? value.decode(Double.self) {
            self = .real(one)
        } else if let one = try? value.decode([String: PropertyList].self) {
            self = .dictionary(one)
        } else {
            self = .array(try value.decode([PropertyList].self))
        }
    }
}
