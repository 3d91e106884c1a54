import ManagedObjectModel

extension StoreLayout {
    /// Throws `ModelFault` where two tables would have the same name: Core Data names them in capitals, and then SQLite
    /// refuses the second one. (Of columns, the second one gets a number.)
    package func check() throws(ModelFault) {
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
