import FoundationEssentials
import ManagedObjectModels
import MappingModels

/// Compiles the functions of the predicate format language, and the messages to strings, numbers and dates that occur
/// in mapping models.
extension ExpressionCompiler {
    mutating func function(
        _ selector: String, _ arguments: [MappingExpression]
    ) throws(MappingFault) -> SQLExpression {
        if let aggregate = Self.aggregates[selector], arguments.count == 1 {
            return .value(try self.aggregate(aggregate, arguments[0]))
        }
        if selector == "objectFrom:withIndex:", arguments.count == 2 { return try element(arguments[0], arguments[1]) }
        if selector == "castObject:toType:", arguments.count == 2 {
            return .value(try cast(arguments[0], arguments[1]))
        }
        if selector == "now" {
            return .value(SQLValue(text: "\(Date().timeIntervalSinceReferenceDate)", type: .date))
        }
        if selector == "random" { return .value(SQLValue(text: "abs(random() % 2147483648)", type: .integer64)) }
        var values: [SQLValue] = []
        for argument in arguments { values.append(try value(argument)) }
        guard let found = Self.arithmetic(selector, values) ?? Self.scalar(selector, values) else {
            throw MappingFault(
                "there is no function \(selector) with \(arguments.count) arguments", remedy: "use a migration policy")
        }
        return .value(found)
    }

    // MARK: Arithmetic

    private static let operators = [
        "add:to:": "+", "from:subtract:": "-", "multiply:by:": "*", "divide:by:": "/", "modulus:by:": "%",
        "bitwiseAnd:with:": "&", "bitwiseOr:with:": "|", "leftshift:by:": "<<", "rightshift:by:": ">>",
    ]

    private static func arithmetic(_ selector: String, _ values: [SQLValue]) -> SQLValue? {
        guard values.count == 2, let sign = operators[selector] else { return nil }
        let isFraction = values.contains(where: \.isFraction)
        // Integers divide to an integer, as `NSNumber`s do. A fraction may be stored as an integer, and so is cast.
        let first = sign == "/" && isFraction ? "CAST(\(values[0].text) AS REAL)" : values[0].text
        let isDate = values[0].type == .date && values[1].type != .date
        return SQLValue(
            text: "(\(first) \(sign) \(values[1].text))", type: isDate ? .date : isFraction ? .double : .integer64,
            classes: .number)
    }

    private static let functions: [String: (name: String, type: AttributeType?)] = [
        "sqrt:": ("gs_sqrt", .double), "ln:": ("gs_ln", .double), "log:": ("gs_log", .double),
        "exp:": ("gs_exp", .double), "floor:": ("gs_floor", .double), "ceiling:": ("gs_ceiling", .double),
        "trunc:": ("gs_trunc", .double), "abs:": ("abs", nil), "uppercase:": ("gs_upper", .string),
        "lowercase:": ("gs_lower", .string), "canonical:": ("gs_canonical", .string), "length:": ("length", .integer64),
        "onesComplement:": ("~", .integer64), "noindex:": ("", nil),
    ]

    private static func scalar(_ selector: String, _ values: [SQLValue]) -> SQLValue? {
        if selector == "raise:toPower:", values.count == 2 {
            return SQLValue(text: "gs_power(\(values[0].text), \(values[1].text))", type: .double)
        }
        guard values.count == 1, let (name, type) = functions[selector] else { return nil }
        return SQLValue(text: "\(name)(\(values[0].text))", type: type ?? values[0].type)
    }

    // MARK: Several values

    private static let aggregates = [
        "sum:": "sum", "average:": "avg", "min:": "min", "max:": "max", "count:": "count",
    ]

    private mutating func aggregate(_ name: String, _ argument: MappingExpression) throws(MappingFault) -> SQLValue {
        switch try compile(argument) {
        case .objects(let objects) where name == "count": return SQLValue(text: count(objects), type: .integer64)
        case .values(let objects, let value) where !objects.isRow:
            guard name != "count" else {
                return SQLValue(text: objects.selecting("count(\(value.text))"), type: .integer64)
            }
            return Self.aggregate(name, of: value, over: objects)
        case .list(let values) where !values.isEmpty: return Self.aggregate(name, values.map(\.text))
        case .value(let value): return Self.aggregate(name, [value.text])
        case .values(_, let value): return Self.aggregate(name, [value.text])
        default: throw MappingFault("\(name) needs values, but \(argument) is not a value")
        }
    }

    private static func aggregate(_ name: String, _ values: [String]) -> SQLValue {
        let sum = "(" + values.map { "coalesce(\($0), 0)" }.joined(separator: " + ") + ")"
        switch name {
        case "sum": return SQLValue(text: sum)
        case "avg": return SQLValue(text: "(\(sum) * 1.0 / \(values.count))", type: .double)
        case "count": return SQLValue(text: "\(values.count)", type: .integer64)
        default:
            return SQLValue(text: values.count == 1 ? values[0] : "\(name)(\(values.joined(separator: ", ")))")
        }
    }

    /// Compiles `collection[FIRST]`, `[LAST]`, `[SIZE]`, `[3]`.
    private mutating func element(
        _ collection: MappingExpression, _ index: MappingExpression
    ) throws(MappingFault) -> SQLExpression {
        guard case .objects(let objects) = try compile(collection), !objects.isRow else {
            throw MappingFault("\(collection) has no elements")
        }
        let order = [objects.place, objects.key].compactMap(\.self)
        let suffix: String
        switch index {
        case .constant(.string("SIZE")?): return .value(SQLValue(text: count(objects), type: .integer64))
        case .constant(.string("FIRST")?): suffix = " ORDER BY \(order.joined(separator: ", ")) LIMIT 1"
        case .constant(.string("LAST")?):
            suffix = " ORDER BY \(order.map { $0 + " DESC" }.joined(separator: ", ")) LIMIT 1"
        case .constant(.integer(let number)?) where number >= 0:
            suffix = " ORDER BY \(order.joined(separator: ", ")) LIMIT 1 OFFSET \(number)"
        default: throw MappingFault("an index must be FIRST, LAST, SIZE or a number")
        }
        guard let table = layout.table(of: objects.entity) else { throw MappingFault("\(objects.entity) has no table") }
        let alias = newAlias()
        return .objects(
            SQLObjects(
                entity: objects.entity, sources: ["\(schema).\(table.name.sqlName) AS \(alias)"],
                conditions: ["\(alias).Z_PK = \(objects.selecting(objects.key, suffix: suffix))"], alias: alias))
    }

    private mutating func cast(
        _ operand: MappingExpression, _ type: MappingExpression
    ) throws(MappingFault) -> SQLValue {
        guard case .constant(.string(let name)?) = type else { throw MappingFault("CAST needs a class name") }
        let value = try value(operand)
        switch name {
        case "NSString" where value.type == .uuid: return Self.call(.uuidText, value, as: .string)
        case "NSString":
            return SQLValue(text: "CAST(\(value.text) AS TEXT)", type: .string, classes: [.text, .null])
        case "NSNumber", "NSDecimalNumber": return SQLValue(text: "CAST(\(value.text) AS NUMERIC)", type: .decimal)
        case "NSDate": return SQLValue(text: "CAST(\(value.text) AS REAL)", type: .date)
        case "NSUUID": return value.type == .uuid ? value : Self.call(.uuid, value, as: .uuid)
        case "NSURL": return SQLValue(text: value.text, type: .uri)
        case "NSData": return SQLValue(text: "CAST(\(value.text) AS BLOB)", type: .binaryData)
        default:
            throw MappingFault(
                "CAST to \(name) is not supported", remedy: "use NSString, NSNumber, NSDate, NSUUID, NSURL or NSData")
        }
    }

    private static func call(_ function: SQLFunction, _ value: SQLValue, as type: AttributeType) -> SQLValue {
        SQLValue(text: "\(function.rawValue)(\(value.text))", type: type)
    }

    // MARK: Messages

    mutating func message(
        _ selector: String, sentTo receiver: MappingExpression, _ arguments: [MappingExpression]
    ) throws(MappingFault) -> SQLExpression {
        if case .variable(let name) = receiver, ["manager", "entityPolicy"].contains(name) {
            throw MappingFault(
                "FUNCTION($\(name), \"\(selector)\") can't be part of another expression",
                remedy: "make it the whole value, or use a migration policy")
        }
        if selector == "count", case .objects(let objects) = try compile(receiver) {
            return .value(SQLValue(text: count(objects), type: .integer64))
        }
        let operand = try value(receiver)
        var values: [String] = []
        for argument in arguments { values.append(try value(argument).text) }
        guard values.count == selector.filter({ $0 == ":" }).count,
            let found = Self.result(of: selector, sentTo: operand, values)
        else {
            throw MappingFault("FUNCTION(…, \"\(selector)\") is not supported", remedy: "use a migration policy")
        }
        return .value(found)
    }

    /// Compiles a property of a value, such as the `length` of a text.
    static func property(_ path: String, of value: SQLValue) throws(MappingFault) -> SQLValue {
        if path == "self" { return value }
        // Data with a marker may be in a file.
        if path == "length", !value.isExternal {
            return SQLValue(text: "\(SQLFunction.length.rawValue)(\(value.text))", type: .integer64)
        }
        guard path != "length", !path.contains(":"), let found = result(of: path, sentTo: value, []) else {
            throw MappingFault("a value has no property “\(path)” here")
        }
        return found
    }

    private static func result(of selector: String, sentTo receiver: SQLValue, _ values: [String]) -> SQLValue? {
        let text = receiver.text
        switch selector {
        case "stringByAppendingString:":
            return SQLValue(text: "(\(text) || \(values[0]))", type: .string, classes: [.text, .null])
        case "uppercaseString": return call(.upper, receiver, as: .string)
        case "lowercaseString": return call(.lower, receiver, as: .string)
        case "capitalizedString": return call(.capitalized, receiver, as: .string)
        case "length": return SQLValue(text: "length(\(text))", type: .integer64)
        case "substringToIndex:": return SQLValue(text: "substr(\(text), 1, \(values[0]))", type: .string)
        case "substringFromIndex:": return SQLValue(text: "substr(\(text), \(values[0]) + 1)", type: .string)
        case "stringByReplacingOccurrencesOfString:withString:":
            return SQLValue(text: "replace(\(text), \(values[0]), \(values[1]))", type: .string)
        case "intValue", "integerValue", "longLongValue", "shortValue", "longValue":
            return SQLValue(text: "CAST(\(text) AS INTEGER)", type: .integer64)
        case "doubleValue", "floatValue": return SQLValue(text: "CAST(\(text) AS REAL)", type: .double)
        case "boolValue": return call(.truth, receiver, as: .boolean)
        case "stringValue", "description", "absoluteString":
            return SQLValue(text: "CAST(\(text) AS TEXT)", type: .string)
        case "UUIDString": return call(.uuidText, receiver, as: .string)
        case "hasPrefix:":
            return SQLValue(text: "(substr(\(text), 1, length(\(values[0]))) = \(values[0]))", type: .boolean)
        case "hasSuffix:":
            return SQLValue(text: "(substr(\(text), -length(\(values[0]))) = \(values[0]))", type: .boolean)
        case "isEqual:", "isEqualToString:", "isEqualToNumber:":
            return SQLValue(text: "(\(text) IS \(values[0]))", type: .boolean)
        case "dateByAddingTimeInterval:": return SQLValue(text: "(\(text) + \(values[0]))", type: .date)
        case "timeIntervalSinceDate:": return SQLValue(text: "(\(text) - \(values[0]))", type: .double)
        case "timeIntervalSinceReferenceDate": return SQLValue(text: text, type: .double)
        // Seconds from 1970 to 2001.
        case "timeIntervalSince1970": return SQLValue(text: "(\(text) + 978307200)", type: .double)
        default: return nil
        }
    }
}
