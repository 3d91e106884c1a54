import SQLiteStore

/// How many objects a store has of each of its entities, those that inherit from it left out. It takes no model: the
/// entities' numbers and the name of each root's table are enough.
package struct ObjectCounts: Sendable {
    /// By entity number; an entity without a table is missing.
    private var counts: [Int64: Int64] = [:]
    private var counted: Set<Int64> = []

    package subscript(entity: CoreDataMetadata.Entity) -> Int64? {
        guard let number = entity.number, counted.contains(number) else { return nil }
        return counts[number] ?? 0
    }

    /// From here on numbers are those of persistent history's own entities, whose tables begin with another letter.
    private static let historyNumbers: Int64 = 16_000

    /// A table that can't be read is left out. Throws `StoreError` when the schema can't be.
    package init(_ reader: StoreReader, _ entities: [CoreDataMetadata.Entity]) throws {
        let tables = Set(try reader.tables().map { $0.name.uppercased() })
        let byNumber = Dictionary(
            entities.compactMap { entity in entity.number.map { ($0, entity) } },
            uniquingKeysWith: { first, _ in first })
        var members: [String: [Int64]] = [:]
        for (number, entity) in byNumber {
            var root = entity
            // What a damaged store says of parents may lead round and round.
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
