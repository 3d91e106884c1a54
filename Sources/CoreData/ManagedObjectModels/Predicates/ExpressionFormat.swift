import FoundationEssentials

extension MappingExpression: CustomStringConvertible {
    /// The expression in the format language, which ``init(format:)`` can read.
    public var description: String { ExpressionFormat.text(self, in: .whole) }
}

extension MappingPredicate: CustomStringConvertible {
    /// The condition in the format language, which ``init(format:)`` can read.
    public var description: String { ExpressionFormat.text(self, isWhole: true) }
}

/// Writes expressions and predicates in the format language.
enum ExpressionFormat {
    /// The precedence of the text around an expression, from the weakest.
    enum Place: Int {
        case whole, sum, product, power, path
    }

    // MARK: Expressions

    static func text(_ expression: MappingExpression, in place: Place) -> String {
        switch expression {
        case .constant(let value): value.map(constant) ?? "nil"
        case .evaluatedObject: "SELF"
        case .variable(let name): "$" + name
        case .keyPath(let operand, let path): keyPath(operand, path)
        case .message(let receiver, let selector, let arguments):
            "FUNCTION(" + list([receiver, .constant(.string(selector))] + arguments) + ")"
        case .function(let selector, let arguments): function(selector, arguments, in: place)
        case .aggregate(let elements): "{" + list(elements) + "}"
        case .conditional(let condition, let first, let second):
            "TERNARY(" + text(condition, isWhole: true) + ", " + list([first, second]) + ")"
        case .subquery(let collection, let variable, let condition):
            "SUBQUERY(" + text(collection, in: .whole) + ", $" + variable + ", " + text(condition, isWhole: true) + ")"
        case .fetch(let request, let context, let isCountOnly):
            "FETCH(" + list([request, context]) + ", " + (isCountOnly ? "YES" : "NO") + ")"
        }
    }

    private static func list(_ expressions: [MappingExpression]) -> String {
        expressions.map { text($0, in: .whole) }.joined(separator: ", ")
    }

    private static func constant(_ value: AttributeValue) -> String {
        switch value {
        case .string(let text), .url(let text), .archived(let text): quoted(text)
        case .date(let seconds): "CAST(\(seconds), \"NSDate\")"
        case .decimal(let digits): "CAST(\(quoted(digits)), \"NSDecimalNumber\")"
        case .uuid(let uuid): "CAST(\(quoted(uuid.uuidString)), \"NSUUID\")"
        case .data(let bytes): "CAST(\(quoted(bytes.hexadecimal)), \"NSData\")"
        case .integer, .real, .boolean: value.description
        }
    }

    static func quoted(_ text: String) -> String {
        let escaped = text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
            .replacing("\r", with: "\\r").replacing("\t", with: "\\t")
        return "\"" + escaped + "\""
    }

    private static let reserved: Set<String> = [
        "AND", "OR", "NOT", "IN", "ANY", "SOME", "ALL", "NONE", "LIKE", "CONTAINS", "BEGINSWITH", "ENDSWITH", "MATCHES",
        "BETWEEN", "SELF", "YES", "NO", "TRUE", "FALSE", "NIL", "NULL", "TRUEPREDICATE", "FALSEPREDICATE", "FIRST",
        "LAST", "SIZE", "CAST", "FUNCTION", "TERNARY", "SUBQUERY", "FETCH",
    ]

    private static func keyPath(_ operand: MappingExpression, _ path: String) -> String {
        guard operand == .evaluatedObject else { return text(operand, in: .path) + "." + path }
        let first = path.prefix { $0 != "." }
        return reserved.contains(first.uppercased()) ? "#" + path : path
    }

    private static let signs: [String: (sign: String, place: Place)] = [
        "add:to:": ("+", .sum), "from:subtract:": ("-", .sum), "multiply:by:": ("*", .product),
        "divide:by:": ("/", .product), "raise:toPower:": ("**", .power),
    ]

    private static func function(_ selector: String, _ arguments: [MappingExpression], in place: Place) -> String {
        if let (sign, own) = signs[selector], arguments.count == 2 {
            // The right operand of a sum or product must bind tighter than the operator, and so must a power's base.
            let left = text(arguments[0], in: own == .power ? .path : Place(rawValue: own.rawValue - 1) ?? .whole)
            let right = text(arguments[1], in: own == .power ? .product : own)
            let written = left + " " + sign + " " + right
            return own.rawValue <= place.rawValue ? "(" + written + ")" : written
        }
        switch (selector, arguments.count) {
        case ("castObject:toType:", 2): return "CAST(" + list(arguments) + ")"
        case ("objectFrom:withIndex:", 2):
            let index: String
            if case .constant(.string(let word)?) = arguments[1] { index = word } else { index = list([arguments[1]]) }
            return text(arguments[0], in: .path) + "[" + index + "]"
        default: return selector + "(" + list(arguments) + ")"
        }
    }

    // MARK: Predicates

    static func text(_ predicate: MappingPredicate, isWhole: Bool) -> String {
        switch predicate {
        case .constant(let truth): truth ? "TRUEPREDICATE" : "FALSEPREDICATE"
        case .comparison(let comparison): text(comparison)
        case .and(let parts): joined(parts, by: " AND ", isWhole: isWhole)
        case .or(let parts): joined(parts, by: " OR ", isWhole: isWhole)
        case .not(let part): "NOT " + text(part, isWhole: false)
        }
    }

    private static func joined(_ parts: [MappingPredicate], by separator: String, isWhole: Bool) -> String {
        let written = parts.map { text($0, isWhole: false) }.joined(separator: separator)
        return isWhole ? written : "(" + written + ")"
    }

    private static func text(_ comparison: MappingPredicate.Comparison) -> String {
        let options =
            (comparison.isCaseInsensitive ? "c" : "") + (comparison.isDiacriticInsensitive ? "d" : "")
        let modifier =
            switch comparison.modifier {
            case .direct: ""
            case .all: "ALL "
            case .any: "ANY "
            }
        let sign = comparison.operator.sign + (options.isEmpty ? "" : "[\(options)]")
        return modifier + text(comparison.left, in: .whole) + " " + sign + " " + text(comparison.right, in: .whole)
    }
}

extension MappingPredicate.Comparison.Operator {
    fileprivate var sign: String {
        switch self {
        case .lessThan: "<"
        case .lessThanOrEqual: "<="
        case .greaterThan: ">"
        case .greaterThanOrEqual: ">="
        case .equal: "=="
        case .notEqual: "!="
        case .matches: "MATCHES"
        case .like: "LIKE"
        case .beginsWith: "BEGINSWITH"
        case .endsWith: "ENDSWITH"
        case .isIn: "IN"
        case .contains: "CONTAINS"
        case .between: "BETWEEN"
        }
    }
}

extension [UInt8] {
    /// The bytes as lowercase text with two digits each.
    package var hexadecimal: String {
        map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    /// Creates bytes from pairs of hexadecimal digits; returns nil for any other text.
    package init?(hexadecimal text: String) {
        let digits = text.utf8.map { UInt8(String(UnicodeScalar($0)), radix: 16) }
        guard digits.count % 2 == 0, !digits.contains(nil) else { return nil }
        let values = digits.compactMap(\.self)
        self = stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    }
}
