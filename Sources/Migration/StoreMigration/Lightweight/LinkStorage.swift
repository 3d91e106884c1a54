import CoreDataStore
import ManagedObjectModels

/// The table and columns that hold a relationship's links.
struct LinkStorage: Hashable {
    /// The columns of a to-one relationship, or of a to-many relationship without an inverse, in the rows that hold
    /// them.
    struct Columns {
        let reference: String
        let entity: String?
        let order: String?
    }

    let table: String
    /// The column of the objects that have the relationship.
    let owner: String
    /// The column of the objects that it leads to.
    let target: String
    /// The column of the owner's position among those related to one target; nil if the inverse isn't ordered.
    let ownerPlace: String?
    /// The column of the target's position among the owner's targets; nil if the relationship isn't ordered.
    let targetPlace: String?
    let isJoinTable: Bool

    /// The same storage, seen from the inverse.
    var reversed: LinkStorage {
        LinkStorage(
            table: table, owner: target, target: owner, ownerPlace: targetPlace, targetPlace: ownerPlace,
            isJoinTable: isJoinTable)
    }

    /// A query with a row for each link.
    var query: String {
        let places = [ownerPlace, targetPlace].map { $0?.sqlName ?? "NULL" }
        return "SELECT \(owner.sqlName) AS owner, \(target.sqlName) AS target, \(places[0]) AS owner_place, "
            + "\(places[1]) AS target_place FROM \(table.sqlName) NOT INDEXED "
            + "WHERE \(owner.sqlName) IS NOT NULL AND \(target.sqlName) IS NOT NULL"
    }

    /// Returns the columns of a relationship that `entity` declares or inherits; nil if it has none.
    static func columns(
        of relationship: RelationshipDescription, declaredFor entity: String, in layout: StoreLayout
    ) -> Columns? {
        guard !relationship.isTransient, !relationship.isToMany || relationship.inverseName == nil,
            let declaring = layout.declaringEntity(of: relationship.name, of: entity)?.name
        else { return nil }
        let holder = relationship.isToMany ? relationship.destinationEntityName : entity
        let table = layout.table(of: holder)
        func name(_ content: ColumnLayout.Content) -> String? { table?.column(of: content)?.name }
        guard let reference = name(.reference(entity: declaring, name: relationship.name)) else { return nil }
        return Columns(
            reference: reference, entity: name(.referencedEntity(entity: declaring, name: relationship.name)),
            order: name(.order(entity: declaring, name: relationship.name)))
    }

    /// Returns nil for a transient relationship.
    init?(of relationship: RelationshipDescription, declaredFor entity: String, in layout: StoreLayout) {
        guard !relationship.isTransient else { return nil }
        let destination = relationship.destinationEntityName
        if let columns = Self.columns(of: relationship, declaredFor: entity, in: layout) {
            let table = layout.table(of: relationship.isToMany ? destination : entity)?.name ?? ""
            let held = LinkStorage(
                table: table, owner: "Z_PK", target: columns.reference, ownerPlace: columns.order, targetPlace: nil,
                isJoinTable: false)
            self = relationship.isToMany ? held.reversed : held
            return
        }
        guard let inverse = layout.model.inverse(of: relationship) else { return nil }
        if let columns = Self.columns(of: inverse, declaredFor: destination, in: layout) {
            self = LinkStorage(
                table: layout.table(of: destination)?.name ?? "", owner: columns.reference, target: "Z_PK",
                ownerPlace: nil, targetPlace: columns.order, isJoinTable: false)
            return
        }
        let declaring = layout.declaringEntity(of: relationship.name, of: entity)?.name
        let found = layout.joinTables.lazy.compactMap { table -> LinkStorage? in
            for (own, other) in [(table.owner, table.inverse), (table.inverse, table.owner)]
            where own.entity == declaring && own.relationship == relationship.name {
                return LinkStorage(
                    table: table.name, owner: own.column, target: other.column, ownerPlace: own.orderColumn,
                    targetPlace: other.orderColumn, isJoinTable: true)
            }
            return nil
        }.first
        guard let found else { return nil }
        self = found
    }

    init(
        table: String, owner: String, target: String, ownerPlace: String?, targetPlace: String?, isJoinTable: Bool
    ) {
        self.table = table
        self.owner = owner
        self.target = target
        self.ownerPlace = ownerPlace
        self.targetPlace = targetPlace
        self.isJoinTable = isJoinTable
    }
}
