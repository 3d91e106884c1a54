import CoreDataStore
import ManagedObjectModels
import MappingModels

/// The values of one attribute that its new type can't represent exactly: a fraction becomes a whole number, or a whole
/// number of more than 53 bits becomes a fraction.
struct ChangedValues {
    private let column: String
    /// The source numbers of the entities whose values become whole numbers.
    private var toWhole: Set<Int64> = []
    /// The source numbers of the entities whose values become binary fractions.
    private var toFraction: Set<Int64> = []

    /// Returns nil if each value is kept exactly or removed. `entity` declares the attribute.
    init?(_ attribute: AttributeDescription, of entity: String, _ matching: EntityMatching) {
        let source = matching.source
        guard !attribute.isTransient, attribute.derivation == nil, attribute.type != .composite,
            let column = source.column(of: attribute.name, of: entity)
        else { return nil }
        self.column = column.name.sqlName
        for member in source.numbers.family(of: entity) {
            guard let successor = matching.successors[member],
                let new = matching.destination.model.entity(named: successor)
            else { continue }
            for case .attribute(let candidate) in matching.destination.model.properties(of: new)
            where !candidate.isTransient && candidate.derivation == nil {
                guard matching.attribute(candidate.name, of: successor)?.attribute.name == attribute.name else {
                    continue
                }
                let number = source.numbers.number(of: member)
                if attribute.type.isFractional, candidate.type.isWhole { toWhole.insert(number) }
                if !attribute.type.isBinaryFraction, candidate.type.isBinaryFraction { toFraction.insert(number) }
            }
        }
        guard !toWhole.isEmpty || !toFraction.isEmpty else { return nil }
    }

    /// The SQL condition of rows in which the value changes.
    var condition: String {
        let whole = "CAST(\(column) AS INTEGER) IS NOT \(column) AND Z_ENT IN (\(toWhole.sorted().list))"
        let fraction =
            // A value that is rounded up to 2^63 exceeds SQLite's integers: the cast back would clamp it to the
            // original.
            "typeof(\(column)) = 'integer' AND (CAST(CAST(\(column) AS REAL) AS INTEGER) IS NOT \(column) "
            + "OR CAST(\(column) AS REAL) >= 9223372036854775808.0) AND Z_ENT IN (\(toFraction.sorted().list))"
        return "(\(column) IS NOT NULL AND ((\(whole)) OR (\(fraction))))"
    }
}

extension AttributeType {
    /// True if each value is stored as a binary fraction. A decimal number or a date that is whole is stored as an
    /// integer.
    fileprivate var isBinaryFraction: Bool { self == .double || self == .float }
}
