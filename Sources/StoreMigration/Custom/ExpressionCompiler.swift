import CoreDataStore
import ManagedObjectModels
import MappingModels

/// Makes SQL of expressions about a store's objects, so that a statement does for all what a mapping says of one.
struct ExpressionCompiler {
    let layout: StoreLayout
    /// The store's name in the connection: `source` or `main`.
    let schema: String
    /// What variables stand for, by name; `SELF` among them.
    private var variables: [String: SQLObjects] = [:]
    /// `$entityMapping`, which only its names are known of.
    private var entityMapping: EntityMapping?
    private var aliases = 0
    private var aliasPrefix = "x"

    init(_ layout: StoreLayout, schema: String) {
        self.layout = layout
        self.schema = schema
    }

    /// The same where `$source` and `SELF` are rows of the entity's table under this alias.
    func about(_ entity: String, as alias: String, _ mapping: EntityMapping? = nil) -> ExpressionCompiler {
        var compiler = self
        let row = SQLObjects(entity: entity, alias: alias)
        compiler.variables = ["SELF": row, "source": row]
        compiler.entityMapping = mapping
        // What is about an object within another query has other aliases than that query.
        compiler.aliasPrefix = alias + "_"
        return compiler
    }

    mutating func newAlias() -> String {
        aliases += 1
        return aliasPrefix + String(aliases)
    }

    /// Where a variable is known within, such as a subquery's.
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
        case .evaluatedObject: return try variable("SELF")
        case .variable(let name): return try variable(name)
        case .keyPath(.variable("entityMapping"), let path): return .value(try mappingValue(path))
        case .keyPath(let operand, let path): return try keyPath(path, of: try compile(operand))
        case .message(let receiver, let selector, let arguments): return try message(receiver, selector, arguments)
        case .function(let selector, let arguments): return try function(selector, arguments)
        case .aggregate(let elements):
            var values: [SQLValue] = []
            for element in elements { values.append(try value(element)) }
            return .list(values)
        case .conditional(let condition, let first, let second):
            let one = try value(first)
            let other = try value(second)
            let text = "CASE WHEN \(try self.condition(condition)) THEN \(one.text) ELSE \(other.text) END"
            return .value(SQLValue(text: text, type: one.type == other.type ? one.type : nil))
        case .subquery(let collection, let name, let condition):
            guard case .objects(var objects) = try compile(collection) else {
                throw MappingFault("SUBQUERY is about other than objects: \(collection)")
            }
            let found = try with(name, as: objects.asRow) { (compiler) throws(MappingFault) in
                try compiler.condition(condition)
            }
            objects.conditions.append(found)
            return .objects(objects)
        case .fetch: throw MappingFault("a fetch is no value")
        }
    }

    private func variable(_ name: String) throws(MappingFault) -> SQLExpression {
        if let objects = variables[name] { return .objects(objects) }
        throw MappingFault(
            "$\(name) is not known here", remedy: "use $source, or a migration policy where that isn't enough")
    }

    private func mappingValue(_ path: String) throws(MappingFault) -> SQLValue {
        let text: String?
        switch path {
        case "name": text = entityMapping?.name
        case "sourceEntityName": text = entityMapping?.sourceEntityName
        case "destinationEntityName": text = entityMapping?.destinationEntityName
        case _ where path.hasPrefix("userInfo."): text = entityMapping?.userInfo[String(path.dropFirst(9))]
        default: throw MappingFault("$entityMapping.\(path) can't be read", remedy: "there are name and userInfo")
        }
        return text.map { SQLValue(text: $0.sqlText, type: .string) } ?? .null
    }

    static func constant(_ value: AttributeValue?) throws(MappingFault) -> SQLValue {
        guard let value else { return .null }
        guard let literal = value.sqlLiteral else { throw MappingFault("the constant \(value) has no form in SQL") }
        return SQLValue(text: literal, type: value.attributeType)
    }

    /// One value; a to-one relationship's attribute among them. Throws where there may be several.
    mutating func value(_ expression: MappingExpression) throws(MappingFault) -> SQLValue {
        switch try compile(expression) {
        case .value(let value): return value
        case .values(let objects, let value) where !objects.isToMany:
            var found = value
            found.text = objects.isRow ? value.text : objects.selecting(value.text, suffix: " LIMIT 1")
            return found
        case .objects(let objects) where !objects.isToMany:
            throw MappingFault("\(expression) is an object of \(objects.entity), where a value is asked for")
        case .values, .objects, .list:
            throw MappingFault(
                "\(expression) is several values, where one is asked for", remedy: "use sum(…), count(…) or the like")
        }
    }
}

extension SQLObjects {
    /// One of them, in a query about all.
    var asRow: SQLObjects { SQLObjects(entity: entity, alias: alias) }
}
