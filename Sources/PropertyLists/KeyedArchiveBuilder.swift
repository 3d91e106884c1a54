/// Builds what `NSKeyedArchiver` writes: objects that refer to each other by number, each distinct text once.
package struct KeyedArchiveBuilder {
    /// Number 0 stands for nil.
    package static let null = PropertyListValue.uid(0)

    private var objects: [PropertyListValue] = [.string("$null")]
    private var texts: [String: Int] = [:]
    private var classes: [String: Int] = [:]

    package init() {}

    /// A number for an object whose fields come later, so that others can refer to it.
    package mutating func reserve() -> Int {
        objects.append(Self.null)
        return objects.count - 1
    }

    package mutating func define(_ number: Int, _ className: String, _ fields: [String: PropertyListValue]) {
        var fields = fields
        fields["$class"] = .uid(classNumber(className))
        objects[number] = .dictionary(fields)
    }

    package mutating func object(_ className: String, _ fields: [String: PropertyListValue]) -> PropertyListValue {
        let number = reserve()
        define(number, className, fields)
        return .uid(number)
    }

    /// A reference to a value that has no class.
    package mutating func plain(_ value: PropertyListValue) -> PropertyListValue {
        objects.append(value)
        return .uid(objects.count - 1)
    }

    package mutating func text(_ text: String?) -> PropertyListValue {
        guard let text else { return Self.null }
        if let known = texts[text] { return .uid(known) }
        objects.append(.string(text))
        texts[text] = objects.count - 1
        return .uid(objects.count - 1)
    }

    package mutating func array(_ elements: [PropertyListValue], _ className: String = "NSArray") -> PropertyListValue {
        object(className, ["NS.objects": .array(elements)])
    }

    package mutating func dictionary(
        _ members: [(key: String, value: PropertyListValue)], _ className: String = "NSMutableDictionary"
    ) -> PropertyListValue {
        let keys = members.map { text($0.key) }
        return object(className, ["NS.keys": .array(keys), "NS.objects": .array(members.map(\.value))])
    }

    package func archive(root: Int) -> [UInt8] {
        BinaryPropertyListWriter.bytes(
            of: .dictionary([
                "$archiver": .string("NSKeyedArchiver"), "$version": .integer(100_000),
                "$top": .dictionary(["root": .uid(root)]), "$objects": .array(objects),
            ]))
    }

    private mutating func classNumber(_ name: String) -> Int {
        if let known = classes[name] { return known }
        let ancestors = [name] + (Self.superclasses[name] ?? []) + ["NSObject"]
        objects.append(
            .dictionary(["$classname": .string(name), "$classes": .array(ancestors.map { .string($0) })]))
        classes[name] = objects.count - 1
        return objects.count - 1
    }

    private static let superclasses: [String: [String]] = [
        "NSAttributeDescription": ["NSPropertyDescription"],
        "NSCompositeAttributeDescription": ["NSAttributeDescription", "NSPropertyDescription"],
        "NSConstantValueExpression": ["NSExpression"],
        "NSDecimalNumber": ["NSNumber", "NSValue"],
        "NSDerivedAttributeDescription": ["NSAttributeDescription", "NSPropertyDescription"],
        "NSFunctionExpression": ["NSExpression"],
        "NSKeyPathExpression": ["NSFunctionExpression", "NSExpression"],
        "NSKeyPathSpecifierExpression": ["NSExpression"],
        "NSKnownKeysDictionary1": ["NSKnownKeysDictionary", "NSMutableDictionary", "NSDictionary"],
        "NSKnownKeysMappingStrategy1": ["NSKnownKeysMappingStrategy"],
        "NSMutableArray": ["NSArray"],
        "NSMutableDictionary": ["NSDictionary"],
        "NSRelationshipDescription": ["NSPropertyDescription"],
        "NSSelfExpression": ["NSExpression"],
    ]
}
