import ManagedObjectModels

/// The keys that an expression reads of objects.
package struct ReferencedKeys {
    /// Those of the object itself.
    package private(set) var first: Set<String> = []
    /// Those of objects that it leads to, and texts that may be keys.
    package private(set) var others: Set<String> = []
    /// Whether the object is given to a function.
    package private(set) var isWholeObject = false
    /// Each constant.
    package private(set) var constants: [AttributeValue?] = []

    package init(_ expression: MappingExpression) { read(expression) }

    package init(_ predicate: MappingPredicate) { read(predicate) }

    private mutating func read(_ expression: MappingExpression) {
        switch expression {
        case .constant(let value):
            constants.append(value)
            if case .string(let text)? = value { others.formUnion(text.split(separator: ".").map(String.init)) }
        case .evaluatedObject, .variable("source"): isWholeObject = true
        case .variable: break
        case .keyPath(let operand, let path): read(path, of: operand)
        case .message(let receiver, _, let arguments):
            read(receiver)
            arguments.forEach { read($0) }
        case .function(_, let arguments), .aggregate(let arguments): arguments.forEach { read($0) }
        case .conditional(let condition, let one, let other):
            read(condition)
            read(one)
            read(other)
        case .subquery(let collection, _, let condition):
            read(collection)
            // Of the objects in the collection.
            let inner = ReferencedKeys(condition)
            others.formUnion(inner.first.union(inner.others))
            constants += inner.constants
        case .fetch(let request, let context, _):
            read(request)
            read(context)
        }
    }

    private mutating func read(_ path: String, of operand: MappingExpression) {
        var keys = path.split(separator: ".").map(String.init)
        switch operand {
        case .evaluatedObject, .variable("source"):
            if !keys.isEmpty { first.insert(keys.removeFirst()) }
        case .variable: break
        default: read(operand)
        }
        others.formUnion(keys)
    }

    private mutating func read(_ predicate: MappingPredicate) {
        switch predicate {
        case .constant: break
        case .comparison(let comparison):
            read(comparison.left)
            read(comparison.right)
        case .and(let parts), .or(let parts): parts.forEach { read($0) }
        case .not(let part): read(part)
        }
    }
}
