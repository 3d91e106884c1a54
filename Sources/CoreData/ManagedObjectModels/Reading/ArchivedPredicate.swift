import FoundationEssentials
import PropertyLists

/// A formatter that writes archived `NSPredicate`s and `NSExpression`s in predicate format syntax (Predicate
/// Programming Guide, "Predicate Format String Syntax"). A version hash covers a derivation's text, so every character
/// matters.
///
/// An archive's objects may form cycles, or each refer twice to the next. The formatter limits depth and length, and
/// writes “…” for the rest.
struct ArchivedPredicate {
    private static let maximumDepth = 100
    /// The characters that may still be written. Each part costs some, even if it writes none.
    private var remainingCharacters = 200_000

    private init() {}

    static func format(_ predicate: ArchivedObject) -> String {
        var formatter = ArchivedPredicate()
        return formatter.format(predicate, depth: 0)
    }

    static func format(expression: ArchivedObject) -> String {
        var formatter = ArchivedPredicate()
        return formatter.format(expression: expression, depth: 0)
    }

    private mutating func spend(_ characters: Int) -> Bool {
        remainingCharacters -= characters + 20
        return remainingCharacters > 0
    }

    private mutating func limited(_ text: String) -> String { spend(text.utf8.count) ? text : "…" }

    // MARK: Predicates

    private mutating func format(_ predicate: ArchivedObject, depth: Int) -> String {
        guard depth < Self.maximumDepth, spend(0) else { return "…" }
        switch predicate.className {
        case "NSComparisonPredicate": return comparison(predicate, depth)
        case "NSCompoundPredicate": return compound(predicate, depth)
        case "NSFalsePredicate": return "FALSEPREDICATE"
        case "NSTruePredicate": return "TRUEPREDICATE"
        // Not in format syntax, so that nobody takes it for another condition.
        default: return limited("<\(predicate.className)>")
        }
    }

    private mutating func compound(_ predicate: ArchivedObject, _ depth: Int) -> String {
        var parts: [String] = []
        for part in predicate.elements("NSSubpredicates") where remainingCharacters > 0 {
            let text = format(part, depth: depth + 1)
            let isJoined = part.className == "NSCompoundPredicate" && part.integer("NSCompoundPredicateType") != 0
            parts.append(isJoined ? "(\(text))" : text)
        }
        switch predicate.integer("NSCompoundPredicateType") {
        case 0?: return "NOT " + (parts.first ?? "")
        case 2?: return parts.joined(separator: " OR ")
        default: return parts.joined(separator: " AND ")
        }
    }

    private mutating func comparison(_ predicate: ArchivedObject, _ depth: Int) -> String {
        let operation = predicate.object("NSPredicateOperator")
        let options = operation?.integer("NSFlags") ?? operation?.integer("NSOptions") ?? 0
        let suffix = options & 3 == 0 ? "" : "[" + (options & 1 != 0 ? "c" : "") + (options & 2 != 0 ? "d" : "") + "]"
        let modifier =
            switch operation?.integer("NSModifier") {
            case 1?: "ALL "
            case 2?: "ANY "
            default: ""
            }
        let sign = Self.symbol(operation?.integer("NSOperatorType") ?? 4)
        let lhs = side("NSLeftExpression", of: predicate, depth)
        let rhs = side("NSRightExpression", of: predicate, depth)
        return modifier + lhs + " " + sign + suffix + " " + rhs
    }

    private mutating func side(_ field: String, of predicate: ArchivedObject, _ depth: Int) -> String {
        guard let expression = predicate.object(field) else { return "nil" }
        return format(expression: expression, depth: depth + 1)
    }

    /// Returns the symbol of an `NSPredicateOperatorType`.
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

    // MARK: Expressions

    private mutating func format(expression: ArchivedObject, depth: Int) -> String {
        guard depth < Self.maximumDepth, spend(0) else { return "…" }
        switch expression.className {
        case "NSConstantValueExpression": return limited(Self.constant(expression))
        case "NSSelfExpression": return "SELF"
        case "NSVariableExpression": return limited("$" + (expression.string("NSVariable") ?? ""))
        case "NSKeyPathSpecifierExpression": return limited(expression.string("NSKeyPath") ?? "")
        case "NSKeyPathExpression": return keyPath(expression, depth)
        case "NSAggregateExpression":
            return "{" + elements("NSCollection", of: expression, depth).joined(separator: ", ") + "}"
        case "NSFunctionExpression": return function(expression, depth)
        case "NSTernaryExpression":
            let condition = predicate(of: expression, depth)
            let parts = ["NSTrueExpression", "NSFalseExpression"].map { side($0, of: expression, depth) }
            return "TERNARY(" + ([condition] + parts).joined(separator: ", ") + ")"
        case "NSSubqueryExpression":
            let parts = ["NSCollection", "NSVariableExpression"].map { side($0, of: expression, depth) }
            return "SUBQUERY(" + (parts + [predicate(of: expression, depth)]).joined(separator: ", ") + ")"
        default: return limited("<\(expression.className)>")
        }
    }

    private mutating func predicate(of expression: ArchivedObject, _ depth: Int) -> String {
        expression.object("NSPredicate").map { format($0, depth: depth + 1) } ?? "TRUEPREDICATE"
    }

    private mutating func elements(_ field: String, of expression: ArchivedObject, _ depth: Int) -> [String] {
        var found: [String] = []
        for element in expression.elements(field) where remainingCharacters > 0 {
            found.append(format(expression: element, depth: depth + 1))
        }
        return found
    }

    private mutating func operand(of expression: ArchivedObject, _ depth: Int) -> String {
        guard let operand = expression.object("NSOperand") else { return "SELF" }
        return format(expression: operand, depth: depth + 1)
    }

    private mutating func keyPath(_ expression: ArchivedObject, _ depth: Int) -> String {
        let path = elements("NSArguments", of: expression, depth).joined(separator: ".")
        let isPlain = expression.object("NSOperand").map { $0.className == "NSSelfExpression" } ?? true
        return isPlain ? path : operand(of: expression, depth) + "." + path
    }

    private mutating func function(_ expression: ArchivedObject, _ depth: Int) -> String {
        let selector = limited(expression.string("NSSelectorName") ?? "")
        let arguments = elements("NSArguments", of: expression, depth)
        let isBuiltIn = expression.object("NSOperand")?.string("NSConstantValueClassName") == "_NSPredicateUtilities"
        guard isBuiltIn else {
            let parts = [operand(of: expression, depth), "\"\(selector)\""] + arguments
            return "FUNCTION(" + parts.joined(separator: ", ") + ")"
        }
        let arithmetic = ["add:to:": "+", "from:subtract:": "-", "multiply:by:": "*", "divide:by:": "/"]
        if let sign = arithmetic[selector], arguments.count == 2 {
            let operands = expression.elements("NSArguments").map { $0.string("NSSelectorName") ?? "" }
            let isProduct = sign == "*" || sign == "/"
            // An operand of a weaker sign has parentheses, on the right side one of an equal sign, too.
            func operand(_ index: Int) -> String {
                guard operands.count == 2, let inner = arithmetic[operands[index]] else { return arguments[index] }
                let isWeaker = isProduct && (inner == "+" || inner == "-")
                let isEqual = isProduct == (inner == "*" || inner == "/")
                return isWeaker || index == 1 && isEqual ? "(\(arguments[index]))" : arguments[index]
            }
            return operand(0) + " \(sign) " + operand(1)
        }
        return selector + "(" + arguments.joined(separator: ", ") + ")"
    }

    /// Returns the text as a constant in format syntax.
    static func literal(_ text: String) -> String {
        "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }

    private static func constant(_ expression: ArchivedObject) -> String {
        switch expression["NSConstantValue"] {
        case nil: return "nil"
        case .string(let text)?: return literal(text)
        case .integer(let number)?: return "\(number)"
        case .real(let number)?: return "\(number)"
        case .boolean(let truth)?: return truth ? "YES" : "NO"
        default: break
        }
        guard let object = expression.object("NSConstantValue") else { return "nil" }
        switch object.className {
        case "NSDate":
            if case .real(let seconds)? = object["NS.time"] { return "CAST(\(seconds.shortText), \"NSDate\")" }
            if case .integer(let seconds)? = object["NS.time"] { return "CAST(\(seconds), \"NSDate\")" }
        case "NSDecimalNumber":
            if let digits = ArchivedDecimal.digits(object) { return "CAST(\(literal(digits)), \"NSDecimalNumber\")" }
        case "NSUUID":
            if let bytes = object["NS.uuidbytes"]?.data, bytes.count == 16 {
                let uuid = bytes.withUnsafeBytes { UUID(uuid: $0.loadUnaligned(as: uuid_t.self)) }
                return "CAST(\(literal(uuid.uuidString)), \"NSUUID\")"
            }
        case "NSData", "NSMutableData":
            if let bytes = object["NS.data"]?.data { return "CAST(\(literal(bytes.hexadecimal)), \"NSData\")" }
        default: break
        }
        return object.string("NS.string").map(literal) ?? "<\(object.className)>"
    }
}
