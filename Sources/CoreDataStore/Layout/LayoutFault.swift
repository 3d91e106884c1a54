import ManagedObjectModels

extension StoreLayout {
    /// SQLite's limit (https://sqlite.org/limits.html).
    private static let mostColumns = 2000
    private static let reservedTables: Set<String> = ["Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE"]

    /// Throws `ModelFault` where SQLite would refuse a table: Core Data writes names in capitals and without quotes, so that
    /// two may be the same, and a sign may be none of a name's. (Of two columns, the second one gets a number.)
    package func check() throws(ModelFault) {
        try checkNames()
        for table in tables {
            let columns = table.columnNames.count
            if columns > Self.mostColumns {
                throw ModelFault(
                    entity: table.rootEntity,
                    "its table needs \(columns) columns, and SQLite has \(Self.mostColumns) at most",
                    remedy: "let fewer entities inherit from it, or give it fewer attributes")
            }
            if Self.reservedTables.contains(table.name) {
                throw ModelFault(
                    entity: table.rootEntity, "its table is \(table.name), which is Core Data's own",
                    remedy: "rename the entity")
            }
        }
        try checkTables()
        try checkLinkColumns()
        try checkTriggers()
    }

    /// Both ends of a many-to-many relationship may be of one entity. Which of two columns then gets the number where their
    /// names are one in capitals isn't known of Core Data: links could be read the wrong way round.
    private func checkLinkColumns() throws(ModelFault) {
        for table in joinTables {
            let (owner, inverse) = (table.owner, table.inverse)
            if owner.entity == inverse.entity, owner.relationship != inverse.relationship,
                owner.relationship.uppercased() == inverse.relationship.uppercased()
            {
                throw ModelFault(
                    entity: owner.entity, property: owner.relationship,
                    "its columns can't be told from those of its inverse \(inverse.relationship): the names differ in case "
                        + "only",
                    remedy: "rename one of the two relationships")
            }
            guard let column = table.owner.orderColumn, column == table.inverse.orderColumn else { continue }
            throw ModelFault(
                entity: table.owner.entity, property: table.owner.relationship,
                "its column of places is \(column), which is that of \(table.inverse.entity)."
                    + "\(table.inverse.relationship) too: the names differ in case only",
                remedy: "rename one of the two relationships")
        }
    }

    private func checkTriggers() throws(ModelFault) {
        var attributes: [String: String] = [:]
        for derived in derivedAttributeTriggers {
            for trigger in derived.triggers {
                let other = attributes.updateValue(derived.name, forKey: trigger.name.lowercased())
                guard let other, other != derived.name else { continue }
                throw ModelFault(
                    entity: derived.entity, property: derived.attribute,
                    "its trigger is \(trigger.name), which is that of \(other) too",
                    remedy: "rename one of the two derived attributes")
            }
        }
    }

    private func checkNames() throws(ModelFault) {
        for entity in model.entities {
            if let sign = entity.name.signOfNoName {
                throw ModelFault(
                    entity: entity.name, "its table can't be named after it: “\(sign)” is no part of a name",
                    remedy: "rename the entity: letters, digits and underscores will do")
            }
            for property in entity.declaredProperties where !property.isTransient {
                guard let sign = property.name.signOfNoName else { continue }
                throw ModelFault(
                    entity: entity.name, property: property.name,
                    "no column can be named after it: “\(sign)” is no part of a name",
                    remedy: "rename the property: letters, digits and underscores will do")
            }
        }
    }

    private func checkTables() throws(ModelFault) {
        var entities: [String: String] = [:]
        for table in tables {
            if let other = entities.updateValue(table.rootEntity, forKey: table.name) {
                throw ModelFault(
                    entity: table.rootEntity,
                    "its table is \(table.name), which is that of \(other) too: the names differ in case only",
                    remedy: "rename one of the two entities, with a renaming identifier where there are stores")
            }
        }
        var sides: [String: JoinTableLayout.Side] = [:]
        for table in joinTables {
            let side = table.owner
            if let other = sides.updateValue(side, forKey: table.name) {
                throw ModelFault(
                    entity: side.entity, property: side.relationship,
                    "its table is \(table.name), which is that of \(other.entity).\(other.relationship) too: the names "
                        + "differ in case only",
                    remedy: "rename one of the two relationships")
            }
            if let entity = entities[table.name] {
                throw ModelFault(
                    entity: side.entity, property: side.relationship,
                    "its table is \(table.name), which is that of the entity \(entity) too",
                    remedy: "rename the relationship or the entity")
            }
        }
    }
}

extension String {
    /// The first character that SQLite doesn't take in a name without quotes (https://sqlite.org/draft/tokenreq.html).
    fileprivate var signOfNoName: Character? {
        first { character in
            character.unicodeScalars.contains { scalar in
                guard scalar.isASCII else { return false }
                let isLetter = ("a"..."z").contains(scalar) || ("A"..."Z").contains(scalar)
                return !(isLetter || ("0"..."9").contains(scalar) || scalar == "_" || scalar == "$")
            }
        }
    }
}
