/// A builder of archives in the form of `NSKeyedArchiver`. Objects refer to each other by number; each distinct string
/// is stored once.
package struct KeyedArchiveBuilder {
    /// The reference to object 0, which represents nil.
    package static let null = PropertyListValue.uid(0)

    private var objects: [PropertyListValue] = [.string("$null")]
    private var strings: [String: Int] = [:]
    private var classes: [String: Int] = [:]

    package init() {}

    /// Returns a number for an object that `define` completes later, so that other objects can refer to it.
    package mutating func reserve() -> Int {
        objects.append(Self.null)
        return objects.count - 1
    }

    package mutating func define(_ number: Int, as className: String, _ fields: [String: PropertyListValue]) {
        var fields = fields
        fields["$class"] = .uid(classNumber(className))
        objects[number] = .dictionary(fields)
    }

    package mutating func object(_ className: String, _ fields: [String: PropertyListValue]) -> PropertyListValue {
        let number = reserve()
        define(number, as: className, fields)
        return .uid(number)
    }

    /// Adds a value without a class and returns a reference to it.
    package mutating func scalar(_ value: PropertyListValue) -> PropertyListValue {
        objects.append(value)
        return .uid(objects.count - 1)
    }

    package mutating func text(_ text: String?) -> PropertyListValue {
        guard let text else { return Self.null }
        if let known = strings[text] { return .uid(known) }
        objects.append(.string(text))
        strings[text] = objects.count - 1
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
        "NSAggregateExpression": ["NSExpression"],
        "NSAttributeDescription": ["NSPropertyDescription"],
        "NSBetweenPredicateOperator": ["NSPredicateOperator"],
        "NSComparisonPredicate": ["NSPredicate"],
        "NSComparisonPredicateOperator": ["NSPredicateOperator"],
        "NSCompositeAttributeDescription": ["NSAttributeDescription", "NSPropertyDescription"],
        "NSCompoundPredicate": ["NSPredicate"],
        "NSConstantValueExpression": ["NSExpression"],
        "NSDecimalNumber": ["NSNumber", "NSValue"],
        "NSDerivedAttributeDescription": ["NSAttributeDescription", "NSPropertyDescription"],
        "NSEqualityPredicateOperator": ["NSPredicateOperator"],
        "NSFalsePredicate": ["NSPredicate"],
        "NSFetchRequest": ["NSPersistentStoreRequest"],
        "NSFetchRequestExpression": ["NSExpression"],
        "NSFetchedPropertyDescription": ["NSPropertyDescription"],
        "NSFunctionExpression": ["NSExpression"],
        "NSInPredicateOperator": ["NSPredicateOperator"],
        "NSKeyPathExpression": ["NSFunctionExpression", "NSExpression"],
        "NSKeyPathSpecifierExpression": ["NSExpression"],
        "NSKnownKeysDictionary1": ["NSKnownKeysDictionary", "NSMutableDictionary", "NSDictionary"],
        "NSKnownKeysMappingStrategy1": ["NSKnownKeysMappingStrategy"],
        "NSLikePredicateOperator": ["NSMatchingPredicateOperator", "NSStringPredicateOperator", "NSPredicateOperator"],
        "NSMatchingPredicateOperator": ["NSStringPredicateOperator", "NSPredicateOperator"],
        "NSMutableArray": ["NSArray"],
        "NSMutableDictionary": ["NSDictionary"],
        "NSRelationshipDescription": ["NSPropertyDescription"],
        "NSSelfExpression": ["NSExpression"],
        "NSSubqueryExpression": ["NSExpression"],
        "NSSubstringPredicateOperator": ["NSStringPredicateOperator", "NSPredicateOperator"],
        "NSTernaryExpression": ["NSExpression"],
        "NSTruePredicate": ["NSPredicate"],
        "NSVariableExpression": ["NSExpression"],
    ]
}
