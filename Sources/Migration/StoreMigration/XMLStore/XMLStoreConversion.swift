import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import MappingModels
import SQLiteStore
import SystemPackage

/// The conversion of an XML store to a SQLite store of the same version of its model: every object, value and link.
/// What can't be converted is an error, never left out.
package struct XMLStoreConversion {
    private let file: XMLStoreFile
    private let layout: StoreLayout
    private var names: XMLStoreNames
    /// The new objects by their positions in the file.
    private var objects: [(entity: EntityDescription, key: Int64)] = []
    private var positions: [String: Int] = [:]
    /// Remarks for the user.
    package private(set) var notes: [String] = []

    /// - Parameter model: The version that the store has. Throws `ModelFault` if no store can have its tables.
    package init(_ file: XMLStoreFile, of model: ManagedObjectModel) throws {
        self.file = file
        layout = StoreLayout(model)
        names = XMLStoreNames(model)
        try layout.validate()
    }

    /// Fills the empty file at `path`. Throws `XMLStoreError` and `StoreError`; the file is unusable then.
    package mutating func run(into path: FilePath) throws {
        let store = try StoreWriter(staged: path)
        try store.prepareEmptyStore()
        // Core Data's triggers call functions that only it has.
        try store.addCoreDataFunctions()
        do {
            try store.transaction(.deferred) {
                var properties = StoreProperties(takingOver: file.metadata)
                properties.set(layout.model)
                try store.createStore(layout, uuid: file.uuid, properties: properties)
                let triggers = try store.dropTriggers()
                try assignKeys()
                var links = XMLStoreLinks(layout)
                try insertObjects(store, &links)
                try write(links, store)
                try deriveValues(store)
                for trigger in triggers { try store.execute(trigger) }
                try recordHighestKeys(store)
                try check(links, store)
            }
        } catch let fault as XMLStoreObject.Fault {
            throw error(fault)
        }
    }

    private func error(_ fault: XMLStoreObject.Fault) -> XMLStoreError {
        XMLStoreError(
            file.path, fault.reason, line: fault.line,
            remedy: "name the version of the model that the store was made with, or mend the file")
    }

    /// Throws if the model lacks an entity or property of the file, or a value isn't of its attribute's type. Writes
    /// nothing.
    func checkFit() throws {
        var trial = self
        do { try trial.tryFit() } catch let fault as XMLStoreObject.Fault { throw error(fault) }
    }

    private mutating func tryFit() throws {
        try assignKeys()
        var links = XMLStoreLinks(layout)
        for (position, object) in file.objects.enumerated() {
            let entity = objects[position].entity
            for attribute in object.attributes {
                let property = try names.property(attribute.name, of: entity, line: attribute.line)
                if case .attribute(let description) = property { _ = try XMLStoreValue(attribute, of: description) }
            }
            for relationship in object.relationships {
                try add(relationship, of: entity, owner: position, to: &links)
            }
        }
    }

    /// Gives each object the key that its id contains, such as 102 for `z102`, if all ids have one; else the objects
    /// are numbered.
    private mutating func assignKeys() throws {
        let numbers = file.objects.map { object in
            Int64(object.id.drop { $0.isASCII && $0.isLetter }).flatMap { (1...(1 << 40)).contains($0) ? $0 : nil }
        }
        let own = numbers.compactMap(\.self)
        let keepsNumbers = own.count == numbers.count && Set(own).count == own.count
        for (position, object) in file.objects.enumerated() {
            let entity = try names.entity(object.type, line: object.line)
            guard !entity.isAbstract else {
                throw XMLStoreObject.Fault(
                    reason: "\(entity.name) is abstract in the model, but has an object", line: object.line)
            }
            objects.append((entity, keepsNumbers ? own[position] : Int64(position + 1)))
            positions[object.id] = position
        }
    }

    private mutating func insertObjects(_ store: StoreWriter, _ links: inout XMLStoreLinks) throws {
        var rounded = 0
        for (position, object) in file.objects.enumerated() {
            let (entity, key) = objects[position]
            guard let table = layout.table(of: entity.name)?.name else { continue }
            var columns = ["Z_PK", "Z_ENT", "Z_OPT"]
            var values: [SQLiteValue] = [.integer(key), .integer(layout.numbers.number(of: entity.name)), .integer(1)]
            for attribute in object.attributes {
                let property = try names.property(attribute.name, of: entity, line: attribute.line)
                guard case .attribute(let description) = property,
                    let column = layout.column(of: description.name, of: entity.name)?.name
                else {
                    throw XMLStoreObject.Fault(
                        reason: "\(entity.name).\(property.name) is not a stored attribute in the model",
                        line: attribute.line)
                }
                let converted = try XMLStoreValue(attribute, of: description)
                if converted.isRounded { rounded += 1 }
                columns.append(column.sqlName)
                values.append(converted.value)
            }
            let marks = Array(repeating: "?", count: values.count).joined(separator: ", ")
            try store.execute(
                "INSERT INTO \(table.sqlName) (\(columns.joined(separator: ", "))) VALUES (\(marks))", values)
            for relationship in object.relationships {
                try add(relationship, of: entity, owner: position, to: &links)
            }
        }
        if rounded > 0 {
            notes.append(
                "\(rounded) decimals had more digits than a number in SQLite keeps, in Core Data's own store too")
        }
    }

    private mutating func add(
        _ relationship: XMLStoreObject.Relationship, of entity: EntityDescription, owner: Int,
        to links: inout XMLStoreLinks
    ) throws {
        let property = try names.property(relationship.name, of: entity, line: relationship.line)
        guard case .relationship(let description) = property else {
            throw XMLStoreObject.Fault(
                reason: "\(entity.name).\(property.name) is not a relationship in the model", line: relationship.line)
        }
        let family = layout.numbers.family(of: description.destinationEntityName)
        let targets = try relationship.references.map { reference in
            guard let target = positions[reference] else {
                throw XMLStoreObject.Fault(
                    reason: "\(entity.name).\(description.name) refers to “\(reference)”, which isn't in the file",
                    line: relationship.line)
            }
            guard family.contains(objects[target].entity.name) else {
                throw XMLStoreObject.Fault(
                    reason: "\(entity.name).\(description.name) refers to “\(reference)”, which is no "
                        + description.destinationEntityName, line: relationship.line)
            }
            return target
        }
        links.add(description, of: entity, owner: owner, targets: targets, line: relationship.line)
    }

    // MARK: Links

    private func write(_ links: XMLStoreLinks, _ store: StoreWriter) throws {
        for (storage, found) in links.storages() {
            try checkNumbers(of: found, storage)
            let placed = Self.placed(found, storage)
            for (pair, ownerPlace, targetPlace) in placed {
                try write(pair, ownerPlace: ownerPlace, targetPlace: targetPlace, storage, store)
            }
        }
    }

    /// Throws if an object of a to-one relationship has several objects: the two ends contradict each other.
    private func checkNumbers(
        of links: [(pair: XMLStoreLinks.Pair, link: XMLStoreLinks.Link)], _ storage: XMLStoreLinks.Storage
    ) throws {
        var (owners, targets): (Set<Int>, Set<Int>) = ([], [])
        for (pair, link) in links {
            let isFirst = owners.insert(pair.owner).inserted || !storage.hasOneTarget
            guard isFirst, targets.insert(pair.target).inserted || !storage.hasOneOwner else {
                let object = file.objects[isFirst ? pair.target : pair.owner].id
                throw XMLStoreObject.Fault(
                    reason: "“\(object)” is linked with several objects by \(storage.key.entity).\(storage.key.name), "
                        + "which holds one", line: link.line)
            }
        }
    }

    /// The first position in an ordered relationship, and the distance of two (the format of Core Data's stores).
    private static let (firstPlace, placeStep): (Int64, Int64) = (2048, 1024)

    /// Returns the links with the positions that the store keeps. Objects that only the other end lists come last.
    private static func placed(
        _ links: [(pair: XMLStoreLinks.Pair, link: XMLStoreLinks.Link)], _ storage: XMLStoreLinks.Storage
    ) -> [(XMLStoreLinks.Pair, ownerPlace: Int64?, targetPlace: Int64?)] {
        func places(
            _ group: (XMLStoreLinks.Pair) -> Int, _ place: (XMLStoreLinks.Link) -> Int?,
            _ member: (XMLStoreLinks.Pair) -> Int
        ) -> [XMLStoreLinks.Pair: Int64] {
            var found: [XMLStoreLinks.Pair: Int64] = [:]
            for members in Dictionary(grouping: links, by: { group($0.pair) }).values {
                let ordered = members.sorted {
                    (place($0.link) ?? .max, member($0.pair)) < (place($1.link) ?? .max, member($1.pair))
                }
                for (index, entry) in ordered.enumerated() {
                    found[entry.pair] = firstPlace + Int64(index) * placeStep
                }
            }
            return found
        }
        let targets = storage.link.targetPlace == nil ? [:] : places({ $0.owner }, { $0.targetPlace }, { $0.target })
        let owners = storage.link.ownerPlace == nil ? [:] : places({ $0.target }, { $0.ownerPlace }, { $0.owner })
        return links.map { ($0.pair, owners[$0.pair], targets[$0.pair]) }
    }

    private func write(
        _ pair: XMLStoreLinks.Pair, ownerPlace: Int64?, targetPlace: Int64?, _ storage: XMLStoreLinks.Storage,
        _ store: StoreWriter
    ) throws {
        let link = storage.link
        let (owner, target) = (objects[pair.owner], objects[pair.target])
        var assignments: [(String, SQLiteValue)] = []
        if let column = link.ownerPlace, let ownerPlace { assignments.append((column, .integer(ownerPlace))) }
        if let column = link.targetPlace, let targetPlace { assignments.append((column, .integer(targetPlace))) }
        if link.isJoinTable {
            assignments += [(link.owner, .integer(owner.key)), (link.target, .integer(target.key))]
            let columns = assignments.map { $0.0.sqlName }.joined(separator: ", ")
            let marks = assignments.map { _ in "?" }.joined(separator: ", ")
            return try store.execute(
                "INSERT INTO \(link.table.sqlName) (\(columns)) VALUES (\(marks))", assignments.map(\.1))
        }
        // The row of one object holds the reference to the other.
        let isHeldByOwner = link.owner == "Z_PK"
        let (row, referenced) = isHeldByOwner ? (owner, target) : (target, owner)
        assignments.append((isHeldByOwner ? link.target : link.owner, .integer(referenced.key)))
        if let column = storage.entityColumn {
            assignments.append((column, .integer(layout.numbers.number(of: referenced.entity.name))))
        }
        let columns = assignments.map { "\($0.0.sqlName) = ?" }.joined(separator: ", ")
        try store.execute(
            "UPDATE \(link.table.sqlName) SET \(columns) WHERE Z_PK = ?", assignments.map(\.1) + [.integer(row.key)])
    }

    // MARK: Completion

    /// Computes derived attributes, which an XML store doesn't have.
    private func deriveValues(_ store: StoreWriter) throws {
        for derived in layout.derivedAttributeTriggers {
            let parts = derived.name.split(separator: ".").map(String.init)
            guard let entity = parts.first, let table = layout.table(of: entity)?.name,
                let column = layout.column(of: parts.dropFirst().joined(separator: "."), of: entity)?.name
            else { continue }
            let numbers = layout.numbers.family(of: entity).map { String(layout.numbers.number(of: $0)) }
            try store.execute(
                "UPDATE \(table.sqlName) AS t SET \(column.sqlName) = \(derived.value) "
                    + "WHERE Z_ENT IN (\(numbers.joined(separator: ", "))) AND \(column.sqlName) IS NULL")
        }
    }

    private func recordHighestKeys(_ store: StoreWriter) throws {
        for table in layout.tables {
            try store.execute(
                "UPDATE Z_PRIMARYKEY SET Z_MAX = (SELECT coalesce(max(Z_PK), 0) FROM \(table.name.sqlName)) "
                    + "WHERE Z_ENT = ?", [.integer(layout.numbers.number(of: table.rootEntity))])
        }
    }

    /// Counts what the new store holds, and compares it with the file. Throws `MigrationError` for a difference.
    private func check(_ links: XMLStoreLinks, _ store: StoreWriter) throws {
        for entity in layout.numbers.entities where !entity.isAbstract {
            let expected = Int64(objects.count { $0.entity.name == entity.name })
            guard let table = layout.table(of: entity.name)?.name else { continue }
            let found = try store.integer(
                "SELECT count(*) FROM \(table.sqlName) WHERE Z_ENT = ?",
                [.integer(layout.numbers.number(of: entity.name))])
            guard found == expected else {
                throw Self.incomplete("\(entity.name): \(found ?? 0) of \(expected) objects")
            }
        }
        for (storage, expected) in links.storages() {
            let found = try store.integer("SELECT count(*) FROM (\(storage.link.query))") ?? 0
            guard found == Int64(expected.count) else {
                throw Self.incomplete("\(storage.key.entity).\(storage.key.name): \(found) of \(expected.count) links")
            }
        }
    }

    private static func incomplete(_ what: String) -> MigrationError {
        MigrationError(
            CoreDataError.migration, "the converted store is incomplete: \(what)",
            remedy: "report this; the XML store is unchanged", isOfTheAudit: true)
    }
}
