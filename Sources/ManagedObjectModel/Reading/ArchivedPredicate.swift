import FoundationEssentials

/// Archived `NSPredicate`s and `NSExpression`s as the format language writes them (Predicate Programming Guide,
/// "Predicate Format String Syntax"). A version hash covers a derivation's text, so each character counts.
enum ArchivedPredicate {
    private static let deepest = 100

    static func format(_ predicate: ArchivedObject) -> String { format(predicate, depth: 0) }

    static func format(expression: ArchivedObject) -> String { format(expression: expression, depth: 0) }

    private static func format(_ predicate: ArchivedObject, depth: Int) -> String {
        guard depth < deepest else { return "…" }
        switch predicate.className {
        case "NSComparisonPredicate": return comparison(predicate, depth)
        case "NSCompoundPredicate": return compound(predicate, depth)
        case "NSFalsePredicate": return "FALSEPREDICATE"
        default: return "TRUEPREDICATE"
        }
    }

    private static func compound(_ predicate: ArchivedObject, _ depth: Int) -> String {
        let parts = predicate.elements("NSSubpredicates").map { part in
            let text = format(part, depth: depth + 1)
            return part.className == "NSCompoundPredicate" && part.integer("NSCompoundPredicateType") != 0
                ? "(\(text))" : text
        }
        switch predicate.integer("NSCompoundPredicateType") {
        case 0?: return "NOT " + (parts.first ?? "")
        case 2?: return parts.joined(separator: " OR ")
        default: return parts.joined(separator: " AND ")
        }
    }

    private static func comparison(_ predicate: ArchivedObject, _ depth: Int) -> String {
        let operation = predicate.object("NSPredicateOperator")
        let options = operation?.integer("NSFlags") ?? operation?.integer("NSOptions") ?? 0
        let suffix = options & 3 == 0 ? "" : "[" + (options & 1 != 0 ? "c" : "") + (options & 2 != 0 ? "d" : "") + "]"
        let modifier =
            operation?.integer("NSModifier") == 1 ? "ALL " : operation?.integer("NSModifier") == 2 ? "ANY " : ""
        func side(_ field: String) -> String {
            predicate.object(field).map { format(expression: $0, depth: depth + 1) } ?? "nil"
        }
        let sign = symbol(operation?.integer("NSOperatorType") ?? 4)
        return modifier + side("NSLeftExpression") + " " + sign + suffix + " " + side("NSRightExpression")
    }

    /// `NSPredicateOperatorType`.
    private static func symbol(_ type: Int64) -> String {
        switch type {
        case 0: "<"
        case 1: "<="
        case 2: ">"
        case 3: ">="
        case 5: "!="
        case 6: "MATCHES"
        case 7: "LIKE"
        case 8: "BEGINSWITH"
        case 9: "ENDSWITH"
        case 10: "IN"
        case 99: "CONTAINS"
        case 100: "BETWEEN"
        default: "=="
        }
    }

    private static func format(expression: ArchivedObject, depth: Int) -> String {
        guard depth < deepest else { return "…" }
        func operand() -> String {
            expression.object("NSOperand").map { format(expression: $0, depth: depth + 1) } ?? "SELF"
        }
        func elements(_ field: String) -> [String] {
            expression.elements(field).map { format(expression: $0, depth: depth + 1) }
        }
        switch expression.className {
        case "NSConstantValueExpression": return constant(expression)
        case "NSSelfExpression": return "SELF"
        case "NSVariableExpression": return "$" + (expression.string("NSVariable") ?? "")
        case "NSKeyPathSpecifierExpression": return expression.string("NSKeyPath") ?? ""
        case "NSKeyPathExpression":
            let path = elements("NSArguments").joined(separator: ".")
            let isPlain = expression.object("NSOperand").map { $0.className == "NSSelfExpression" } ?? true
            return isPlain ? path : operand() + "." + path
        case "NSAggregateExpression": return "{" + elements("NSCollection").joined(separator: ", ") + "}"
        case "NSFunctionExpression": return function(expression, operand(), elements("NSArguments"))
        default: return "\(expression.className)"
        }
    }

    private static func function(_ expression: ArchivedObject, _ operand: String, _ arguments: [String]) -> String {
        let selector = expression.string("NSSelectorName") ?? ""
        let isBuiltIn = expression.object("NSOperand")?.string("NSConstantValueClassName") == "_NSPredicateUtilities"
        guard isBuiltIn else {
            return "FUNCTION(" + ([operand, "\"\(selector)\""] + arguments).joined(separator: ", ") + ")"
        }
        let arithmetic = ["add:to:": "+", "from:subtract:": "-", "multiply:by:": "*", "divide:by:": "/"]
        if let sign = arithmetic[selector], arguments.count == 2 { return arguments.joined(separator: " \(sign) ") }
        return selector + "(" + arguments.joined(separator: ", ") + ")"
    }

    private static func constant(_ expression: ArchivedObject) -> String {
        switch expression["NSConstantValue"] {
        case nil: return "nil"
        case .string(let text)?:
            return "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
        case .integer(let number)?: return "\(number)"
        case .real(let number)?: return "\(number)"
        case .boolean(let truth)?: return truth ? "1" : "0"
        default: break
        }
        guard let object = expression.object("NSConstantValue") else { return "nil" }
        if case .real(let seconds)? = object["NS.time"] { return "CAST(\(seconds), \"NSDate\")" }
        return object.string("NS.string").map { "\"\($0)\"" } ?? object.className
    }
}
