import FoundationEssentials
import ManagedObjectModels

/// Archives expressions like `NSKeyedArchiver` in its XML form, which `NSKeyedUnarchiver` reads as well as the binary
/// form. Hand-written because Foundation on Linux has no expressions that could be archived.
struct ArchivedExpressionWriter {
    /// The archived objects as property list XML. The first one stands for nil.
    private var objects = ["<string>$null</string>"]
    private var classes: [String: Int] = [:]

    mutating func archive(_ expression: MappingExpression) -> String {
        let root = add(expression)
        return document(root)
    }

    mutating func archive(_ texts: [String: String]) -> String {
        let sorted = texts.sorted { $0.key < $1.key }
        let keys = sorted.map { add(text: $0.key) }
        let values = sorted.map { add(text: $0.value) }
        let root = add("NSDictionary", [("NS.keys", Self.references(keys)), ("NS.objects", Self.references(values))])
        return document(root)
    }

    private func document(_ root: Int) -> String {
        """
        <?xml version="1.0" encoding="UTF-8"?>
        <!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
        <plist version="1.0"><dict><key>$archiver</key><string>NSKeyedArchiver</string><key>$objects</key><array>\
        \(objects.joined())</array><key>$top</key><dict><key>root</key>\(Self.reference(root))</dict>\
        <key>$version</key><integer>100000</integer></dict></plist>
        """
    }

    // MARK: Objects

    private static func reference(_ number: Int) -> String {
        "<dict><key>CF$UID</key><integer>\(number)</integer></dict>"
    }

    private static func references(_ numbers: [Int]) -> String {
        "<array>" + numbers.map(reference).joined() + "</array>"
    }

    private static func integer(_ value: Int) -> String { "<integer>\(value)</integer>" }

    private mutating func add(plain: String) -> Int {
        objects.append(plain)
        return objects.count - 1
    }

    private mutating func add(text: String) -> Int { add(plain: "<string>\(text.escapedForXML)</string>") }

    private mutating func add(_ className: String, _ fields: [(String, String)]) -> Int {
        let number = classes[className] ?? addClass(className)
        let members = fields.map { "<key>\($0.0)</key>\($0.1)" }.joined()
        return add(plain: "<dict>\(members)<key>$class</key>\(Self.reference(number))</dict>")
    }

    private static let superclasses = [
        "NSKeyPathExpression": ["NSFunctionExpression", "NSExpression"], "NSDictionary": [], "NSArray": [],
        "NSDate": [], "NSUUID": [], "NSData": [], "NSComparisonPredicate": ["NSPredicate"],
        "NSCompoundPredicate": ["NSPredicate"], "NSTruePredicate": ["NSPredicate"], "NSFalsePredicate": ["NSPredicate"],
        "NSPredicateOperator": [],
    ]

    private mutating func addClass(_ name: String) -> Int {
        let names = [name] + (Self.superclasses[name] ?? ["NSExpression"]) + ["NSObject"]
        let list = names.map { "<string>\($0)</string>" }.joined()
        let number = add(
            plain: "<dict><key>$classname</key><string>\(name)</string><key>$classes</key><array>\(list)</array></dict>"
        )
        classes[name] = number
        return number
    }

    private mutating func add(list: [Int]) -> String {
        Self.reference(add("NSArray", [("NS.objects", Self.references(list))]))
    }

    // MARK: Expressions

    private mutating func add(_ expression: MappingExpression) -> Int {
        switch expression {
        case .constant(let value):
            return add(
                "NSConstantValueExpression", [("NSExpressionType", Self.integer(0)), ("NSConstantValue", add(value))])
        case .evaluatedObject: return add("NSSelfExpression", [("NSExpressionType", Self.integer(1))])
        case .variable(let name):
            let text = add(text: name)
            return add(
                "NSVariableExpression",
                [("NSExpressionType", Self.integer(2)), ("NSVariable", Self.reference(text))])
        case .keyPath(let operand, let path): return add(keyPath: path, of: operand)
        case .message(let receiver, let selector, let arguments):
            return add(function: selector, of: add(receiver), arguments)
        case .function(let selector, let arguments):
            let name = add(text: "_NSPredicateUtilities")
            let receiver = add(
                "NSConstantValueExpression",
                [
                    ("NSExpressionType", Self.integer(0)), ("NSConstantValueClassName", Self.reference(name)),
                    ("NSConstantValue", Self.reference(name)),
                ])
            return add(function: selector, of: receiver, arguments)
        case .aggregate(let elements):
            let list = add(list: elements.map { add($0) })
            return add("NSAggregateExpression", [("NSExpressionType", Self.integer(14)), ("NSCollection", list)])
        case .conditional(let condition, let first, let second):
            return add(
                "NSTernaryExpression",
                [
                    ("NSExpressionType", Self.integer(20)), ("NSPredicate", Self.reference(add(condition))),
                    ("NSTrueExpression", Self.reference(add(first))),
                    ("NSFalseExpression", Self.reference(add(second))),
                ])
        case .subquery(let collection, let variable, let condition):
            return add(
                "NSSubqueryExpression",
                [
                    ("NSExpressionType", Self.integer(13)), ("NSCollection", Self.reference(add(collection))),
                    ("NSVariableExpression", Self.reference(add(.variable(variable)))),
                    ("NSPredicate", Self.reference(add(condition))),
                ])
        case .fetch(let request, let context, let isCountOnly):
            return add(
                "NSFetchRequestExpression",
                [
                    ("NSExpressionType", Self.integer(50)), ("NSFRExpression", Self.reference(add(request))),
                    ("NSMOCExpression", Self.reference(add(context))),
                    ("NSCountOnlyFlag", isCountOnly ? "<true/>" : "<false/>"),
                ])
        }
    }

    private mutating func add(keyPath path: String, of operand: MappingExpression) -> Int {
        let text = add(text: path)
        let specifier = add(
            "NSKeyPathSpecifierExpression",
            [("NSExpressionType", Self.integer(10)), ("NSKeyPath", Self.reference(text))])
        let receiver = add(operand)
        let selector = add(text: "valueForKeyPath:")
        return add(
            "NSKeyPathExpression",
            [
                ("NSExpressionType", Self.integer(4)), ("NSOperand", Self.reference(receiver)),
                ("NSSelectorName", Self.reference(selector)), ("NSArguments", add(list: [specifier])),
            ])
    }

    private mutating func add(function selector: String, of receiver: Int, _ arguments: [MappingExpression]) -> Int {
        let list = add(list: arguments.map { add($0) })
        let name = add(text: selector)
        return add(
            "NSFunctionExpression",
            [
                ("NSExpressionType", Self.integer(4)), ("NSOperand", Self.reference(receiver)),
                ("NSSelectorName", Self.reference(name)), ("NSArguments", list),
            ])
    }

    private mutating func add(_ value: AttributeValue?) -> String {
        switch value {
        case nil: Self.reference(0)
        case .integer(let number)?: Self.reference(add(plain: "<integer>\(number)</integer>"))
        case .real(let number)?: Self.reference(add(plain: "<real>\(number)</real>"))
        case .boolean(let truth)?: Self.reference(add(plain: truth ? "<true/>" : "<false/>"))
        case .string(let text)?, .url(let text)?, .decimal(let text)?, .archived(let text)?:
            Self.reference(add(text: text))
        case .date(let seconds)?: Self.reference(add("NSDate", [("NS.time", "<real>\(seconds)</real>")]))
        case .data(let bytes)?: Self.reference(add("NSData", [("NS.data", Self.data(bytes))]))
        case .uuid(let uuid)?:
            Self.reference(add("NSUUID", [("NS.uuidbytes", Self.data(withUnsafeBytes(of: uuid.uuid, Array.init)))]))
        }
    }

    private static func data(_ bytes: [UInt8]) -> String { "<data>\(Data(bytes).base64EncodedString())</data>" }

    // MARK: Predicates

    private mutating func add(_ predicate: MappingPredicate) -> Int {
        switch predicate {
        case .constant(let truth): return add(truth ? "NSTruePredicate" : "NSFalsePredicate", [])
        case .and(let parts): return add(compound: 1, parts)
        case .or(let parts): return add(compound: 2, parts)
        case .not(let part): return add(compound: 0, [part])
        case .comparison(let comparison):
            let options = (comparison.isCaseInsensitive ? 1 : 0) | (comparison.isDiacriticInsensitive ? 2 : 0)
            let sign = add(
                "NSPredicateOperator",
                [
                    ("NSOperatorType", Self.integer(comparison.operator.rawValue)),
                    ("NSModifier", Self.integer(comparison.modifier.rawValue)), ("NSOptions", Self.integer(options)),
                ])
            return add(
                "NSComparisonPredicate",
                [
                    ("NSLeftExpression", Self.reference(add(comparison.left))),
                    ("NSRightExpression", Self.reference(add(comparison.right))),
                    ("NSPredicateOperator", Self.reference(sign)),
                ])
        }
    }

    private mutating func add(compound type: Int, _ parts: [MappingPredicate]) -> Int {
        let list = add(list: parts.map { add($0) })
        return add(
            "NSCompoundPredicate", [("NSCompoundPredicateType", Self.integer(type)), ("NSSubpredicates", list)])
    }
}
