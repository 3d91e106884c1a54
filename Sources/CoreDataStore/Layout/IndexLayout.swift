import ManagedObjectModels

/// An index that Core Data makes, named and written as it does.
package struct IndexLayout: Equatable, Sendable {
    package let name: String
    package let table: String
    package let isUnique: Bool
    /// Each as it stands in the statement: a name, or a name with collation and direction.
    package let columns: [String]
    /// Of which rows it is, as it stands behind the columns; empty for all.
    var condition = ""

    package var columnNames: [String] { columns.map { String($0.prefix { $0 != " " }) } }

    /// The statement, character for character.
    package var creation: String {
        "CREATE \(isUnique ? "UNIQUE " : "")INDEX \(name) ON \(table) (\(columns.joined(separator: ", ")))\(condition)"
    }
}

extension IndexLayout {
    fileprivate func named(_ name: String) -> IndexLayout {
        IndexLayout(name: name, table: table, isUnique: isUnique, columns: columns, condition: condition)
    }

    /// Whether the two find the same rows in the same order.
    fileprivate func hasSameRows(as other: IndexLayout) -> Bool {
        table == other.table && columns == other.columns && condition == other.condition
    }
}

extension StoreLayout {
    /// From this version of Core Data on (iOS 11, macOS 10.13) an index goes by its entity's name, not by its table's.
    private static let firstWithFetchIndexes: Int64 = 847

    /// As current systems make them.
    package var indexes: [IndexLayout] { indexes(ofFramework: StoreProperties.frameworkVersion) }

    /// Those of references, of hierarchies and of join tables, then those that the model asks for.
    ///
    /// - Parameter version: Core Data's own, as the store's metadata have it.
    package func indexes(ofFramework version: Int64) -> [IndexLayout] {
        var found: [IndexLayout] = []
        for table in tables { found += structuralIndexes(of: table) }
        found += joinTables.map { table in
            IndexLayout(
                name: "\(table.name)_\(table.inverse.column)_INDEX", table: table.name, isUnique: false,
                columns: [table.inverse.column, table.owner.column])
        }
        let isOld = version < Self.firstWithFetchIndexes
        for entity in numbers.entities { found += requestedIndexes(of: entity).map { isOld ? $0.asBefore : $0.index } }
        return Self.unique(found, besides: tables.map(\.name) + joinTables.map(\.name))
    }

    /// A model's index may have the name that an attribute's own gets: then it is the same one. The constraints (a, b) and
    /// (a_b) give one name to two indexes: the second one gets a number, as columns do. SQLite's names differ by more than
    /// case.
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
            let found = index.named(name)
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
        // Xcode marks an attribute as indexed that has an ascending index for itself, be it of some objects only.
        let alone = Set(binary.compactMap { $0.isAscendingOfOne ? $0.elements[0].property : nil })
        let marked = entity.attributes.filter { $0.isIndexed || alone.contains($0.name) }.map(\.name)
        let single = marked.map { index($0, [($0, true)]) }
        let fetch = binary.filter { !isForeignKeys($0, of: entity) }.map { one -> RequestedIndex? in
            let columns = one.elements.map { ($0.property, $0.isAscending) }
            guard one.partialIndexPredicate != nil else { return index(one.name, columns) }
            return condition(of: one, entity).flatMap { index(one.name, columns, condition: $0) }
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
    /// Nil where it isn't known how Core Data writes it.
    func condition(of index: FetchIndexDescription, _ entity: EntityDescription) -> String? {
        guard let condition = index.partialIndexPredicate.flatMap(PartialIndexCondition.init) else { return nil }
        return column(of: condition.property, of: entity.name).map { condition.text($0.name) }
    }

    /// A to-one relationship has an index already.
    private func isForeignKeys(_ index: FetchIndexDescription, of entity: EntityDescription) -> Bool {
        guard index.isAscendingOfOne, index.partialIndexPredicate == nil,
            case .relationship? = model.property(named: index.elements[0].property, of: entity)
        else { return false }
        return true
    }
}

extension FetchIndexDescription {
    fileprivate var isAscendingOfOne: Bool { elements.count == 1 && elements[0].isAscending }
}

/// An index that the model asks for.
private struct RequestedIndex {
    let index: IndexLayout
    /// The columns'.
    let names: [String]

    /// As Core Data made it before fetch indexes: named after the table, in no other order than SQLite's.
    var asBefore: IndexLayout {
        // Indexes of some objects only came with fetch indexes.
        guard !index.isUnique, index.condition.isEmpty else { return index }
        let suffix = names.count == 1 ? "_INDEX" : ""
        return IndexLayout(
            name: index.table + "_" + names.joined(separator: "_") + suffix, table: index.table, isUnique: false,
            columns: names)
    }
}
