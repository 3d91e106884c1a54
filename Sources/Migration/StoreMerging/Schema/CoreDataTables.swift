import CoreDataStore
import ManagedObjectModels
import SQLiteStore
import StoreRelocation

/// The tables that a Core Data model describes.
struct CoreDataTables {
    let layout: StoreLayout
    /// The layout with the legacy store's names of join tables.
    let legacyLayout: StoreLayout
    let group: DatabaseSchema
    let legacy: DatabaseSchema

    private var model: ManagedObjectModel { layout.model }

    /// The tables of the group's store that the model describes.
    var names: [String] { layout.tables.map(\.name) + layout.joinTables.map(\.name) }

    func add(to schema: inout MergeSchema) throws {
        try check()
        for table in layout.tables { schema.tables.append(make(table)) }
        for index in layout.tables.indices { resolveReferences(of: index, in: &schema) }
        for join in layout.joinTables {
            // The two stores' frameworks may have named and ordered their tables by different rules.
            guard let first = tableIndex(of: join.owner.entity), let second = tableIndex(of: join.inverse.entity),
                let other = legacyLayout.joinTables.first(where: { $0.joinsSame(as: join) })
            else { continue }
            schema.joinTables.append(
                MergeJoinTable(
                    name: join.name, legacyName: other.name,
                    relationship: join.owner.entity + "." + join.owner.relationship,
                    sides: [
                        MergeJoinTable.Side(
                            column: join.owner.column, table: first, order: join.owner.orderColumn),
                        MergeJoinTable.Side(
                            column: join.inverse.column, table: second, order: join.inverse.orderColumn),
                    ]))
        }
        schema.pairs = pairs()
        schema.layout = layout
    }

    /// Throws `RelocationFailure` unless both stores have the model's tables with equal columns.
    private func check() throws {
        for (stored, layout, side) in [(group, layout, "group's store"), (legacy, legacyLayout, "legacy store")] {
            func check(_ table: String, _ columns: [String]) throws {
                guard let found = stored.table(table) else {
                    throw RelocationFailure.schemasDiffer("the \(side) has no table \(table)")
                }
                for column in columns where found.column(column) == nil {
                    throw RelocationFailure.schemasDiffer("the \(side)'s table \(table) has no column \(column)")
                }
            }
            for table in layout.tables { try check(table.name, table.columnNames) }
            for table in layout.joinTables {
                try check(
                    table.name,
                    [table.owner.column, table.inverse.column]
                        + [table.owner.orderColumn, table.inverse.orderColumn].compactMap(\.self))
            }
        }
        for table in layout.tables {
            guard let one = group.table(table.name), let other = legacy.table(table.name) else { continue }
            for (first, second, side) in [(one, other, "legacy store"), (other, one, "group's store")] {
                for column in first.assignableColumns where second.column(column.name) == nil {
                    throw RelocationFailure.schemasDiffer(
                        "the \(side)'s table \(table.name) has no column \(column.name)")
                }
            }
        }
    }

    private func tableIndex(of entity: String) -> Int? {
        guard let table = layout.table(of: entity) else { return nil }
        return layout.tables.firstIndex { $0.name == table.name }
    }

    private func members(of table: TableLayout) -> [EntityDescription] {
        layout.numbers.entities.filter { model.rootEntity(of: $0).name == table.rootEntity }
    }

    private func make(_ table: TableLayout) -> MergeTable {
        let byName = Dictionary(
            table.columns.map { ($0.name.uppercased(), $0) }, uniquingKeysWith: { first, _ in first })
        let entities = members(of: table)
        let stored = group.table(table.name)?.assignableColumns ?? []
        let columns = stored.map { column in
            var made = MergeTable.Column(
                name: column.name, legacyName: legacy.table(table.name)?.column(column.name)?.name ?? column.name,
                role: .value)
            switch column.name.uppercased() {
            case "Z_PK": made.role = .number
            case "Z_ENT": made.role = .entity
            case "Z_OPT": made.role = .version
            default:
                guard let known = byName[column.name.uppercased()] else { break }
                made.role = role(of: known, in: table)
                for entity in entities {
                    made.properties[layout.numbers.number(of: entity.name)] = property(of: known)
                }
            }
            return made
        }
        return MergeTable(
            name: table.name, legacyName: legacy.table(table.name)?.name ?? table.name, isCoreData: true,
            isWithoutRowid: false, number: "Z_PK", legacyNumber: "Z_PK", hasVisibleNumber: true, primaryKey: [],
            isAutoincrement: false, columns: columns,
            entities: entities.map { entity in
                MergeTable.Entity(
                    number: layout.numbers.number(of: entity.name), name: entity.name, rules: constraints(of: entity))
            })
    }

    private func property(of column: ColumnLayout) -> String {
        switch column.content {
        case .attribute(_, let path): path.joined(separator: ".")
        case .reference(_, let name), .referencedEntity(_, let name), .order(_, let name): name
        }
    }

    private func role(of column: ColumnLayout, in table: TableLayout) -> MergeTable.Column.Role {
        switch column.content {
        case .attribute(let entity, let path):
            guard let attribute = model.attribute(at: path, of: entity) else { return .value }
            if attribute.derivation != nil { return .derived }
            return attribute.allowsExternalBinaryDataStorage ? .external : .value
        case .referencedEntity: return .derived
        case .reference: return .value
        case .order(let entity, let name):
            let reference = table.columns.first { $0.content == .reference(entity: entity, name: name) }
            return reference.map { .order(of: $0.name) } ?? .value
        }
    }

    private func resolveReferences(of index: Int, in schema: inout MergeSchema) {
        for column in layout.tables[index].columns {
            guard case .reference(let owner, let name) = column.content,
                case .relationship(let relationship)? = model.entity(named: owner).flatMap({
                    model.property(named: name, of: $0)
                }),
                // A to-many relationship without an inverse is stored in the destination, by the owner's number.
                let target = tableIndex(of: relationship.isToMany ? owner : relationship.destinationEntityName),
                let place = schema.tables[index].columns.firstIndex(where: { $0.name == column.name })
            else { continue }
            schema.tables[index].columns[place].role = .reference(target)
            schema.tables[index].columns[place].companion =
                layout.tables[index].columns.first { $0.content == .referencedEntity(entity: owner, name: name) }?.name
        }
    }

    /// Returns the rules of the constraints of an entity and its ancestors.
    private func constraints(of entity: EntityDescription) -> [MergeTable.Rule] {
        ([entity] + model.superentities(of: entity)).flatMap { owner in
            owner.uniquenessConstraints.compactMap { rule(of: $0, declaredBy: owner.name) }
        }
    }

    private func rule(of properties: [String], declaredBy entity: String) -> MergeTable.Rule? {
        let columns = properties.compactMap { layout.column(of: $0, of: entity)?.name }
        guard columns.count == properties.count, !columns.isEmpty else { return nil }
        let family = layout.numbers.family(of: entity).map(layout.numbers.number)
        return MergeTable.Rule(entities: family.sorted(), columns: columns, properties: properties)
    }

    // MARK: One-to-one relationships

    private func pairs() -> [MergeSchema.Pair] {
        var found: [MergeSchema.Pair] = []
        for entity in layout.numbers.entities {
            for relationship in entity.relationships where !relationship.isToMany && !relationship.isTransient {
                guard let inverse = model.inverse(of: relationship), !inverse.isToMany, !inverse.isTransient,
                    let table = tableIndex(of: entity.name),
                    let column = layout.column(of: relationship.name, of: entity.name)?.name,
                    let other = tableIndex(of: relationship.destinationEntityName),
                    let otherColumn = layout.column(of: inverse.name, of: relationship.destinationEntityName)?.name
                else { continue }
                found.append(
                    MergeSchema.Pair(
                        table: table, column: column,
                        entities: layout.numbers.family(of: entity.name).map(layout.numbers.number), otherTable: other,
                        otherColumn: otherColumn, isMandatory: !relationship.isOptional,
                        name: entity.name + "." + relationship.name))
            }
        }
        return found
    }
}

extension CoreDataTables {
    /// Applies the keys that the user names for entities. Returns the names that belong to entities.
    func apply(_ keys: [MergeKey], to schema: inout MergeSchema) throws -> Set<String> {
        var named: [String: MergeKey] = [:]
        for key in keys where model.entity(named: key.name) != nil { named[key.name] = key }
        /// The nearest entity with a key: the entity itself or an ancestor.
        func owner(of entity: EntityDescription) -> String? {
            ([entity] + model.superentities(of: entity)).map(\.name).first { named[$0] != nil }
        }
        for (name, key) in named {
            let columns = try key.properties.map { try column(of: $0, of: name) }
            let subjects = layout.numbers.family(of: name).compactMap(model.entity(named:)).filter {
                owner(of: $0) == name
            }
            let rule = MergeTable.Rule(
                entities: subjects.map { layout.numbers.number(of: $0.name) }.sorted(), columns: columns,
                properties: key.properties)
            guard let table = tableIndex(of: name) else { continue }
            for index in schema.tables[table].entities.indices {
                guard subjects.contains(where: { $0.name == schema.tables[table].entities[index].name }) else {
                    continue
                }
                schema.tables[table].entities[index].rules = key.comparesWholeObjects ? [] : [rule]
                schema.tables[table].entities[index].comparesWholeRows = key.comparesWholeObjects
            }
        }
        return Set(named.keys)
    }

    private func column(of property: String, of entity: String) throws -> String {
        func refuse(_ reason: String) -> RelocationFailure {
            .merge(
                "unknown_merge_key", "\(entity).\(property) can't be part of a key: \(reason)",
                remedy: "name stored attributes or to-one relationships: --merge-key \(entity)=NAME[,NAME…]")
        }
        guard let description = model.entity(named: entity),
            let found = model.property(named: property, of: description)
        else { throw refuse("the entity has no such property") }
        switch found {
        case .attribute(let attribute):
            if attribute.isTransient { throw refuse("it isn't stored") }
            if attribute.derivation != nil { throw refuse("it is derived") }
            if attribute.allowsExternalBinaryDataStorage { throw refuse("its data may be in external files") }
            if [.composite, .transformable, .undefined, .objectID].contains(attribute.type) {
                throw refuse("its type has no comparable value")
            }
        case .relationship(let relationship):
            if relationship.isToMany { throw refuse("it is a to-many relationship") }
            if relationship.isTransient { throw refuse("it isn't stored") }
        case .fetched: throw refuse("it is a fetched property")
        }
        guard let column = layout.column(of: property, of: entity) else { throw refuse("it has no column") }
        return column.name
    }

    /// Returns the column of an attribute in each entity that has it, by the entity's number.
    func columns(ofAttribute name: String, in table: MergeTable) -> [Int64: String] {
        var found: [Int64: String] = [:]
        for entity in table.entities {
            guard let description = entity.name.flatMap(model.entity(named:)),
                case .attribute(let attribute)? = model.property(named: name, of: description), !attribute.isTransient,
                let column = layout.column(of: name, of: description.name)
            else { continue }
            found[entity.number] = column.name
        }
        return found
    }
}
