import ManagedObjectModels

/// An index with the name and statement that Core Data uses.
package struct IndexLayout: Equatable, Sendable {
    package let name: String
    package let table: String
    package let isUnique: Bool
    /// The columns as written in the statement: a name, or a name with collation and direction.
    package let columns: [String]
    /// The `WHERE` clause of a partial index with a leading space; empty for all rows.
    var condition = ""

    package var columnNames: [String] { columns.map { String($0.prefix { $0 != " " }) } }

    /// The `CREATE INDEX` statement, character for character.
    package var creation: String {
        "CREATE \(isUnique ? "UNIQUE " : "")INDEX \(name) ON \(table) (\(columns.joined(separator: ", ")))\(condition)"
    }
}

extension IndexLayout {
    fileprivate func renamed(_ name: String) -> IndexLayout {
        IndexLayout(name: name, table: table, isUnique: isUnique, columns: columns, condition: condition)
    }

    /// Returns true if both indexes contain the same rows in the same order.
    fileprivate func hasSameRows(as other: IndexLayout) -> Bool {
        table == other.table && columns == other.columns && condition == other.condition
    }
}

extension StoreLayout {
    /// The first version of Core Data (iOS 11, macOS 10.13) that names indexes after the entity rather than the table.
    private static let firstWithFetchIndexes: Int64 = 847

    /// The indexes as current systems create them.
    package var indexes: [IndexLayout] { indexes(ofFramework: StoreProperties.frameworkVersion) }

    /// Returns the indexes of references, hierarchies and join tables, then those that the model requests.
    ///
    /// - Parameter version: The version of Core Data in the store's metadata.
    package func indexes(ofFramework version: Int64) -> [IndexLayout] {
        var found: [IndexLayout] = []
        for table in tables { found += structuralIndexes(of: table) }
        found += joinTables.map { table in
            IndexLayout(
                name: "\(table.name)_\(table.inverse.column)_INDEX", table: table.name, isUnique: false,
                columns: [table.inverse.column, table.owner.column])
        }
        let isLegacy = version < Self.firstWithFetchIndexes
        for entity in numbers.entities { found += requestedIndexes(of: entity).map { isLegacy ? $0.legacy : $0.index } }
        return Self.unique(found, besides: tables.map(\.name) + joinTables.map(\.name))
    }

    /// Returns the indexes with unique names. A requested index with the name and content of an attribute's own index
    /// is the same index. The constraints (a, b) and (a_b) give two indexes one name, and the second gets a number, as
    /// columns do. SQLite compares names without regard to case.
    private static func unique(_ indexes: [IndexLayout], besides tables: [String]) -> [IndexLayout] {
        var made: [String: IndexLayout] = [:]
        var names = Set(tables.map { $0.lowercased() })
        return indexes.compactMap { index in
            if let same = made[index.name.lowercased()], same.isUnique || !index.isUnique, same.hasSameRows(as: index) {
                return nil
            }
            var name = index.name
            var number = 1
            while !names.insert(name.lowercased()).inserted {
                name = index.name + String(number)
                number += 1
            }
            let found = index.renamed(name)
            made[name.lowercased()] = found
            return found
        }
    }

    private func structuralIndexes(of table: TableLayout) -> [IndexLayout] {
        var columns = table.columns.filter { if case .reference = $0.content { true } else { false } }.map(\.name)
        if table.isHierarchy { columns.append("Z_ENT") }
        return columns.map {
            IndexLayout(name: "\(table.name)_\($0)_INDEX", table: table.name, isUnique: false, columns: [$0])
        }
    }

    private func requestedIndexes(of entity: EntityDescription) -> [RequestedIndex] {
        guard let table = table(of: entity.name) else { return [] }
        func index(
            _ suffix: String, _ columns: [(String, isAscending: Bool)], isUnique: Bool = false, condition: String = ""
        ) -> RequestedIndex? {
            let names = columns.compactMap { column(of: $0.0, of: entity.name)?.name }
            guard names.count == columns.count, !names.isEmpty else { return nil }
            let terms = zip(names, columns).map { "\($0) COLLATE BINARY \($1.isAscending ? "ASC" : "DESC")" }
            let index = IndexLayout(
                name: "Z_\(entity.name)_\(suffix)", table: table.name, isUnique: isUnique, columns: terms,
                condition: condition)
            return RequestedIndex(index: index, names: names)
        }
        let binary = entity.indexes.filter { $0.elements.first?.kind == .binary }
        // Xcode marks an attribute as indexed if it has an ascending index of its own, even a partial one.
        let singleAscending = Set(binary.compactMap { $0.isSingleAscending ? $0.elements[0].property : nil })
        let indexed = entity.attributes.filter { $0.isIndexed || singleAscending.contains($0.name) }.map(\.name)
        let single = indexed.map { index($0, [($0, true)]) }
        let fetch = binary.filter { !isReferenceIndex($0, of: entity) }.map { request -> RequestedIndex? in
            let columns = request.elements.map { ($0.property, $0.isAscending) }
            guard request.partialIndexPredicate != nil else { return index(request.name, columns) }
            return condition(of: request, entity).flatMap { index(request.name, columns, condition: $0) }
        }
        let compound = entity.compoundIndexes.map { names in
            index(names.joined(separator: "_"), names.map { ($0, true) })
        }
        let unique = entity.uniquenessConstraints.map { names in
            index(
                "UNIQUE_" + names.joined(separator: "_").replacing(".", with: "_"), names.map { ($0, true) },
                isUnique: true)
        }
        return (single + fetch + compound + unique).compactMap(\.self)
    }
}

extension StoreLayout {
    /// Returns the `WHERE` clause of a partial index; nil if it is unknown how Core Data writes it.
    func condition(of index: FetchIndexDescription, _ entity: EntityDescription) -> String? {
        guard let condition = index.partialIndexPredicate.flatMap(PartialIndexCondition.init) else { return nil }
        return column(of: condition.property, of: entity.name).map { condition.clause($0.name) }
    }

    /// Returns true for an index on a to-one relationship alone. The reference already has that index.
    private func isReferenceIndex(_ index: FetchIndexDescription, of entity: EntityDescription) -> Bool {
        guard index.isSingleAscending, index.partialIndexPredicate == nil,
            case .relationship? = model.property(named: index.elements[0].property, of: entity)
        else { return false }
        return true
    }
}

extension FetchIndexDescription {
    fileprivate var isSingleAscending: Bool { elements.count == 1 && elements[0].isAscending }
}

/// An index that the model requests.
private struct RequestedIndex {
    let index: IndexLayout
    /// The names of the columns.
    let names: [String]

    /// The index as Core Data created it before fetch indexes: named after the table, in SQLite's default order.
    var legacy: IndexLayout {
        // Partial indexes came with fetch indexes.
        guard !index.isUnique, index.condition.isEmpty else { return index }
        let suffix = names.count == 1 ? "_INDEX" : ""
        return IndexLayout(
            name: index.table + "_" + names.joined(separator: "_") + suffix, table: index.table, isUnique: false,
            columns: names)
    }
}
