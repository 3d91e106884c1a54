import ManagedObjectModels

extension StoreLayout {
    /// SQLite's limit of columns in a table (https://sqlite.org/limits.html).
    private static let maximumColumnCount = 2000
    private static let reservedTables: Set<String> = ["Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE"]

    /// Validates the layout. Throws `ModelFault` if SQLite would reject a table. Core Data writes names in capitals and
    /// without quotes, so two names may collide and a character may be invalid. (Of two columns, the second gets a
    /// number.)
    package func validate() throws(ModelFault) {
        do { try validateAll() } catch { throw error.coded("name_collision") }
    }

    private func validateAll() throws(ModelFault) {
        try validateNames()
        for table in tables {
            let columns = table.columnNames.count
            if columns > Self.maximumColumnCount {
                throw ModelFault(
                    entity: table.rootEntity,
                    "its table needs \(columns) columns; SQLite allows \(Self.maximumColumnCount)",
                    remedy: "reduce the entities that inherit from it, or its attributes")
            }
            if Self.reservedTables.contains(table.name) {
                throw ModelFault(
                    entity: table.rootEntity, "its table would be \(table.name), which Core Data reserves",
                    remedy: "rename the entity")
            }
        }
        try validateTables()
        try validateLinkColumns()
        try validateTriggers()
    }

    /// Rejects a many-to-many relationship within one entity whose two column names are equal in capitals. It is
    /// unknown which column Core Data numbers then, so links could be read in the wrong direction.
    private func validateLinkColumns() throws(ModelFault) {
        for table in joinTables {
            let (owner, inverse) = (table.owner, table.inverse)
            if owner.entity == inverse.entity, owner.relationship != inverse.relationship,
                owner.relationship.uppercased() == inverse.relationship.uppercased()
            {
                throw ModelFault(
                    entity: owner.entity, property: owner.relationship,
                    "its columns can't be distinguished from those of its inverse \(inverse.relationship): the names "
                        + "differ only in case",
                    remedy: "rename one of the two relationships")
            }
            guard let column = table.owner.orderColumn, column == table.inverse.orderColumn else { continue }
            throw ModelFault(
                entity: table.owner.entity, property: table.owner.relationship,
                "its order column \(column) is also that of \(table.inverse.entity)."
                    + "\(table.inverse.relationship): the names differ only in case",
                remedy: "rename one of the two relationships")
        }
    }

    private func validateTriggers() throws(ModelFault) {
        var attributes: [String: String] = [:]
        for derived in derivedAttributeTriggers {
            for trigger in derived.triggers {
                let other = attributes.updateValue(derived.name, forKey: trigger.name.lowercased())
                guard let other, other != derived.name else { continue }
                throw ModelFault(
                    entity: derived.entity, property: derived.attribute,
                    "its trigger \(trigger.name) is also that of \(other)",
                    remedy: "rename one of the two derived attributes")
            }
        }
    }

    private func validateNames() throws(ModelFault) {
        for entity in model.entities {
            if let character = entity.name.firstInvalidNameCharacter {
                throw ModelFault(
                    entity: entity.name, "its table can't be named after it: “\(character)” is not valid in a name",
                    remedy: "rename the entity: use letters, digits and underscores")
            }
            for property in entity.declaredProperties where !property.isTransient {
                guard let character = property.name.firstInvalidNameCharacter else { continue }
                throw ModelFault(
                    entity: entity.name, property: property.name,
                    "no column can be named after it: “\(character)” is not valid in a name",
                    remedy: "rename the property: use letters, digits and underscores")
            }
        }
    }

    private func validateTables() throws(ModelFault) {
        var entities: [String: String] = [:]
        for table in tables {
            if let other = entities.updateValue(table.rootEntity, forKey: table.name) {
                throw ModelFault(
                    entity: table.rootEntity,
                    "its table \(table.name) is also that of \(other): the names differ only in case",
                    remedy: "rename one of the two entities; set its renaming identifier if stores exist")
            }
        }
        var sides: [String: JoinTableLayout.Side] = [:]
        for table in joinTables {
            let side = table.owner
            if let other = sides.updateValue(side, forKey: table.name) {
                throw ModelFault(
                    entity: side.entity, property: side.relationship,
                    "its table \(table.name) is also that of \(other.entity).\(other.relationship): the names "
                        + "differ only in case",
                    remedy: "rename one of the two relationships")
            }
            if let entity = entities[table.name] {
                throw ModelFault(
                    entity: side.entity, property: side.relationship,
                    "its table \(table.name) is also that of the entity \(entity)",
                    remedy: "rename the relationship or the entity")
            }
        }
    }
}

extension String {
    /// The first character that SQLite rejects in an unquoted name (https://sqlite.org/draft/tokenreq.html).
    fileprivate var firstInvalidNameCharacter: Character? {
        first { character in
            character.unicodeScalars.contains { scalar in
                guard scalar.isASCII else { return false }
                let isLetter = ("a"..."z").contains(scalar) || ("A"..."Z").contains(scalar)
                return !(isLetter || ("0"..."9").contains(scalar) || scalar == "_" || scalar == "$")
            }
        }
    }
}
