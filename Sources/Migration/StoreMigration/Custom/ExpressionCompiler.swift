import CoreDataStore
import ManagedObjectModels
import MappingModels

/// Compiles expressions about a store's objects to SQL, so that one statement evaluates them for all objects.
struct ExpressionCompiler {
    let layout: StoreLayout
    /// The store's name in the connection: `source` or `main`.
    let schema: String
    /// The values of variables by name, including `SELF`.
    private var variables: [String: SQLObjects] = [:]
    /// The value of `$entityMapping`, of which only names and `userInfo` can be read.
    private var entityMapping: EntityMapping?
    /// The value of `SELF` in a rule about one value.
    private var evaluatedValue: SQLValue?
    private var aliases = 0
    private var aliasPrefix = "x"

    init(_ layout: StoreLayout, schema: String) {
        self.layout = layout
        self.schema = schema
    }

    /// Returns a compiler whose `$source` and `SELF` are rows of the entity's table under this alias.
    func scoped(to entity: String, as alias: String, mapping: EntityMapping? = nil) -> ExpressionCompiler {
        var compiler = self
        let row = SQLObjects(entity: entity, alias: alias)
        compiler.variables = ["SELF": row, "source": row]
        compiler.entityMapping = mapping
        // The aliases of a subquery must differ from those of the outer query.
        compiler.aliasPrefix = alias + "_"
        return compiler
    }

    /// Returns a compiler whose `SELF` is a value, as in the validation rule of an attribute.
    func scoped(to value: SQLValue) -> ExpressionCompiler {
        var compiler = self
        compiler.variables = [:]
        compiler.evaluatedValue = value
        return compiler
    }

    mutating func newAlias() -> String {
        aliases += 1
        return aliasPrefix + String(aliases)
    }

    /// Calls `body` with a variable in scope, such as a subquery's.
    mutating func with<Result>(
        _ name: String, as objects: SQLObjects,
        _ body: (inout ExpressionCompiler) throws(MappingFault) -> Result
    ) throws(MappingFault) -> Result {
        let before = variables[name]
        variables[name] = objects
        let result = try body(&self)
        variables[name] = before
        return result
    }

    // MARK: Expressions

    mutating func compile(_ expression: MappingExpression) throws(MappingFault) -> SQLExpression {
        switch expression {
        case .constant(let value): return .value(try Self.constant(value))
        case .evaluatedObject:
            if let evaluatedValue { return .value(evaluatedValue) }
            return try variable("SELF")
        case .keyPath(.evaluatedObject, let path) where evaluatedValue != nil:
            return .value(try Self.property(path, of: evaluatedValue ?? .null))
        case .variable(let name): return try variable(name)
        case .keyPath(.variable("entityMapping"), let path): return .value(try mappingValue(path))
        case .keyPath(let operand, let path): return try keyPath(path, of: try compile(operand))
        case .message(let receiver, let selector, let arguments):
            return try message(selector, sentTo: receiver, arguments)
        case .function(let selector, let arguments): return try function(selector, arguments)
        case .aggregate(let elements):
            var values: [SQLValue] = []
            for element in elements { values.append(try value(element)) }
            return .list(values)
        case .conditional(let condition, let first, let second):
            return .value(
                Self.either(try value(first), try value(second), if: try self.condition(condition)))
        case .subquery(let collection, let name, let condition):
            guard case .objects(var objects) = try compile(collection) else {
                throw MappingFault("SUBQUERY needs objects: \(collection)")
            }
            let found = try with(name, as: objects.asRow) { (compiler) throws(MappingFault) in
                try compiler.condition(condition)
            }
            objects.conditions.append(found)
            return .objects(objects)
        case .fetch: throw MappingFault("a fetch is not a value")
        }
    }

    /// Returns one of two values. Data in an external file is read, unless both are, or the other is NULL.
    private static func either(_ first: SQLValue, _ second: SQLValue, if condition: String) -> SQLValue {
        let isExternal = [first, second].allSatisfy { $0.isExternal || $0.text == "NULL" }
        let texts = [first, second].map { value in
            value.isExternal && !isExternal ? "\(ExternalData.function)(\(value.text))" : value.text
        }
        return SQLValue(
            text: "CASE WHEN \(condition) THEN \(texts[0]) ELSE \(texts[1]) END",
            type: first.type == second.type ? first.type : nil, isExternal: isExternal)
    }

    private func variable(_ name: String) throws(MappingFault) -> SQLExpression {
        if let objects = variables[name] { return .objects(objects) }
        throw MappingFault(
            "$\(name) is not defined here", remedy: "use $source, or a migration policy if that isn't enough")
    }

    private func mappingValue(_ path: String) throws(MappingFault) -> SQLValue {
        let text: String?
        switch path {
        case "name": text = entityMapping?.name
        case "sourceEntityName": text = entityMapping?.sourceEntityName
        case "destinationEntityName": text = entityMapping?.destinationEntityName
        case _ where path.hasPrefix("userInfo."): text = entityMapping?.userInfo[String(path.dropFirst(9))]
        default:
            throw MappingFault(
                "$entityMapping.\(path) can't be read",
                remedy: "use name, sourceEntityName, destinationEntityName or userInfo")
        }
        return text.map { SQLValue(text: $0.sqlText, type: .string) } ?? .null
    }

    static func constant(_ value: AttributeValue?) throws(MappingFault) -> SQLValue {
        guard let value else { return .null }
        guard let literal = value.sqlLiteral else { throw MappingFault("the constant \(value) has no SQL form") }
        return SQLValue(text: literal, type: value.attributeType)
    }

    /// Returns a single value, such as an attribute of a to-one relationship. Throws if there may be several.
    mutating func value(_ expression: MappingExpression) throws(MappingFault) -> SQLValue {
        switch try compile(expression) {
        case .value(let value): return value
        case .values(let objects, let value) where !objects.isToMany:
            var found = value
            found.text = objects.isRow ? value.text : objects.selecting(value.text, suffix: " LIMIT 1")
            return found
        case .objects(let objects) where !objects.isToMany:
            throw MappingFault("\(expression) is an object of \(objects.entity), but a value is needed")
        case .values, .objects, .list:
            throw MappingFault(
                "\(expression) has several values, but one is needed", remedy: "use sum(…), count(…) or the like")
        }
    }
}

extension SQLObjects {
    /// One of the objects, as the row of a query over all of them.
    var asRow: SQLObjects { SQLObjects(entity: entity, alias: alias) }
}
