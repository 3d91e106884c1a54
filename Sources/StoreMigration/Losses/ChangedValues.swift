import CoreDataStore
import ManagedObjectModels
import MappingModels

/// The values of one attribute that its new type can't hold as they are: a fraction becomes a whole number, or a whole number
/// of more than 53 bits a fraction.
struct ChangedValues {
    private let column: String
    /// The source's entities, by their numbers, whose objects get the new type.
    private var toWhole: Set<Int64> = []
    private var toFraction: Set<Int64> = []

    /// Nil where each value stays what it is, or goes. `entity` declares the attribute.
    init?(_ attribute: AttributeDescription, of entity: String, _ succession: EntityMatching) {
        let source = succession.source
        guard !attribute.isTransient, attribute.derivation == nil, attribute.type != .composite,
            let column = source.column(of: attribute.name, of: entity)
        else { return nil }
        self.column = column.name.sqlName
        for member in source.numbers.family(of: entity) {
            guard let successor = succession.successors[member],
                let new = succession.destination.model.entity(named: successor)
            else { continue }
            for case .attribute(let now) in succession.destination.model.properties(of: new)
            where !now.isTransient && now.derivation == nil {
                guard succession.attribute(now.name, of: successor)?.attribute.name == attribute.name else { continue }
                let number = source.numbers.number(of: member)
                if attribute.type.isFractional, now.type.isWhole { toWhole.insert(number) }
                if !attribute.type.isBinaryFraction, now.type.isBinaryFraction { toFraction.insert(number) }
            }
        }
        guard !toWhole.isEmpty || !toFraction.isEmpty else { return nil }
    }

    /// The rows in which the value becomes another one, as SQL says it.
    var condition: String {
        let whole = "CAST(\(column) AS INTEGER) IS NOT \(column) AND Z_ENT IN (\(toWhole.sorted().list))"
        let fraction =
            // What is rounded up to 2^63 is no whole number of SQLite's: it would be cut to the one that it was.
            "typeof(\(column)) = 'integer' AND (CAST(CAST(\(column) AS REAL) AS INTEGER) IS NOT \(column) "
            + "OR CAST(\(column) AS REAL) >= 9223372036854775808.0) AND Z_ENT IN (\(toFraction.sorted().list))"
        return "(\(column) IS NOT NULL AND ((\(whole)) OR (\(fraction))))"
    }
}

extension AttributeType {
    /// Whether each value is stored as a binary fraction. A decimal number or a date that is whole is stored as a whole
    /// number.
    fileprivate var isBinaryFraction: Bool { self == .double || self == .float }
}
