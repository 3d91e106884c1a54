import SQLiteStore

/// The number of objects of each entity in a store, without those of subentities. It needs no model: the entity numbers
/// and the name of each root's table are enough.
package struct ObjectCounts: Sendable {
    /// The counts by entity number.
    private var counts: [Int64: Int64] = [:]
    /// The numbers of the entities whose tables were read.
    private var counted: Set<Int64> = []

    /// The number of objects; nil if the entity's table couldn't be read.
    package subscript(entity: CoreDataMetadata.Entity) -> Int64? {
        guard let number = entity.number, counted.contains(number) else { return nil }
        return counts[number] ?? 0
    }

    /// The first number of persistent history's own entities, whose tables begin with “A”.
    private static let historyNumbers: Int64 = 16_000

    /// Counts the objects. It skips a table that can't be read. Throws `StoreError` if the schema can't be read.
    package init(_ reader: StoreReader, _ entities: [CoreDataMetadata.Entity]) throws {
        let tables = Set(try DatabaseSchema(reader).tables.map { $0.name.uppercased() })
        let byNumber = Dictionary(
            entities.compactMap { entity in entity.number.map { ($0, entity) } },
            uniquingKeysWith: { first, _ in first })
        var members: [String: [Int64]] = [:]
        for (number, entity) in byNumber {
            var root = entity
            // The parents in a damaged store may form a cycle.
            for _ in byNumber {
                guard let parent = root.parent.flatMap({ byNumber[$0] }) else { break }
                root = parent
            }
            let letter = number >= Self.historyNumbers ? "A" : "Z"
            members[letter + root.name.uppercased(), default: []].append(number)
        }
        for (table, numbers) in members where tables.contains(table) {
            do {
                let rows = try reader.prepare(
                    "SELECT Z_ENT, count(*) FROM \(table.sqlName) NOT INDEXED GROUP BY Z_ENT")
                while try rows.step() { counts[rows.integer(0)] = rows.integer(1) }
                counted.formUnion(numbers)
            } catch is StoreError {
                continue
            }
        }
    }
}
