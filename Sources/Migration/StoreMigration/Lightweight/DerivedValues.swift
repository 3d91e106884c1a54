import CoreDataStore
import FoundationEssentials
import ManagedObjectModels
import MappingModels
import SQLiteStore

/// Recomputes derived attributes of migrated objects: those that are new, whose derivation changed, or that derive from
/// something that the migration changed. A timestamp (`now()`) keeps its value.
struct DerivedValues {
    private let store: StoreWriter
    private let matching: EntityMatching
    private(set) var notes: [String] = []

    init(_ store: StoreWriter, _ matching: EntityMatching) {
        self.store = store
        self.matching = matching
    }

    mutating func derive() throws {
        let layout = matching.destination
        try store.addCoreDataFunctions()
        for derived in layout.derivedAttributeTriggers {
            guard
                isDerivationChanged(of: derived.attribute, of: derived.entity)
                    || !derived.isSaveTime && !derived.sources.allSatisfy(isUnchanged)
            else { continue }
            try set(derived.column, to: derived.value, in: derived.table, of: derived.entity)
        }
        for name in layout.unsupportedDerivations {
            let (entity, attribute) = Self.parts(name)
            guard matching.predecessors[entity] != nil, isDerivationChanged(of: attribute, of: entity),
                let table = layout.table(of: entity)?.name, let column = layout.column(of: attribute, of: entity)?.name
            else { continue }
            try set(column, to: "NULL", in: table, of: entity)
            let expression = layout.model.entity(named: entity)?.attributes.first { $0.name == attribute }?.derivation
            notes.append(
                "\(name) is derived as “\(expression?.expression ?? "")”, which groupstore can't compute: it has no value "
                    + "until Core Data saves the object")
        }
    }

    private static func parts(_ name: String) -> (entity: String, attribute: String) {
        let dot = name.firstIndex(of: ".") ?? name.endIndex
        return (String(name[..<dot]), String(name[dot...].dropFirst()))
    }

    private func set(_ column: String, to value: String, in table: String, of entity: String) throws {
        let numbers = matching.destination.numbers
        let family = numbers.family(of: entity).map(numbers.number)
        try store.execute(
            "UPDATE \(table.sqlName) AS t SET \(column.sqlName) = \(value) WHERE Z_ENT IN (\(family.sorted().list))")
    }

    /// True if the stored values, if any, come from another derivation.
    private func isDerivationChanged(of name: String, of entity: String) -> Bool {
        members(of: entity).contains { member in
            guard let old = matching.attribute(name, of: member)?.attribute, !old.isTransient,
                let new = attribute(name, of: member)
            else { return true }
            return old.derivation != new.derivation || old.type != new.type
        }
    }

    /// True if the migration keeps the property's values or links.
    private func isUnchanged(_ source: DerivedAttributeTriggers.Source) -> Bool {
        members(of: source.entity).allSatisfy { member in
            if let new = attribute(source.property, of: member) {
                guard let old = matching.attribute(source.property, of: member)?.attribute else { return false }
                return old.type == new.type && old.isOptional == new.isOptional && old.isTransient == new.isTransient
            }
            guard let entity = matching.destination.model.entity(named: member),
                case .relationship(let new)? = matching.destination.model.property(named: source.property, of: entity),
                let old = matching.relationship(source.property, of: member)?.relationship
            else { return false }
            return old.isToMany == new.isToMany && (old.inverseName == nil) == (new.inverseName == nil)
                && matching.keepsAllDestinations(old, new)
        }
    }

    private func attribute(_ name: String, of entity: String) -> AttributeDescription? {
        guard let entity = matching.destination.model.entity(named: entity),
            case .attribute(let found)? = matching.destination.model.property(named: name, of: entity)
        else { return nil }
        return found
    }

    /// The entity and its subentities that have migrated objects.
    private func members(of entity: String) -> [String] {
        matching.destination.numbers.family(of: entity).filter { matching.predecessors[$0] != nil }
    }
}

extension StoreWriter {
    /// Registers the functions that Core Data's triggers call. Those that compute values do so; those that notify
    /// managed object contexts of changes do nothing, since there are none here.
    package func addCoreDataFunctions() throws {
        // SQLite refuses to redefine a function while a virtual table is in use.
        let known = try integer(
            "SELECT count(*) FROM pragma_function_list WHERE name = 'NSCoreDataNow' COLLATE NOCASE")
        guard known == 0 else { return }
        for name in ["Updated", "InsertUpdated"] {
            for arguments in [2, 5] as [Int32] {
                try addNoOpFunction("NSCoreDataDATrigger\(name)AffectedObjectValue", arguments: arguments)
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
