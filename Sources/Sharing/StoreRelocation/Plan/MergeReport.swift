import SQLiteFormat
import SQLiteStore
import SystemPackage

/// What a merge of two stores does, by entity or table.
package struct MergeReport: Sendable, Equatable {
    /// One of the two stores.
    package enum Side: String, Sendable {
        case group, legacy
    }

    /// The objects of an entity without those of subentities, or the rows of a table.
    package struct Entity: Sendable, Equatable {
        /// Nil for a table without a model.
        package var entity: String?
        package var table: String
        /// The properties or columns of each key; `["*"]` if whole objects are compared.
        package var keys: [[String]]
        package var onlyGroup: Int64 = 0
        package var onlyLegacy: Int64 = 0
        package var equal: Int64 = 0
        package var takesGroup: Int64 = 0
        package var takesLegacy: Int64 = 0
        package var undecided: Int64 = 0
        /// The legacy rows that have another number in the result.
        package var renumbered: Int64 = 0
        package var samplesOnlyGroup: [Sample] = []
        package var samplesOnlyLegacy: [Sample] = []
        package var samplesDifferent: [Sample] = []

        package init(entity: String?, table: String, keys: [[String]]) {
            self.entity = entity
            self.table = table
            self.keys = keys
        }

        /// The matched objects that differ.
        package var different: Int64 { takesGroup + takesLegacy + undecided }
        package var isEmpty: Bool { onlyGroup + onlyLegacy + equal + different == 0 }
        /// The name for people.
        package var name: String { entity ?? table }
    }

    /// A property or column and its value.
    package struct NamedValue: Sendable, Equatable {
        package let name: String
        package let value: StoredValue

        package init(name: String, value: StoredValue) {
            self.name = name
            self.value = value
        }
    }

    /// A property that differs.
    package struct Difference: Sendable, Equatable {
        package let name: String
        package let group: StoredValue
        package let legacy: StoredValue

        package init(name: String, group: StoredValue, legacy: StoredValue) {
            self.name = name
            self.group = group
            self.legacy = legacy
        }
    }

    /// One object, by its key.
    package struct Sample: Sendable, Equatable {
        package var key: [NamedValue]
        /// The side that is kept; nil if nothing decides, or there is only one.
        package var takes: Side?
        package var differences: [Difference] = []

        package init(key: [NamedValue], takes: Side? = nil) {
            self.key = key
            self.takes = takes
        }
    }

    /// The links of a many-to-many relationship.
    package struct Links: Sendable, Equatable {
        package var table: String
        /// The relationship as `Entity.name`.
        package var relationship: String
        package var onlyGroup: Int64
        package var onlyLegacy: Int64
        package var equal: Int64

        package init(table: String, relationship: String, onlyGroup: Int64, onlyLegacy: Int64, equal: Int64) {
            self.table = table
            self.relationship = relationship
            self.onlyGroup = onlyGroup
            self.onlyLegacy = onlyLegacy
            self.equal = equal
        }
    }

    /// A reference that the user declared.
    package struct Reference: Sendable, Equatable {
        package var table: String
        package var column: String
        package var targetTable: String
        package var targetColumn: String
        /// The legacy rows in which it has another value in the result.
        package var changed: Int64

        package init(table: String, column: String, targetTable: String, targetColumn: String, changed: Int64) {
            self.table = table
            self.column = column
            self.targetTable = targetTable
            self.targetColumn = targetColumn
            self.changed = changed
        }
    }

    /// What one side alone has done to a table since the last state that both stores had. `entities` counts the rows
    /// that are left.
    package struct Base: Sendable, Equatable {
        package struct Rows: Sendable, Equatable {
            package var count: Int64 = 0
            package var samples: [Sample] = []

            package init(count: Int64 = 0, samples: [Sample] = []) { (self.count, self.samples) = (count, samples) }
        }

        package var table: String
        /// The rows that one side has deleted, and the other has as they were: the result has none of them.
        package var deletedByLegacy = Rows()
        package var deletedByGroup = Rows()
        /// The rows that one side has changed, and the other has as they were: the result has the changed ones.
        package var changedByLegacy = Rows()
        package var changedByGroup = Rows()
        /// The rows that one side has deleted and the other changed: the result has the changed ones.
        package var keptChanged = Rows()
        /// The number of deleted rows that other rows refer to: the result has them.
        package var keptReferenced: Int64 = 0
        /// A phrase on why the last common state of the table isn't used; nil if it is.
        package var obstacle: String?

        /// True if rows of the table have a null as key: the base isn't used for them.
        package var hasRowsWithoutKey = false

        package init(table: String, obstacle: String? = nil) { (self.table, self.obstacle) = (table, obstacle) }
    }

    package var entities: [Entity] = []
    package var base: [Base] = []
    package var references: [Reference] = []
    package var links: [Links] = []
    /// The one-to-one links that two objects claimed.
    package var linksCleared: Int64 = 0
    /// The legacy store's references to nothing.
    package var dangling: Int64 = 0
    /// The external data files that were copied.
    package var externalFiles: Int64 = 0
    /// Notes for the user.
    package var notes: [String] = []

    package init() {}

    /// The rows that one side alone has deleted, and those that it alone has changed, since the common base.
    package var deletedByOneSide: Int64 { base.reduce(0) { $0 + $1.deletedByLegacy.count + $1.deletedByGroup.count } }
    package var changedByOneSide: Int64 { base.reduce(0) { $0 + $1.changedByLegacy.count + $1.changedByGroup.count } }

    package func sum(_ count: KeyPath<Entity, Int64>) -> Int64 { entities.reduce(0) { $0 + $1[keyPath: count] } }
}

/// The archives of the two originals of a merge.
package struct MergeArchives: Sendable, Equatable {
    package var group: FilePath?
    package var legacy: FilePath?
}

/// Puts the legacy store's rows into a copy of the group's store. What rows mean is not known here.
package protocol StoreCombination: Sendable {
    /// Merges `legacy`, which is only read, into `staged`, a copy of the store at `group` with its external data that
    /// no other process has open. Reports the plan as an event. If it throws, the copy is discarded.
    ///
    /// - Throws: `RelocationFailure` if the stores can't be merged.
    func run(
        on staged: StoreLocation, of group: FilePath, merging legacy: StoreLocation,
        report: (RelocationEvent) -> Void
    ) throws -> MergeReport

    /// Merges private copies of both stores, and discards the result.
    func rehearse(
        _ group: StoreLocation, merging legacy: StoreLocation, report: (RelocationEvent) -> Void
    ) throws -> MergeReport
}
