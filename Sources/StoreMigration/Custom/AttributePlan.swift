import CoreDataStore
import ManagedObjectModels
import MappingModels

/// Where the values of one column of new objects come from.
struct ColumnAssignment {
    let column: String
    /// As SQL writes it.
    let value: String
    /// The attribute's name, for what is said about its values; nil for another column.
    var attribute: String?
    /// Whether a value may be of another type than the attribute's.
    var isDoubtful = false
    /// `FUNCTION($entityPolicy, …)`: the policy is asked for the value, which then isn't in `value`.
    var policyCall: PolicyCall?
}

/// A value that a policy is asked for.
struct PolicyCall {
    let selector: String
    let arguments: [MappingExpression]

    /// Nil for another expression.
    init?(_ expression: MappingExpression?) {
        guard case .message(.variable("entityPolicy"), let selector, let arguments)? = expression else { return nil }
        self.selector = selector
        self.arguments = arguments
    }
}

extension MappingPlan {
    /// A value for each column of the new entity's attributes: what the mapping says, else the default.
    func attributeAssignments(_ plan: EntityMappingPlan) throws(MappingFault) -> [ColumnAssignment] {
        guard let entity = plan.destination else { return [] }
        let mapped = Dictionary(
            plan.mapping.attributeMappings.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
        var found: [ColumnAssignment] = []
        for one in [entity] + destination.model.superentities(of: entity) {
            for attribute in one.attributes where !attribute.isTransient && attribute.derivation == nil {
                found += try assignments(mapped[attribute.name], attribute, of: one, plan)
            }
        }
        return found
    }

    private func assignments(
        _ mapping: PropertyMapping?, _ attribute: AttributeDescription, of declaring: EntityDescription,
        _ plan: EntityMappingPlan
    ) throws(MappingFault) -> [ColumnAssignment] {
        guard attribute.type != .composite else { return try elements(mapping, attribute, of: declaring, plan) }
        guard let column = column([attribute.name], of: declaring) else { return [] }
        guard let expression = mapping?.valueExpression, let source = plan.source else {
            return [ColumnAssignment(column: column, value: attribute.defaultLiteral ?? "NULL")]
        }
        if let call = PolicyCall(expression) {
            guard plan.usesPolicy else {
                throw MappingFault(
                    "$entityPolicy stands for a policy, and the mapping names none", remedy: "name the policy's class",
                    element: plan.mapping.name + "." + attribute.name)
            }
            return [ColumnAssignment(column: column, value: "NULL", attribute: attribute.name, policyCall: call)]
        }
        var compiler = compiler.about(source.name, as: EntityMappingPlan.rowAlias, plan.mapping)
        do {
            let value = try compiler.value(expression)
            return [attribute.assignment(of: value, to: column)]
        } catch {
            throw error.within(plan.mapping.name + "." + attribute.name)
        }
    }

    private func column(_ path: [String], of declaring: EntityDescription) -> String? {
        destination.table(of: declaring.name)?.columns
            .first { $0.content == .attribute(entity: declaring.name, path: path) }?.name
    }

    /// A composite attribute is mapped as a whole, from one with elements of the same names.
    private func elements(
        _ mapping: PropertyMapping?, _ attribute: AttributeDescription, of declaring: EntityDescription,
        _ plan: EntityMappingPlan
    ) throws(MappingFault) -> [ColumnAssignment] {
        var found: [ColumnAssignment] = []
        for (path, element) in attribute.leaves {
            guard let column = column(path, of: declaring) else { continue }
            guard let source = plan.source, case .keyPath(let operand, let from)? = mapping?.valueExpression else {
                found.append(ColumnAssignment(column: column, value: element.defaultLiteral ?? "NULL"))
                continue
            }
            var compiler = compiler.about(source.name, as: EntityMappingPlan.rowAlias, plan.mapping)
            let inner = ([from] + path.dropFirst()).joined(separator: ".")
            // An element that the older attribute doesn't have is new.
            let value = try? compiler.value(.keyPath(of: operand, inner))
            found.append(
                value.map { element.assignment(of: $0, to: column) }
                    ?? ColumnAssignment(column: column, value: element.defaultLiteral ?? "NULL"))
        }
        return found
    }
}

extension AttributeDescription {
    /// A composite attribute's parts that have values, with the names on the way to them.
    fileprivate var leaves: [(path: [String], element: AttributeDescription)] {
        guard type == .composite else { return [([name], self)] }
        return elements.flatMap { element in element.leaves.map { ([name] + $0.path, $0.element) } }
    }

    /// The value as this attribute's column holds it.
    fileprivate func assignment(of value: SQLValue, to column: String) -> ColumnAssignment {
        var text = value.text
        switch type {
        case .integer16, .integer32, .integer64, .boolean:
            // A number's whole part, as `NSNumber` gives it.
            if value.isFraction || value.type == nil {
                text = "CASE typeof(\(text)) WHEN 'real' THEN CAST(\(text) AS INTEGER) ELSE \(text) END"
            }
        case .uuid where value.type == .string: text = "\(SQLFunction.uuid.rawValue)(\(text))"
        case .string where value.type == .uuid: text = "\(SQLFunction.uuidText.rawValue)(\(text))"
        case .string, .uri:
            if value.type == nil { text = "CAST(\(text) AS TEXT)" }
        case .binaryData, .transformable: text = marked(value)
        default: break
        }
        return ColumnAssignment(
            column: column, value: text, attribute: name, isDoubtful: value.type.map { !isLike($0) } ?? true)
    }

    /// A value that may be kept outside has a marker before it: 1, or 2 and the name of its file.
    private func marked(_ value: SQLValue) -> String {
        switch (value.isExternal, allowsExternalBinaryDataStorage) {
        case (false, true) where value.text != "NULL":
            "CASE WHEN \(value.text) IS NULL THEN NULL ELSE CAST(x'01' || \(value.text) AS BLOB) END"
        case (true, false): "\(ExternalData.function)(\(value.text))"
        default: value.text
        }
    }

    private func isLike(_ other: AttributeType) -> Bool { type.storageClass == other.storageClass }
}

extension AttributeType {
    /// Attributes with the same are stored in the same way.
    var storageClass: String {
        switch self {
        case .integer16, .integer32, .integer64, .boolean: "integer"
        case .decimal, .double, .float, .date: "number"
        case .string, .uri: "text"
        default: "blob"
        }
    }
}
