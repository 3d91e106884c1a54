import MappingModels

/// Conditions: 1 or 0, never NULL, since `NOT` would leave that as it is.
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
        let left = try compile(comparison.left)
        let right = try compile(comparison.right)
        switch (left, right) {
        case (.values(let objects, let value), _) where objects.isToMany && comparison.modifier != .direct:
            let one = try compare(.value(value), right, comparison)
            if comparison.modifier == .any { return objects.exists(where: [one]) }
            return "(NOT \(objects.exists(where: ["NOT " + one])))"
        case (.values(let objects, let value), .value(let sought)) where objects.isToMany:
            guard comparison.operator == .contains else { break }
            return objects.exists(where: [Self.isSame(value, sought, comparison)])
        case (.objects(let objects), _) where objects.isToMany && comparison.modifier != .direct:
            guard case .objects(let other) = right, !other.isToMany else { break }
            return objects.exists(where: ["\(objects.key) IS \(other.keyValue)"])
        default: return try compare(left, right, comparison)
        }
        throw MappingFault(
            "\(MappingPredicate.comparison(comparison)) compares several values", remedy: "put ANY or ALL before it")
    }

    private func compare(
        _ left: SQLExpression, _ right: SQLExpression, _ comparison: Comparison
    ) throws(MappingFault) -> String {
        switch (left, right) {
        case (.objects(let one), .objects(let other)) where !one.isToMany && !other.isToMany:
            return try compareKeys(one.keyValue, other.keyValue, comparison)
        case (.objects(let one), .value(let other)) where other.text == "NULL":
            return try isThere(one, comparison)
        case (.value(let other), .objects(let one)) where other.text == "NULL":
            return try isThere(one, comparison)
        case (.objects(let one), .objects(let other)) where other.isToMany && comparison.operator == .isIn:
            return other.exists(where: ["\(other.key) IS \(one.keyValue)"])
        case (.objects(let one), .objects(let other)) where one.isToMany && comparison.operator == .contains:
            return one.exists(where: ["\(one.key) IS \(other.keyValue)"])
        case (_, .values(let objects, let value)) where objects.isToMany && comparison.operator == .isIn:
            return objects.exists(where: [Self.isSame(value, try single(left, comparison), comparison)])
        case (_, .list(let elements)): return try compare(try single(left, comparison), elements, comparison)
        case (.list(let elements), _) where comparison.operator == .contains:
            return Self.any(elements, try single(right, comparison), comparison)
        default: return compare(try single(left, comparison), try single(right, comparison), comparison)
        }
    }

    private func single(_ expression: SQLExpression, _ comparison: Comparison) throws(MappingFault) -> SQLValue {
        switch expression {
        case .value(let value): return value
        case .values(let objects, var value) where !objects.isToMany:
            if !objects.isRow { value.text = objects.selecting(value.text, suffix: " LIMIT 1") }
            return value
        default: throw MappingFault("\(MappingPredicate.comparison(comparison)) compares what can't be compared")
        }
    }

    private func compareKeys(
        _ one: String, _ other: String, _ comparison: Comparison
    ) throws(MappingFault) -> String {
        switch comparison.operator {
        case .equal: return "(\(one) IS \(other))"
        case .notEqual: return "(\(one) IS NOT \(other))"
        default: throw MappingFault("objects are the same or not: \(MappingPredicate.comparison(comparison))")
        }
    }

    private func isThere(_ objects: SQLObjects, _ comparison: Comparison) throws(MappingFault) -> String {
        switch comparison.operator {
        case .equal: return "(NOT \(objects.exists()))"
        case .notEqual: return objects.exists()
        default: throw MappingFault("objects are there or not: \(MappingPredicate.comparison(comparison))")
        }
    }

    // MARK: Values

    private func compare(
        _ left: SQLValue, _ elements: [SQLValue], _ comparison: Comparison
    ) throws(MappingFault) -> String {
        switch comparison.operator {
        case .isIn: return Self.any(elements, left, comparison)
        case .between where elements.count == 2:
            return "coalesce(\(left.text) BETWEEN \(elements[0].text) AND \(elements[1].text), 0)"
        default: throw MappingFault("\(MappingPredicate.comparison(comparison)) compares with a list")
        }
    }

    private static func any(_ elements: [SQLValue], _ value: SQLValue, _ comparison: Comparison) -> String {
        guard !elements.isEmpty else { return "0" }
        return "(" + elements.map { isSame($0, value, comparison) }.joined(separator: " OR ") + ")"
    }

    private static func isSame(_ one: SQLValue, _ other: SQLValue, _ comparison: Comparison) -> String {
        "\(folded(one, comparison)) IS \(folded(other, comparison))"
    }

    /// As it is compared: without case, or without accents.
    private static func folded(_ value: SQLValue, _ comparison: Comparison) -> String {
        guard comparison.isCaseInsensitive || comparison.isDiacriticInsensitive else { return value.text }
        return "\(SQLFunction.fold.rawValue)(\(value.text), \(comparison.optionNumber))"
    }

    private func compare(_ left: SQLValue, _ right: SQLValue, _ comparison: Comparison) -> String {
        let one = Self.folded(Self.identified(left, as: right), comparison)
        let other = Self.folded(Self.identified(right, as: left), comparison)
        switch comparison.operator {
        case .equal: return "(\(one) IS \(other))"
        case .notEqual: return "(\(one) IS NOT \(other))"
        case .lessThan: return "coalesce(\(one) < \(other), 0)"
        case .lessThanOrEqual: return "coalesce(\(one) <= \(other), 0)"
        case .greaterThan: return "coalesce(\(one) > \(other), 0)"
        case .greaterThanOrEqual: return "coalesce(\(one) >= \(other), 0)"
        case .beginsWith: return "coalesce(substr(\(one), 1, length(\(other))) = \(other), 0)"
        case .endsWith: return "coalesce(\(other) = '' OR substr(\(one), -length(\(other))) = \(other), 0)"
        case .contains: return "coalesce(instr(\(one), \(other)) > 0, 0)"
        // One text in another.
        case .isIn: return "coalesce(instr(\(other), \(one)) > 0, 0)"
        case .like: return matching(SQLFunction.like, left, right, comparison)
        case .matches: return matching(SQLFunction.matches, left, right, comparison)
        case .between: return "0"
        }
    }

    private func matching(
        _ function: SQLFunction, _ left: SQLValue, _ right: SQLValue, _ comparison: Comparison
    ) -> String {
        "coalesce(\(function.rawValue)(\(left.text), \(right.text), \(comparison.optionNumber)), 0)"
    }

    /// A text that is compared with a UUID is one.
    private static func identified(_ value: SQLValue, as other: SQLValue) -> SQLValue {
        guard other.type == .uuid, value.type == .string else { return value }
        return SQLValue(text: "\(SQLFunction.uuid.rawValue)(\(value.text))", type: .uuid)
    }
}

extension MappingPredicate.Comparison {
    /// As `SQLFunction`s take it: 1 for [c], 2 for [d].
    fileprivate var optionNumber: Int { (isCaseInsensitive ? 1 : 0) + (isDiacriticInsensitive ? 2 : 0) }
}
