import CoreDataStore
import Foundation
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// What Core Data derives, for the objects that were there before: where the attribute is new, is derived otherwise than
/// before, or of something that the migration changed. A moment (`now()`) stays the one that it was.
struct DerivedValues {
    private let store: StoreWriter
    private let succession: EntityMatching
    private(set) var notes: [String] = []

    init(_ store: StoreWriter, _ succession: EntityMatching) {
        self.store = store
        self.succession = succession
    }

    mutating func derive() throws {
        let layout = succession.destination
        try store.addCoreDataFunctions()
        for derived in layout.derivedAttributeTriggers {
            guard
                isOtherwise(derived.attribute, of: derived.entity)
                    || !derived.isOfItsMoment && !derived.sources.allSatisfy(isKept)
            else { continue }
            try set(derived.value, derived.column, in: derived.table, of: derived.entity)
        }
        for name in layout.unknownDerivations {
            let (entity, attribute) = Self.parts(name)
            guard succession.predecessors[entity] != nil, isOtherwise(attribute, of: entity),
                let table = layout.table(of: entity)?.name, let column = layout.column(of: attribute, of: entity)?.name
            else { continue }
            try set("NULL", column, in: table, of: entity)
            let expression = layout.model.entity(named: entity)?.attributes.first { $0.name == attribute }?.derivation
            notes.append(
                "\(name) is derived as “\(expression?.expression ?? "")”, which isn't computed here: it has no value "
                    + "before an object is saved")
        }
    }

    private static func parts(_ name: String) -> (entity: String, attribute: String) {
        let place = name.firstIndex(of: ".") ?? name.endIndex
        return (String(name[..<place]), String(name[place...].dropFirst()))
    }

    private func set(_ value: String, _ column: String, in table: String, of entity: String) throws {
        let numbers = succession.destination.numbers
        let family = numbers.family(of: entity).map(numbers.number)
        try store.execute(
            "UPDATE \(table.sqlName) AS t SET \(column.sqlName) = \(value) WHERE Z_ENT IN (\(family.sorted().list))")
    }

    /// Whether the values that there are, if any, are not of this derivation.
    private func isOtherwise(_ name: String, of entity: String) -> Bool {
        members(of: entity).contains { member in
            guard let was = succession.attribute(name, of: member)?.attribute, !was.isTransient,
                let now = attribute(name, of: member)
            else { return true }
            return was.derivation != now.derivation || was.type != now.type
        }
    }

    /// Whether the property's values, or links, are those of before.
    private func isKept(_ source: DerivedAttributeTriggers.Source) -> Bool {
        members(of: source.entity).allSatisfy { member in
            if let now = attribute(source.property, of: member) {
                guard let was = succession.attribute(source.property, of: member)?.attribute else { return false }
                return was.type == now.type && was.isOptional == now.isOptional && was.isTransient == now.isTransient
            }
            guard let entity = succession.destination.model.entity(named: member),
                case .relationship(let now)? = succession.destination.model.property(named: source.property, of: entity),
                let was = succession.relationship(source.property, of: member)?.relationship
            else { return false }
            return was.isToMany == now.isToMany && (was.inverseName == nil) == (now.inverseName == nil)
                && succession.keepsAll(was, now)
        }
    }

    private func attribute(_ name: String, of entity: String) -> AttributeDescription? {
        guard let entity = succession.destination.model.entity(named: entity),
            case .attribute(let found)? = succession.destination.model.property(named: name, of: entity)
        else { return nil }
        return found
    }

    /// Those whose objects come from before.
    private func members(of entity: String) -> [String] {
        succession.destination.numbers.family(of: entity).filter { succession.predecessors[$0] != nil }
    }
}

extension StoreWriter {
    /// Makes the functions known that Core Data's triggers call: values, and those that tell contexts of what changed, of
    /// which there are none here.
    func addCoreDataFunctions() throws {
        // SQLite refuses to have one made anew while a virtual table is at work.
        let known = try integer(
            "SELECT count(*) FROM pragma_function_list WHERE name = 'NSCoreDataNow' COLLATE NOCASE")
        guard known == 0 else { return }
        for name in ["Updated", "InsertUpdated"] {
            for arguments in [2, 5] as [Int32] {
                try acceptFunction("NSCoreDataDATrigger\(name)AffectedObjectValue", arguments: arguments)
            }
        }
        let functions: [(String, (String) -> String)] = [
            ("Canonical", { SQLFunction.fold($0, 3) }), ("ToUpper", { $0.uppercased() }),
            ("ToLower", { $0.lowercased() }),
        ]
        for (name, body) in functions {
            try addFunction("NSCoreData" + name, arguments: 1) { values in
                guard case .text(let text) = values[0] else { return values[0] }
                return .text(body(text))
            }
        }
        // Seconds since 2001-01-01 UTC, as dates are stored.
        try addFunction("NSCoreDataNow", arguments: 0, isDeterministic: false) { _ in
            .real(Date().timeIntervalSinceReferenceDate)
        }
    }
}
