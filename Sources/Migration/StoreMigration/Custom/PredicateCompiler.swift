import ManagedObjectModels
import MappingModels

/// Compiles predicates. The result is 1 or 0, never NULL, since `NOT` leaves NULL unchanged.
extension ExpressionCompiler {
    typealias Comparison = MappingPredicate.Comparison

    mutating func condition(_ predicate: MappingPredicate) throws(MappingFault) -> String {
        switch predicate {
        case .constant(let truth): return truth ? "1" : "0"
        case .and(let parts): return try joined(parts, " AND ", empty: "1")
        case .or(let parts): return try joined(parts, " OR ", empty: "0")
        case .not(let part): return "(NOT \(try condition(part)))"
        case .comparison(let comparison): return try condition(comparison)
        }
    }

    private mutating func joined(
        _ parts: [MappingPredicate], _ word: String, empty: String
    ) throws(MappingFault) -> String {
        var texts: [String] = []
        for part in parts { texts.append(try condition(part)) }
        return texts.isEmpty ? empty : "(" + texts.joined(separator: word) + ")"
    }

    private mutating func condition(_ comparison: Comparison) throws(MappingFault) -> String {
        try comparison.checkPattern()
        let left = try compile(comparison.left)
        let right = try compile(comparison.right)
        switch (left, right) {
        case (.values(let objects, let value), _) where objects.isToMany && comparison.modifier != .direct:
            let condition = try compare(.value(value), right, using: comparison)
            if comparison.modifier == .any { return objects.exists(where: [condition]) }
            return "(NOT \(objects.exists(where: ["NOT " + condition])))"
        case (.values(let objects, let value), .value(let sought)) where objects.isToMany:
            guard comparison.operator == .contains else { break }
            return objects.exists(where: [Self.equal(value, sought, using: comparison)])
        case (.objects(let objects), _) where objects.isToMany && comparison.modifier != .direct:
            guard case .objects(let other) = right, !other.isToMany else { break }
            return objects.exists(where: ["\(objects.key) IS \(other.keyValue)"])
        default: return try compare(left, right, using: comparison)
        }
        throw MappingFault(
            "\(MappingPredicate.comparison(comparison)) compares several values", remedy: "put ANY or ALL before it")
    }

    private func compare(
        _ left: SQLExpression, _ right: SQLExpression, using comparison: Comparison
    ) throws(MappingFault) -> String {
        switch (left, right) {
        case (.objects(let first), .objects(let second)) where !first.isToMany && !second.isToMany:
            return try compareKeys(first.keyValue, second.keyValue, using: comparison)
        case (.objects(let objects), .value(let value)) where value.text == "NULL":
            return try compareWithNil(objects, comparison)
        case (.value(let value), .objects(let objects)) where value.text == "NULL":
            return try compareWithNil(objects, comparison)
        case (.objects(let first), .objects(let second)) where second.isToMany && comparison.operator == .isIn:
            return second.exists(where: ["\(second.key) IS \(first.keyValue)"])
        case (.objects(let first), .objects(let second)) where first.isToMany && comparison.operator == .contains:
            return first.exists(where: ["\(first.key) IS \(second.keyValue)"])
        case (_, .values(let objects, let value)) where objects.isToMany && comparison.operator == .isIn:
            return objects.exists(where: [Self.equal(value, try single(left, comparison), using: comparison)])
        case (_, .list(let elements)): return try compare(try single(left, comparison), elements, using: comparison)
        case (.list(let elements), _) where comparison.operator == .contains:
            return Self.any(of: elements, equal: try single(right, comparison), using: comparison)
        default: return compare(try single(left, comparison), try single(right, comparison), using: comparison)
        }
    }

    private func single(_ expression: SQLExpression, _ comparison: Comparison) throws(MappingFault) -> SQLValue {
        switch expression {
        case .value(let value): return value
        case .values(let objects, var value) where !objects.isToMany:
            if !objects.isRow { value.text = objects.selecting(value.text, suffix: " LIMIT 1") }
            return value
        default:
            throw MappingFault("\(MappingPredicate.comparison(comparison)) compares values that can't be compared")
        }
    }

    private func compareKeys(
        _ left: String, _ right: String, using comparison: Comparison
    ) throws(MappingFault) -> String {
        switch comparison.operator {
        case .equal: return "(\(left) IS \(right))"
        case .notEqual: return "(\(left) IS NOT \(right))"
        default:
            throw MappingFault("objects allow only == and !=: \(MappingPredicate.comparison(comparison))")
        }
    }

    private func compareWithNil(_ objects: SQLObjects, _ comparison: Comparison) throws(MappingFault) -> String {
        switch comparison.operator {
        case .equal: return "(NOT \(objects.exists()))"
        case .notEqual: return objects.exists()
        default:
            throw MappingFault(
                "a comparison with nil allows only == and !=: \(MappingPredicate.comparison(comparison))")
        }
    }

    // MARK: Values

    private func compare(
        _ left: SQLValue, _ elements: [SQLValue], using comparison: Comparison
    ) throws(MappingFault) -> String {
        switch comparison.operator {
        case .isIn: return Self.any(of: elements, equal: left, using: comparison)
        case .between where elements.count == 2:
            return "coalesce(\(left.text) BETWEEN \(elements[0].text) AND \(elements[1].text), 0)"
        default: throw MappingFault("\(MappingPredicate.comparison(comparison)) compares with a list")
        }
    }

    private static func any(
        of elements: [SQLValue], equal value: SQLValue, using comparison: Comparison
    ) -> String {
        guard !elements.isEmpty else { return "0" }
        return "(" + elements.map { equal($0, value, using: comparison) }.joined(separator: " OR ") + ")"
    }

    private static func equal(_ left: SQLValue, _ right: SQLValue, using comparison: Comparison) -> String {
        "\(folded(left, comparison)) IS \(folded(right, comparison))"
    }

    /// Returns the value with case or accents folded, as the comparison requires.
    private static func folded(_ value: SQLValue, _ comparison: Comparison) -> String {
        guard comparison.isCaseInsensitive || comparison.isDiacriticInsensitive else { return value.text }
        return "\(SQLFunction.fold.rawValue)(\(value.text), \(comparison.optionNumber))"
    }

    private func compare(_ left: SQLValue, _ right: SQLValue, using comparison: Comparison) -> String {
        let first = Self.folded(Self.convertedToUUID(left, ifComparedWith: right), comparison)
        let second = Self.folded(Self.convertedToUUID(right, ifComparedWith: left), comparison)
        switch comparison.operator {
        case .equal: return "(\(first) IS \(second))"
        case .notEqual: return "(\(first) IS NOT \(second))"
        case .lessThan: return "coalesce(\(first) < \(second), 0)"
        case .lessThanOrEqual: return "coalesce(\(first) <= \(second), 0)"
        case .greaterThan: return "coalesce(\(first) > \(second), 0)"
        case .greaterThanOrEqual: return "coalesce(\(first) >= \(second), 0)"
        case .beginsWith: return "coalesce(substr(\(first), 1, length(\(second))) = \(second), 0)"
        case .endsWith: return "coalesce(\(second) = '' OR substr(\(first), -length(\(second))) = \(second), 0)"
        case .contains: return "coalesce(instr(\(first), \(second)) > 0, 0)"
        // A text within a text.
        case .isIn: return "coalesce(instr(\(second), \(first)) > 0, 0)"
        case .like: return match(left, right, with: .like, using: comparison)
        case .matches: return match(left, right, with: .matches, using: comparison)
        case .between: return "0"
        }
    }

    private func match(
        _ left: SQLValue, _ right: SQLValue, with function: SQLFunction, using comparison: Comparison
    ) -> String {
        "coalesce(\(function.rawValue)(\(left.text), \(right.text), \(comparison.optionNumber)), 0)"
    }

    /// Returns a text that is compared with a UUID converted to one.
    private static func convertedToUUID(_ value: SQLValue, ifComparedWith other: SQLValue) -> SQLValue {
        guard other.type == .uuid, value.type == .string else { return value }
        return SQLValue(text: "\(SQLFunction.uuid.rawValue)(\(value.text))", type: .uuid)
    }
}

extension MappingPredicate.Comparison {
    /// The options as an argument of `SQLFunction`s: 1 for [c], 2 for [d].
    fileprivate var optionNumber: Int { (isCaseInsensitive ? 1 : 0) + (isDiacriticInsensitive ? 2 : 0) }

    /// Throws if the comparison has a regular expression that can't be used. One that depends on the objects is found
    /// when they are migrated; the migration then fails.
    fileprivate func checkPattern() throws(MappingFault) {
        guard `operator` == .matches, case .constant(.string(let pattern)?) = right else { return }
        do throws(PatternError) { _ = try SQLFunction.matches.pattern(pattern, optionNumber) } catch {
            throw MappingFault(
                "the regular expression “\(pattern)” can't be used: \(error)",
                remedy: "see Documentation/MappingModels.md for the permitted values")
        }
    }
}
