import ManagedObjectModels

/// The keys that an expression reads from objects.
package struct ReferencedKeys {
    /// The keys of the object itself.
    package private(set) var ownKeys: Set<String> = []
    /// The keys of related objects, and texts that may be keys.
    package private(set) var relatedKeys: Set<String> = []
    /// True if the expression uses the whole object, for example as a function's argument.
    package private(set) var usesWholeObject = false
    /// All constants in the expression.
    package private(set) var constants: [AttributeValue?] = []

    package init(_ expression: MappingExpression) { read(expression) }

    package init(_ predicate: MappingPredicate) { read(predicate) }

    private mutating func read(_ expression: MappingExpression) {
        switch expression {
        case .constant(let value):
            constants.append(value)
            if case .string(let text)? = value { relatedKeys.formUnion(text.split(separator: ".").map(String.init)) }
        case .evaluatedObject, .variable("source"): usesWholeObject = true
        case .variable: break
        case .keyPath(let operand, let path): read(path, of: operand)
        case .message(let receiver, _, let arguments):
            read(receiver)
            arguments.forEach { read($0) }
        case .function(_, let arguments), .aggregate(let arguments): arguments.forEach { read($0) }
        case .conditional(let condition, let first, let second):
            read(condition)
            read(first)
            read(second)
        case .subquery(let collection, _, let condition):
            read(collection)
            // The condition reads the objects in the collection.
            let inner = ReferencedKeys(condition)
            relatedKeys.formUnion(inner.ownKeys.union(inner.relatedKeys))
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
            if !keys.isEmpty { ownKeys.insert(keys.removeFirst()) }
        case .variable: break
        default: read(operand)
        }
        relatedKeys.formUnion(keys)
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
