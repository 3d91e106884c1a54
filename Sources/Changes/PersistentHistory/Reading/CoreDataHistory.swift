import CoreDataStore
import ManagedObjectModels
import SQLiteStore

/// The history that Core Data itself keeps if a store's options ask for it
/// (https://developer.apple.com/documentation/coredata/persistent_history). Apple doesn't document its tables; the
/// rules were found by examining stores.
struct CoreDataHistory: HistorySource {
    let isOutdated = false
    private let reader: StoreReader
    private let identifier: String
    let entities: [Int64: CoreDataEntity]
    private let selection: String
    private let tombstones: Int

    /// Creates a source, or returns nil if the store has no such history.
    init?(_ reader: StoreReader) throws {
        guard try HistoryTables.coreDataTablesExist(reader), let store = try StoreModel(reader) else { return nil }
        self.reader = reader
        identifier = (store.metadata.uuid ?? "").lowercased()
        entities = CoreDataEntity.all(store)
        let changeColumns = try Self.columns(of: "ACHANGE", reader)
        tombstones = changeColumns.filter { $0.hasPrefix("ZTOMBSTONE") }.count
        let author = try Self.author(Self.columns(of: "ATRANSACTION", reader), reader)
        let values = (0..<tombstones).map { ", c.ZTOMBSTONE\($0)" }.joined()
        selection = """
            SELECT c.Z_PK, coalesce(t.ZTIMESTAMP, 0.0), c.ZCHANGETYPE, c.ZENTITY, c.ZENTITYPK, c.ZCOLUMNS, \(author), \
            c.ZTRANSACTIONID\(values) FROM ACHANGE AS c NOT INDEXED \
            LEFT JOIN ATRANSACTION AS t ON t.Z_PK = c.ZTRANSACTIONID
            """
    }

    private static func columns(of table: String, _ reader: StoreReader) throws -> Set<String> {
        Set(try DatabaseSchema.columns(of: table, in: reader).map(\.name))
    }

    /// Returns the SQL of a change's author. Later versions of Core Data keep names in a separate table.
    private static func author(_ columns: Set<String>, _ reader: StoreReader) throws -> String {
        let plain = columns.contains("ZAUTHOR") ? "t.ZAUTHOR" : "NULL"
        let hasStrings = try columns.contains("ZAUTHORTS") && !Self.columns(of: "ATRANSACTIONSTRING", reader).isEmpty
        guard hasStrings else { return plain }
        return "coalesce((SELECT s.ZNAME FROM ATRANSACTIONSTRING AS s WHERE s.Z_PK = t.ZAUTHORTS), \(plain))"
    }

    func summary() throws -> StoreHistory.Summary {
        // Core Data's own entities, from 16001 on, have no changes.
        let tables = Set(entities.filter { $0.key < 16_000 }.values.map(\.table)).sorted()
        let first = try reader.integer("SELECT min(Z_PK) FROM ACHANGE")
        return StoreHistory.Summary(
            kind: .coreData, token: try current(), changes: try reader.integer("SELECT count(*) FROM ACHANGE") ?? 0,
            first: try isEmpty ? nil : first, trimmed: try start().number, tables: tables, isOutdated: isOutdated,
            doubtfulTables: [], recordsImages: false, subscribers: [])
    }

    private var isEmpty: Bool { get throws { try reader.integer("SELECT 1 FROM ACHANGE LIMIT 1") == nil } }

    func current() throws -> HistoryToken {
        let last = try reader.prepare("\(selection) ORDER BY c.Z_PK DESC LIMIT 1")
        guard try last.step() else { return try start() }
        return HistoryToken(history: identifier, number: last.integer(0), nonce: Self.nonce(last))
    }

    /// Returns the position before the first change. If all changes were purged, numbering continues from the highest
    /// number that was assigned.
    func start() throws -> HistoryToken {
        let before =
            try isEmpty
            ? reader.integer("SELECT Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT = \(Self.changeEntity)") ?? 0
            : reader.integer("SELECT min(Z_PK) FROM ACHANGE").map { $0 == .min ? $0 : $0 - 1 } ?? 0
        return HistoryToken(history: identifier, number: before, nonce: 0)
    }

    /// Throws `StoreHistory.Discontinuity` if the token is no position in this history. A change's nonce is its
    /// transaction's time, which Core Data keeps to the microsecond.
    func check(_ token: HistoryToken) throws {
        guard token.history == identifier else { throw StoreHistory.Discontinuity.epoch }
        let start = try start()
        if token.number == start.number { return }
        guard token.number > start.number else { throw StoreHistory.Discontinuity.trimmed }
        let row = try reader.prepare("\(selection) WHERE c.Z_PK = \(token.number)")
        guard try row.step(), Self.nonce(row) == token.nonce else { throw StoreHistory.Discontinuity.epoch }
    }

    private static func nonce(_ row: SQLiteStatement) -> Int64 { Int64(bitPattern: row.real(1).bitPattern) }

    func forEachChange(from number: Int64, _ body: (HistoryChange) throws -> Bool) throws {
        let row = try reader.prepare("\(selection) WHERE c.Z_PK >= \(number) ORDER BY c.Z_PK")
        while try row.step() {
            guard try body(change(row)) else { return }
        }
    }

    func number(ofLast count: Int) throws -> Int64? {
        try reader.integer("SELECT min(Z_PK) FROM (SELECT Z_PK FROM ACHANGE ORDER BY Z_PK DESC LIMIT \(count))")
    }

    /// `Z_ENT` of Core Data's own entity CHANGE.
    private static let changeEntity = 16_001

    /// The seconds from 1970 to 2001, where Core Data's time begins.
    private static let referenceDate = 978_307_200.0

    private func change(_ row: SQLiteStatement) -> HistoryChange {
        let entity = entities[row.integer(3)]
        let operation = HistoryChange.Operation(rawValue: row.integer(2)) ?? .gap
        let bitmap = row.bytes(5, limit: 4096)
        var tombstone: [String: SQLiteValue] = [:]
        for index in 0..<tombstones where operation == .delete {
            let value = row.value(Int32(8 + index))
            let preserved = entity?.preserved ?? []
            if value != .null { tombstone[index < preserved.count ? preserved[index] : "\(index)"] = value }
        }
        return HistoryChange(
            number: row.integer(0), nonce: Self.nonce(row), table: entity?.table ?? "", entity: entity?.name,
            entityNumber: row.integer(3), operation: operation, key: [.integer(row.integer(4))],
            columns: operation == .update ? bitmap.flatMap { entity?.properties(in: $0) } : nil, author: row.text(6),
            time: row.real(1) + Self.referenceDate, transaction: row.integer(7), tombstone: tombstone)
    }
}

/// The facts about an entity that are needed to read its changes.
struct CoreDataEntity: Equatable {
    let name: String
    /// The table of the entity's inheritance hierarchy.
    let table: String
    /// The property that each bit of `ZCOLUMNS` stands for; nil if the model isn't known.
    private let slots: [String]?
    /// The attributes whose values are preserved in tombstones.
    let preserved: [String]

    static func all(_ store: StoreModel) -> [Int64: CoreDataEntity] {
        let known = store.metadata.entities.compactMap { entity in entity.number.map { ($0, entity) } }
        let byNumber = Dictionary(known, uniquingKeysWith: { first, _ in first })
        return byNumber.mapValues { entity in
            var root = entity
            var steps = 0
            while let parent = root.parent.flatMap({ byNumber[$0] }), steps < byNumber.count {
                root = parent
                steps += 1
            }
            return CoreDataEntity(entity.name, root: root.name, store.cachedModel)
        }
    }

    private init(_ name: String, root: String, _ model: ManagedObjectModel?) {
        self.name = name
        table = "Z" + root.uppercased()
        guard let model, let entity = model.entity(named: name) else {
            (slots, preserved) = (nil, [])
            return
        }
        let lineage = ([entity] + model.superentities(of: entity)).reversed()
        let numbers = EntityNumbers(model)
        let attributes = lineage.flatMap { owner in
            owner.attributes.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
        let relationships = lineage.flatMap { owner in
            owner.relationships.filter { !$0.isTransient }.sorted { $0.name.precedes($1.name) }
        }
        let toOne = relationships.filter { !$0.isToMany }.flatMap { owner in
            numbers.hasSubentities(owner.destinationEntityName) ? [owner.name, owner.name] : [owner.name]
        }
        slots = toOne + attributes.map(\.name) + relationships.filter(\.isToMany).map(\.name)
        preserved = attributes.filter(\.preservesValueInHistoryOnDeletion).map(\.name)
    }

    /// Returns the properties that a bitmap names; its first bit is the highest of its first byte. Returns nil if the
    /// bitmap's length doesn't fit the current model: it was written before the model changed.
    func properties(in bitmap: [UInt8]) -> [String]? {
        guard let slots, bitmap.count == (slots.count + 7) / 8 else { return nil }
        var found: [String] = []
        for (index, name) in slots.enumerated() where bitmap[index / 8] & (0x80 >> UInt8(index % 8)) != 0 {
            if found.last != name { found.append(name) }
        }
        return found
    }
}
