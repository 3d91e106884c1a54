import CoreDataStore
import ManagedObjectModels
import MappingModels

/// The value of one column of new objects.
struct ColumnAssignment {
    let column: String
    /// The SQL expression of the value.
    var value: String
    /// The attribute's name, for messages about its values; nil for a column that isn't an attribute's.
    var attribute: String?
    /// The storage classes that the value may have, whatever the older store's columns hold.
    var classes: StorageClasses = .all
    /// `FUNCTION($entityPolicy, …)`: the call by which the policy returns the value. `value` is unused then.
    var policyCall: PolicyCall?
}

/// A call of a policy that returns a value.
struct PolicyCall {
    let selector: String
    let arguments: [MappingExpression]

    /// Returns nil for any other expression.
    init?(_ expression: MappingExpression?) {
        guard case .message(.variable("entityPolicy"), let selector, let arguments)? = expression else { return nil }
        self.selector = selector
        self.arguments = arguments
    }
}

extension MappingPlan {
    /// Returns a value for each column of the new entity's attributes: the mapping's value, or else the default.
    func attributeAssignments(_ plan: EntityMappingPlan) throws(MappingFault) -> [ColumnAssignment] {
        guard let entity = plan.destination else { return [] }
        let mapped = Dictionary(
            plan.mapping.attributeMappings.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
        var found: [ColumnAssignment] = []
        for declaring in [entity] + destination.model.superentities(of: entity) {
            for attribute in declaring.attributes where !attribute.isTransient && attribute.derivation == nil {
                found += try assignments(by: mapped[attribute.name], to: attribute, of: declaring, in: plan)
            }
        }
        return found
    }

    private func assignments(
        by mapping: PropertyMapping?, to attribute: AttributeDescription, of declaring: EntityDescription,
        in plan: EntityMappingPlan
    ) throws(MappingFault) -> [ColumnAssignment] {
        guard attribute.type != .composite else {
            return try elementAssignments(by: mapping, to: attribute, of: declaring, in: plan)
        }
        guard let column = column([attribute.name], of: declaring) else { return [] }
        guard let expression = mapping?.valueExpression, let source = plan.source else {
            return [ColumnAssignment(column: column, value: attribute.defaultLiteral ?? "NULL")]
        }
        if let call = PolicyCall(expression) {
            guard plan.usesPolicy else {
                throw MappingFault(
                    "$entityPolicy needs a policy, but the mapping names none", remedy: "name the policy's class",
                    element: plan.mapping.name + "." + attribute.name)
            }
            return [ColumnAssignment(column: column, value: "NULL", attribute: attribute.name, policyCall: call)]
        }
        var compiler = compiler.scoped(to: source.name, as: EntityMappingPlan.rowAlias, mapping: plan.mapping)
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

    /// Returns the assignments of a composite attribute, which is mapped as a whole from another one. Elements come
    /// from those of the same renaming identifier, as in an inferred mapping, or else of the same name.
    private func elementAssignments(
        by mapping: PropertyMapping?, to attribute: AttributeDescription, of declaring: EntityDescription,
        in plan: EntityMappingPlan
    ) throws(MappingFault) -> [ColumnAssignment] {
        var found: [ColumnAssignment] = []
        for (path, element) in attribute.leaves {
            guard let column = column(path, of: declaring) else { continue }
            let unmapped = ColumnAssignment(column: column, value: element.defaultLiteral ?? "NULL")
            guard let source = plan.source, case .keyPath(let operand, let from)? = mapping?.valueExpression else {
                found.append(unmapped)
                continue
            }
            let former = former(of: path, in: attribute, from: from, of: source)
            let names = former?.path ?? Array(path.dropFirst())
            var compiler = compiler.scoped(to: source.name, as: EntityMappingPlan.rowAlias, mapping: plan.mapping)
            // An element that the older attribute lacks is new.
            guard
                let value = try? compiler.value(.keyPath(of: operand, ([from] + names).joined(separator: ".")))
            else {
                found.append(unmapped)
                continue
            }
            var assignment = element.assignment(of: value, to: column)
            if former?.element.isOptional == true, !element.isOptional, let literal = element.defaultLiteral {
                assignment.value = "IFNULL(\(assignment.value), \(literal))"
                assignment.classes = .all
            }
            found.append(assignment)
        }
        return found
    }

    /// Returns the element of the older attribute that became the one at `path`; nil if the older attribute isn't a
    /// composite one of the source, or one of its elements has no counterpart.
    private func former(
        of path: [String], in attribute: AttributeDescription, from name: String, of source: EntityDescription
    ) -> (path: [String], element: AttributeDescription)? {
        guard case .attribute(var former)? = self.source.model.property(named: name, of: source) else { return nil }
        var current = attribute
        var names: [String] = []
        for name in path.dropFirst() {
            guard let element = current.elements.first(where: { $0.name == name }),
                let match = former.elements.first(where: { $0.renamingIdentifier == element.renamingIdentifier })
                    ?? former.elements.first(where: { $0.name == name })
            else { return nil }
            (current, former) = (element, match)
            names.append(match.name)
        }
        return (names, former)
    }
}

extension AttributeDescription {
    /// The elements of a composite attribute that hold values, with the names on the path to them.
    fileprivate var leaves: [(path: [String], element: AttributeDescription)] {
        guard type == .composite else { return [([name], self)] }
        return elements.flatMap { element in element.leaves.map { ([name] + $0.path, $0.element) } }
    }

    /// Returns the assignment of a value, converted to the form of this attribute's column.
    fileprivate func assignment(of value: SQLValue, to column: String) -> ColumnAssignment {
        var text = value.text
        var classes = value.classes
        switch type {
        case .integer16, .integer32, .integer64, .boolean:
            // The integer part of a number, as `NSNumber` returns it.
            if value.isFraction || value.type == nil {
                text = "CASE typeof(\(text)) WHEN 'real' THEN CAST(\(text) AS INTEGER) ELSE \(text) END"
                if classes.isSubset(of: .number) { classes = [.integer, .null] }
            }
        case .uuid where value.type == .string: (text, classes) = ("\(SQLFunction.uuid.rawValue)(\(text))", .all)
        case .string where value.type == .uuid: (text, classes) = ("\(SQLFunction.uuidText.rawValue)(\(text))", .all)
        case .string, .uri:
            if value.type == nil { (text, classes) = ("CAST(\(text) AS TEXT)", [.text, .null]) }
        case .binaryData, .transformable: (text, classes) = (marked(value), .all)
        default: break
        }
        return ColumnAssignment(column: column, value: text, attribute: name, classes: classes)
    }

    /// Adds or removes the marker that precedes a value of external binary data: 1, or 2 and the file's name.
    private func marked(_ value: SQLValue) -> String {
        switch (value.isExternal, allowsExternalBinaryDataStorage) {
        case (false, true) where value.text != "NULL":
            "CASE WHEN \(value.text) IS NULL THEN NULL ELSE CAST(x'01' || \(value.text) AS BLOB) END"
        case (true, false): "\(ExternalData.function)(\(value.text))"
        default: value.text
        }
    }
}
