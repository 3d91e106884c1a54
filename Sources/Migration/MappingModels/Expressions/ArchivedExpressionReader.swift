import FoundationEssentials
import ManagedObjectModels
import PropertyLists
import XMLDocuments

/// Reads archived `NSExpression`s and `NSPredicate`s from Xcode's and compiled mapping models. Hand-written because
/// Foundation can't decode them on Linux.
struct ArchivedExpressionReader {
    private static let maximumDepth = 60
    /// The number of objects that may still be read. An object counts each time it is referenced.
    private var remaining = 20_000

    /// Throws `MappingFault`.
    static func expression(_ bytes: [UInt8]) throws(MappingFault) -> MappingExpression {
        let archive: KeyedArchive
        do { archive = try KeyedArchive(bytes) } catch {
            throw MappingFault("the archived expression is damaged: \(error.message)")
        }
        return try expression(archive.root)
    }

    static func expression(_ object: ArchivedObject) throws(MappingFault) -> MappingExpression {
        var reader = ArchivedExpressionReader()
        return try reader.expression(object, depth: 0)
    }

    private mutating func countObject(atDepth depth: Int) throws(MappingFault) {
        remaining -= 1
        guard depth < Self.maximumDepth, remaining > 0 else {
            throw MappingFault("the archived expression is too long or nested too deep")
        }
    }

    // MARK: Expressions

    private mutating func expression(_ object: ArchivedObject, depth: Int) throws(MappingFault) -> MappingExpression {
        try countObject(atDepth: depth)
        switch object.className {
        case "NSConstantValueExpression": return .constant(try Self.constant(object))
        case "NSSelfExpression": return .evaluatedObject
        case "NSVariableExpression": return .variable(try Self.text(object, "NSVariable"))
        case "NSKeyPathSpecifierExpression": return .keyPath(of: .evaluatedObject, try Self.text(object, "NSKeyPath"))
        case "NSKeyPathExpression": return try keyPath(object, depth: depth)
        case "NSFunctionExpression": return try function(object, depth: depth)
        case "NSAggregateExpression": return .aggregate(try elements(object, "NSCollection", depth: depth))
        case "NSTernaryExpression":
            return .conditional(
                try predicate(try Self.object(object, "NSPredicate"), depth: depth + 1),
                try part(object, "NSTrueExpression", depth: depth), try part(object, "NSFalseExpression", depth: depth))
        case "NSSubqueryExpression":
            guard case .variable(let name) = try part(object, "NSVariableExpression", depth: depth) else {
                throw MappingFault("a subquery has no variable")
            }
            return .subquery(
                try part(object, "NSCollection", depth: depth), variable: name,
                try predicate(try Self.object(object, "NSPredicate"), depth: depth + 1))
        case "NSFetchRequestExpression":
            return .fetch(
                try part(object, "NSFRExpression", depth: depth), in: try part(object, "NSMOCExpression", depth: depth),
                isCountOnly: object.isTrue("NSCountOnlyFlag"))
        default: throw MappingFault("an expression of class \(object.className) can't be read")
        }
    }

    private mutating func part(
        _ object: ArchivedObject, _ field: String, depth: Int
    ) throws(MappingFault) -> MappingExpression {
        try expression(try Self.object(object, field), depth: depth + 1)
    }

    private mutating func elements(
        _ object: ArchivedObject, _ field: String, depth: Int
    ) throws(MappingFault) -> [MappingExpression] {
        var expressions: [MappingExpression] = []
        for element in object.elements(field) { expressions.append(try expression(element, depth: depth + 1)) }
        return expressions
    }

    private mutating func keyPath(_ object: ArchivedObject, depth: Int) throws(MappingFault) -> MappingExpression {
        var keys: [String] = []
        for argument in try elements(object, "NSArguments", depth: depth) {
            switch argument {
            case .keyPath(of: .evaluatedObject, let key): keys.append(key)
            case .constant(.string(let key)?): keys.append(key)
            default: throw MappingFault("a key path's key is not a name")
            }
        }
        let path = keys.joined(separator: ".")
        guard !path.isEmpty else { throw MappingFault("a key path is empty") }
        guard object.object("NSOperand") != nil else { return .keyPath(of: .evaluatedObject, path) }
        let operand = try part(object, "NSOperand", depth: depth)
        if case .keyPath(let inner, let first) = operand { return .keyPath(of: inner, first + "." + path) }
        return .keyPath(of: operand, path)
    }

    private mutating func function(_ object: ArchivedObject, depth: Int) throws(MappingFault) -> MappingExpression {
        let selector = try Self.text(object, "NSSelectorName")
        let arguments = try elements(object, "NSArguments", depth: depth)
        guard let operand = object.object("NSOperand") else { return .function(selector, arguments) }
        let isBuiltIn =
            operand.string("NSConstantValueClassName") == "_NSPredicateUtilities"
            || operand.string("NSConstantValue") == "_NSPredicateUtilities"
        if isBuiltIn { return .function(selector, arguments) }
        let receiver = try expression(operand, depth: depth + 1)
        if ["valueForKey:", "valueForKeyPath:"].contains(selector), arguments.count == 1,
            case .constant(.string(let path)?) = arguments[0]
        {
            if case .keyPath(let inner, let first) = receiver { return .keyPath(of: inner, first + "." + path) }
            return .keyPath(of: receiver, path)
        }
        return .message(to: receiver, selector: selector, arguments)
    }

    private static func constant(_ object: ArchivedObject) throws(MappingFault) -> AttributeValue? {
        switch object["NSConstantValue"] {
        case nil: return nil
        case .string(let text)?: return .string(text)
        case .integer(let value)?: return .integer(value)
        case .real(let value)?: return .real(value)
        case .boolean(let value)?: return .boolean(value)
        case .date(let seconds)?: return .date(seconds)
        case .data(let bytes)?: return .data(bytes)
        default: break
        }
        guard let value = object.object("NSConstantValue") else { return nil }
        switch value.className {
        case "NSNull": return nil
        case "NSDate":
            switch value["NS.time"] {
            case .real(let seconds)?: return .date(seconds)
            case .integer(let seconds)?: return .date(Double(seconds))
            default: break
            }
        case "NSMutableString", "NSString": if let text = value.string("NS.string") { return .string(text) }
        case "NSUUID":
            if case .data(let bytes)? = value["NS.uuidbytes"], let uuid = UUID(bytes: bytes) { return .uuid(uuid) }
        case "NSDecimalNumber": if let digits = ArchivedDecimal.digits(value) { return .decimal(digits) }
        case "NSMutableData", "NSData": if case .data(let bytes)? = value["NS.data"] { return .data(bytes) }
        default: break
        }
        throw MappingFault("a constant of class \(value.className) can't be read")
    }

    // MARK: Predicates

    private mutating func predicate(_ object: ArchivedObject, depth: Int) throws(MappingFault) -> MappingPredicate {
        try countObject(atDepth: depth)
        switch object.className {
        case "NSTruePredicate": return .constant(true)
        case "NSFalsePredicate": return .constant(false)
        case "NSComparisonPredicate": return .comparison(try comparison(object, depth: depth))
        case "NSCompoundPredicate":
            var parts: [MappingPredicate] = []
            for part in object.elements("NSSubpredicates") { parts.append(try predicate(part, depth: depth + 1)) }
            switch object.integer("NSCompoundPredicateType") {
            case 0?:
                guard let part = parts.first else { throw MappingFault("a negation has no operand") }
                return .not(part)
            case 2?: return .or(parts)
            default: return .and(parts)
            }
        default: throw MappingFault("a predicate of class \(object.className) can't be read")
        }
    }

    private mutating func comparison(
        _ object: ArchivedObject, depth: Int
    ) throws(MappingFault) -> MappingPredicate.Comparison {
        let archived = try Self.object(object, "NSPredicateOperator")
        let number = archived.integer("NSOperatorType").flatMap { Int(exactly: $0) }
        guard let number, let `operator` = MappingPredicate.Comparison.Operator(rawValue: number) else {
            throw MappingFault("a comparison's operator can't be read")
        }
        var comparison = MappingPredicate.Comparison(
            try part(object, "NSLeftExpression", depth: depth), `operator`,
            try part(object, "NSRightExpression", depth: depth))
        let modifier = archived.integer("NSModifier").flatMap { Int(exactly: $0) } ?? 0
        comparison.modifier = MappingPredicate.Comparison.Modifier(rawValue: modifier) ?? .direct
        let options = archived.integer("NSFlags") ?? archived.integer("NSOptions") ?? 0
        comparison.isCaseInsensitive = options & 1 != 0
        comparison.isDiacriticInsensitive = options & 2 != 0
        return comparison
    }

    // MARK: Fields

    private static func text(_ object: ArchivedObject, _ field: String) throws(MappingFault) -> String {
        guard let found = object.string(field) else { throw MappingFault("\(object.className) has no \(field)") }
        return found
    }

    private static func object(_ object: ArchivedObject, _ field: String) throws(MappingFault) -> ArchivedObject {
        guard let found = object.object(field) else { throw MappingFault("\(object.className) has no \(field)") }
        return found
    }
}

extension UUID {
    /// Creates a UUID from 16 bytes; returns nil for any other count.
    package init?(bytes: [UInt8]) {
        guard bytes.count == 16 else { return nil }
        self = bytes.withUnsafeBytes { UUID(uuid: $0.loadUnaligned(as: uuid_t.self)) }
    }
}
