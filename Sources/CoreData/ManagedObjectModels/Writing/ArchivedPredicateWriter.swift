import FoundationEssentials
import PropertyLists

/// Archives expressions and predicates with the classes and fields that they have in Core Data's model caches.
/// Hand-written because Foundation on Linux has no expressions that could be archived.
extension KeyedArchiveBuilder {
    // MARK: Expressions

    package mutating func expression(_ expression: MappingExpression) -> PropertyListValue {
        switch expression {
        case .constant(let value):
            let value = value.map { constant($0) } ?? Self.null
            return typed("NSConstantValueExpression", 0, ["NSConstantValue": value])
        case .evaluatedObject: return typed("NSSelfExpression", 1, [:])
        case .variable(let name): return typed("NSVariableExpression", 2, ["NSVariable": text(name)])
        case .keyPath(let operand, let path): return keyPath(path, of: operand)
        case .message(let receiver, let selector, let arguments):
            let receiver = self.expression(receiver)
            return function(selector, of: receiver, arguments)
        case .function(let selector, let arguments):
            let name = text("_NSPredicateUtilities")
            let receiver = typed("NSConstantValueExpression", 0, ["NSConstantValueClassName": name])
            return function(selector, of: receiver, arguments)
        case .aggregate(let elements):
            let list = elements.map { self.expression($0) }
            return typed("NSAggregateExpression", 14, ["NSCollection": array(list)])
        case .conditional(let condition, let first, let second):
            return typed(
                "NSTernaryExpression", 20,
                [
                    "NSPredicate": predicate(condition), "NSTrueExpression": self.expression(first),
                    "NSFalseExpression": self.expression(second),
                ])
        case .subquery(let collection, let variable, let condition):
            return typed(
                "NSSubqueryExpression", 13,
                [
                    "NSCollection": self.expression(collection),
                    "NSVariableExpression": self.expression(.variable(variable)), "NSPredicate": predicate(condition),
                ])
        case .fetch(let request, let context, let isCountOnly):
            return typed(
                "NSFetchRequestExpression", 50,
                [
                    "NSFRExpression": self.expression(request), "NSMOCExpression": self.expression(context),
                    "NSCountOnlyFlag": .boolean(isCountOnly),
                ])
        }
    }

    /// Adds an expression with its `NSExpressionType`.
    private mutating func typed(
        _ className: String, _ type: Int64, _ fields: [String: PropertyListValue]
    ) -> PropertyListValue {
        object(className, fields.merging(["NSExpressionType": .integer(type)]) { field, _ in field })
    }

    private mutating func keyPath(_ path: String, of operand: MappingExpression) -> PropertyListValue {
        let specifier = typed("NSKeyPathSpecifierExpression", 10, ["NSKeyPath": text(path)])
        let isOwn = operand == .evaluatedObject
        return typed(
            "NSKeyPathExpression", isOwn ? 3 : 4,
            [
                "NSOperand": expression(operand), "NSArguments": array([specifier], "NSMutableArray"),
                "NSSelectorName": text(isOwn && !path.contains(".") ? "valueForKey:" : "valueForKeyPath:"),
            ])
    }

    private mutating func function(
        _ selector: String, of receiver: PropertyListValue, _ arguments: [MappingExpression]
    ) -> PropertyListValue {
        let list = arguments.map { expression($0) }
        return typed(
            "NSFunctionExpression", 4,
            ["NSOperand": receiver, "NSSelectorName": text(selector), "NSArguments": array(list)])
    }

    // MARK: Predicates

    package mutating func predicate(_ predicate: MappingPredicate) -> PropertyListValue {
        switch predicate {
        case .constant(let truth): return object(truth ? "NSTruePredicate" : "NSFalsePredicate", [:])
        case .and(let parts): return compound(1, parts)
        case .or(let parts): return compound(2, parts)
        case .not(let part): return compound(0, [part])
        case .comparison(let comparison):
            return object(
                "NSComparisonPredicate",
                [
                    "NSLeftExpression": expression(comparison.left), "NSRightExpression": expression(comparison.right),
                    "NSPredicateOperator": comparisonOperator(comparison),
                ])
        }
    }

    private mutating func compound(_ type: Int64, _ parts: [MappingPredicate]) -> PropertyListValue {
        let list = parts.map { predicate($0) }
        return object(
            "NSCompoundPredicate", ["NSCompoundPredicateType": .integer(type), "NSSubpredicates": array(list)])
    }

    private mutating func comparisonOperator(_ comparison: MappingPredicate.Comparison) -> PropertyListValue {
        let type = Int64(comparison.operator.rawValue)
        let options = PropertyListValue.integer(
            (comparison.isCaseInsensitive ? 1 : 0) | (comparison.isDiacriticInsensitive ? 2 : 0))
        let (className, own): (String, [String: PropertyListValue]) =
            switch comparison.operator {
            case .equal: ("NSEqualityPredicateOperator", ["NSNegate": .boolean(false), "NSOptions": options])
            case .notEqual: ("NSEqualityPredicateOperator", ["NSNegate": .boolean(true), "NSOptions": options])
            case .lessThan, .lessThanOrEqual, .greaterThan, .greaterThanOrEqual:
                ("NSComparisonPredicateOperator", ["NSVariant": .integer(type), "NSOptions": options])
            case .matches: ("NSMatchingPredicateOperator", ["NSFlags": options])
            case .like: ("NSLikePredicateOperator", ["NSFlags": options])
            case .beginsWith: ("NSSubstringPredicateOperator", ["NSFlags": options, "NSPosition": .integer(0)])
            case .endsWith: ("NSSubstringPredicateOperator", ["NSFlags": options, "NSPosition": .integer(1)])
            case .isIn, .contains: ("NSInPredicateOperator", ["NSFlags": options])
            case .between: ("NSBetweenPredicateOperator", [:])
            }
        let common: [String: PropertyListValue] = [
            "NSOperatorType": .integer(type), "NSModifier": .integer(Int64(comparison.modifier.rawValue)),
        ]
        return object(className, common.merging(own) { field, _ in field })
    }

    // MARK: Constants

    /// Adds the value of a default or of a constant expression.
    package mutating func constant(_ value: AttributeValue) -> PropertyListValue {
        switch value {
        case .integer(let number): scalar(.integer(number))
        case .real(let number): scalar(.real(number))
        case .boolean(let truth): scalar(.boolean(truth))
        case .string(let text): self.text(text)
        case .date(let seconds): object("NSDate", ["NS.time": .real(seconds)])
        case .data(let bytes): object("NSData", ["NS.data": .data(bytes)])
        case .uuid(let uuid): object("NSUUID", ["NS.uuidbytes": .data(withUnsafeBytes(of: uuid.uuid) { Array($0) })])
        case .url(let text): object("NSURL", ["NS.base": Self.null, "NS.relative": self.text(text)])
        case .decimal(let digits): decimal(digits)
        // Only the class is known, so the object can't be archived.
        case .archived: Self.null
        }
    }

    /// Archives a decimal number, perhaps with an exponent, as 16-bit words, lowest first, and a power of ten.
    private mutating func decimal(_ digits: String) -> PropertyListValue {
        let number = digits.drop { $0 == "-" || $0 == "+" }.split { $0 == "e" || $0 == "E" }
        let parts = number.first?.split(separator: ".", omittingEmptySubsequences: false) ?? []
        let fraction = parts.count > 1 ? String(parts[1]) : ""
        guard var mantissa = UInt128((parts.first.map(String.init) ?? "0") + fraction),
            let power = number.count > 1 ? Int64(number[1]) : 0
        else { return Self.null }
        var bytes: [UInt8] = []
        var length: Int64 = 0
        for word in Int64(1)...8 {
            if mantissa != 0 { length = word }
            bytes += [UInt8(mantissa & 0xFF), UInt8(mantissa >> 8 & 0xFF)]
            mantissa >>= 16
        }
        return object(
            "NSDecimalNumber",
            [
                "NS.mantissa": .data(bytes), "NS.mantissa.bo": .integer(1), "NS.length": .integer(length),
                "NS.exponent": .integer(power - Int64(fraction.count)), "NS.negative": .boolean(digits.hasPrefix("-")),
                "NS.compact": .boolean(true),
            ])
    }
}
