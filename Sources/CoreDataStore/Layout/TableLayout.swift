import ManagedObjectModels

/// One table of a store: a hierarchy's objects, in columns that its attributes and to-one relationships have.
package struct TableLayout: Sendable {
    /// The columns that each table has, before those of its properties: key, entity number, count of saves.
    package static let ownColumns = ["Z_PK", "Z_ENT", "Z_OPT"]

    /// `Z` and the root entity's name in capitals.
    package let name: String
    package let rootEntity: String
    /// Those of all entities in the hierarchy, in the order in which names are given out.
    package let columns: [ColumnLayout]
    /// Whether other entities inherit from the root.
    package let isHierarchy: Bool

    /// All that the table has, by the model.
    package var columnNames: [String] { Self.ownColumns + columns.map(\.name) }

    /// As Core Data writes them in a new table: numbers and references, then times and fractions, decimals, text, UUIDs,
    /// other data; within each as names are given out.
    package var orderedColumns: [ColumnLayout] {
        columns.enumerated().sorted { ($0.element.rank, $0.offset) < ($1.element.rank, $1.offset) }.map(\.element)
    }

    /// The statement, character for character.
    package var creation: String { creation(as: name) }

    package func creation(as name: String) -> String {
        let keys = ["Z_PK INTEGER PRIMARY KEY", "Z_ENT INTEGER", "Z_OPT INTEGER"]
        let all = keys + orderedColumns.map { "\($0.name) \($0.type)" }
        return "CREATE TABLE \(name) ( " + all.joined(separator: ", ") + " )"
    }
}

/// One column besides the three that each table has.
package struct ColumnLayout: Equatable, Sendable {
    package enum Content: Equatable, Sendable {
        /// The path is the attribute's name or, of a composite attribute's element, the names that lead to it. It is no
        /// joined name: an attribute `a_b` may stand beside a composite attribute `a` with an element `b`.
        case attribute(entity: String, path: [String])
        /// The destination's `Z_PK`.
        case reference(entity: String, name: String)
        /// The destination's `Z_ENT`, where it may be one of several entities.
        case referencedEntity(entity: String, name: String)
        /// The object's place among those of an ordered relationship that leads to it.
        case order(entity: String, name: String)
    }

    package let name: String
    /// SQL's, as Core Data writes it.
    package let type: String
    package let content: Content
    fileprivate let rank: Int

    init(_ name: String, _ content: Content) {
        self.init(name, type: "INTEGER", rank: 0, content)
    }

    private init(_ name: String, type: String, rank: Int, _ content: Content) {
        self.name = name
        self.type = type
        self.rank = rank
        self.content = content
    }

    /// Nil for a type that has no column.
    init?(_ name: String, _ attributeType: AttributeType, _ content: Content) {
        let (type, rank): (String, Int)
        switch attributeType {
        case .integer16, .integer32, .integer64, .boolean: (type, rank) = ("INTEGER", 0)
        case .date: (type, rank) = ("TIMESTAMP", 1)
        case .double, .float: (type, rank) = ("FLOAT", 1)
        case .decimal: (type, rank) = ("DECIMAL", 2)
        case .string, .uri: (type, rank) = ("VARCHAR", 3)
        case .uuid: (type, rank) = ("BLOB", 4)
        case .binaryData, .transformable: (type, rank) = ("BLOB", 5)
        case .undefined, .objectID, .composite: return nil
        }
        self.init(name, type: type, rank: rank, content)
    }
}
