import ManagedObjectModels

/// The table of an entity hierarchy, with columns for its attributes and to-one relationships.
package struct TableLayout: Sendable {
    /// The columns that every table begins with: key, entity number, number of saves.
    package static let ownColumns = ["Z_PK", "Z_ENT", "Z_OPT"]

    /// The name of the table: `Z` and the root entity's name in capitals.
    package let name: String
    package let rootEntity: String
    /// The columns of all entities in the hierarchy, in the order in which Core Data assigns names.
    package let columns: [ColumnLayout]
    /// True if other entities inherit from the root.
    package let isHierarchy: Bool
    private let namePlaces: [String: Int]
    private let contentPlaces: [ColumnLayout.Content: Int]

    init(name: String, rootEntity: String, columns: [ColumnLayout], isHierarchy: Bool) {
        self.name = name
        self.rootEntity = rootEntity
        self.columns = columns
        self.isHierarchy = isHierarchy
        namePlaces = Dictionary(
            columns.enumerated().map { ($1.name, $0) }, uniquingKeysWith: { first, _ in first })
        contentPlaces = Dictionary(
            columns.enumerated().map { ($1.content, $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Returns the column with this name; nil if there is none.
    package func column(named name: String) -> ColumnLayout? { namePlaces[name].map { columns[$0] } }

    /// Returns the column of a value; nil if there is none.
    package func column(of content: ColumnLayout.Content) -> ColumnLayout? {
        contentPlaces[content].map { columns[$0] }
    }

    /// The names of all columns, including ``ownColumns``.
    package var columnNames: [String] { Self.ownColumns + columns.map(\.name) }

    /// The columns in the order of a new table: integers and references, then dates and floating-point numbers,
    /// decimals, text, UUIDs, other data. Each group keeps the order of ``columns``.
    package var orderedColumns: [ColumnLayout] {
        columns.enumerated().sorted { ($0.element.rank, $0.offset) < ($1.element.rank, $1.offset) }.map(\.element)
    }

    /// The `CREATE TABLE` statement, character for character.
    package var creation: String { creation(as: name) }

    package func creation(as name: String) -> String {
        let keys = ["Z_PK INTEGER PRIMARY KEY", "Z_ENT INTEGER", "Z_OPT INTEGER"]
        let all = keys + orderedColumns.map { "\($0.name) \($0.type)" }
        return "CREATE TABLE \(name) ( " + all.joined(separator: ", ") + " )"
    }
}

/// A column of a property.
package struct ColumnLayout: Equatable, Sendable {
    package enum Content: Hashable, Sendable {
        /// An attribute. The path is its name, or the names that lead to an element of a composite attribute. The names
        /// are not joined, because an attribute `a_b` may exist beside a composite attribute `a` with an element `b`.
        case attribute(entity: String, path: [String])
        /// A reference: the destination's `Z_PK`.
        case reference(entity: String, name: String)
        /// The destination's `Z_ENT`, if the destination may be one of several entities.
        case referencedEntity(entity: String, name: String)
        /// The object's position in the ordered inverse.
        case order(entity: String, name: String)
    }

    package let name: String
    /// The SQL type, as Core Data writes it.
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

    /// Returns nil for an attribute type without a column.
    init?(_ name: String, type attributeType: AttributeType, _ content: Content) {
        let (type, rank): (String, Int)
        switch attributeType {
        case .integer16, .integer32, .integer64, .boolean: (type, rank) = ("INTEGER", 0)
        case .date: (type, rank) = ("TIMESTAMP", 1)
        case .double, .float: (type, rank) = ("FLOAT", 1)
        case .decimal: (type, rank) = ("DECIMAL", 2)
        case .string, .uri: (type, rank) = ("VARCHAR", 3)
        case .uuid: (type, rank) = ("BLOB", 4)
        case .transformable: (type, rank) = ("BLOB", 5)
        case .binaryData: (type, rank) = ("BLOB", 6)
        case .undefined, .objectID, .composite: return nil
        }
        self.init(name, type: type, rank: rank, content)
    }
}
