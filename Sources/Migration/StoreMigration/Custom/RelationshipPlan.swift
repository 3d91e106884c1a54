import CoreDataStore
import ManagedObjectModels
import MappingModels

/// The targets of one relationship, for the new objects of one entity mapping.
struct RelationshipPlan {
    let relationship: RelationshipDescription
    /// The table and columns that hold the relationship in the new store.
    let link: LinkStorage
    /// The columns of a to-one relationship; nil if the relationship isn't stored in its owner's row.
    let columns: LinkStorage.Columns?
    /// The targets, for each entity mapping that may have created them.
    var targets: [RelationshipTargets]
    /// `FUNCTION($entityPolicy, …)`: the call by which the policy returns the objects.
    var policyCall: PolicyCall?
    /// The links of the older relationship whose objects become the targets; nil if they are others.
    var sourceLink: LinkStorage?

    /// True if the new keys of all targets are known before any new object is inserted.
    var isKnownAtInsert: Bool { columns != nil && targets.allSatisfy(\.isKnownAtInsert) && policyCall == nil }
}

/// The new objects that an entity mapping created from older ones.
struct RelationshipTargets {
    /// The number of the entity mapping.
    let creator: Int
    /// The older objects.
    let objects: SQLObjects
    /// The SQL expressions of the new key and its entity number.
    let key: String
    let entityNumber: String
    let isKnownAtInsert: Bool
    /// True if each new object has the key of the older one.
    let keepsKey: Bool
}

extension MappingPlan {
    private static let byMapping = "destinationInstancesForEntityMappingNamed:sourceInstances:"
    private static let byRelationship = "destinationInstancesForSourceRelationshipNamed:sourceInstances:"

    /// Returns a plan for each relationship that the entity mapping has a value for.
    func relationshipPlans(_ plan: EntityMappingPlan) throws(MappingFault) -> [RelationshipPlan] {
        guard let entity = plan.destination, plan.source != nil else { return [] }
        var found: [RelationshipPlan] = []
        for mapping in plan.mapping.relationshipMappings {
            guard let expression = mapping.valueExpression, expression != .constant(nil),
                case .relationship(let relationship)? = destination.model.property(named: mapping.name, of: entity),
                let link = LinkStorage(of: relationship, declaredFor: entity.name, in: destination)
            else { continue }
            let columns =
                relationship.isToMany
                ? nil : LinkStorage.columns(of: relationship, declaredFor: entity.name, in: destination)
            do {
                let call = PolicyCall(expression)
                let targets = call == nil ? try targets(of: expression, for: relationship, in: plan) : []
                found.append(
                    RelationshipPlan(
                        relationship: relationship, link: link, columns: columns, targets: targets, policyCall: call,
                        sourceLink: sourceLink(of: expression, plan)))
            } catch {
                throw error.within(plan.mapping.name + "." + mapping.name)
            }
        }
        return found
    }

    private func targets(
        of expression: MappingExpression, for relationship: RelationshipDescription, in plan: EntityMappingPlan
    ) throws(MappingFault) -> [RelationshipTargets] {
        guard case .message(.variable("manager"), let selector, let arguments) = expression, arguments.count == 2,
            case .constant(.string(let name)?) = arguments[0], [Self.byMapping, Self.byRelationship].contains(selector)
        else {
            throw MappingFault(
                "\(expression) doesn't return new objects",
                remedy: "use FUNCTION($manager, \"\(Self.byMapping)\", \"MAPPING\", $source.RELATIONSHIP)")
        }
        let objects = try sourceObjects(arguments[1], plan)
        guard selector == Self.byMapping else {
            let candidates = plans(from: objects.entity, to: relationship.destinationEntityName)
            var found: [RelationshipTargets] = []
            for candidate in candidates { found.append(try targets(of: objects, by: candidate)) }
            return found
        }
        guard let candidate = self.plan(named: name) else {
            throw MappingFault("there is no entity mapping “\(name)”", remedy: "name an existing entity mapping")
        }
        let family = destination.model.family(of: relationship.destinationEntityName)
        guard candidate.destination.map({ family.contains($0.name) }) ?? false else {
            throw MappingFault(
                "“\(name)” creates no objects of \(relationship.destinationEntityName)",
                remedy: "name an entity mapping that does")
        }
        return [try targets(of: objects, by: candidate)]
    }

    /// Returns the links of the relationship that the expression maps as a whole.
    private func sourceLink(of expression: MappingExpression, _ plan: EntityMappingPlan) -> LinkStorage? {
        guard case .message(.variable("manager"), _, let arguments) = expression, arguments.count == 2,
            case .keyPath(.variable("source"), let name) = arguments[1], let entity = plan.source,
            case .relationship(let relationship)? = source.model.property(named: name, of: entity)
        else { return nil }
        return LinkStorage(of: relationship, declaredFor: entity.name, in: source)
    }

    private func sourceObjects(
        _ expression: MappingExpression, _ plan: EntityMappingPlan
    ) throws(MappingFault) -> SQLObjects {
        var expression = expression
        if case .aggregate(let elements) = expression, elements.count == 1 { expression = elements[0] }
        var compiler = compiler.scoped(
            to: plan.source?.name ?? "", as: EntityMappingPlan.rowAlias, mapping: plan.mapping)
        guard case .objects(let objects) = try compiler.compile(expression) else {
            throw MappingFault("\(expression) is not a collection of objects", remedy: "name a relationship of $source")
        }
        return objects
    }

    /// Returns the new objects that the entity mapping creates from these objects.
    private func targets(
        of objects: SQLObjects, by candidate: EntityMappingPlan
    ) throws(MappingFault) -> RelationshipTargets {
        var found = objects
        let number = destination.numbers.number(of: candidate.destination?.name ?? "")
        switch candidate.association {
        case .identity:
            found.conditions += try conditions(candidate, alias: objects.alias)
            return RelationshipTargets(
                creator: candidate.number, objects: found, key: objects.key, entityNumber: String(number),
                isKnownAtInsert: true, keepsKey: true)
        case .table(let name):
            let alias = "a\(candidate.number)"
            found.sources.append("temp.\(name) AS \(alias)")
            found.conditions += [
                "\(alias).source = \(objects.key)", "\(alias).source_entity = \(objects.entityNumber)",
            ]
            return RelationshipTargets(
                creator: candidate.number, objects: found, key: alias + ".destination",
                entityNumber: alias + ".destination_entity",
                isKnownAtInsert: !candidate.usesPolicy, keepsKey: false)
        }
    }
}

extension RelationshipPlan {
    /// The reference whose keys are those of the new objects, if each of them leads to one; nil if the key of the
    /// target has to be looked up in any case.
    var keptReference: (reference: SQLReference, targets: SQLObjects)? {
        guard isKnownAtInsert, targets.count == 1, let target = targets.first, target.keepsKey,
            let reference = target.objects.reference
        else { return nil }
        return (reference, target.objects)
    }

    /// Returns the assignments of a to-one relationship's columns in the statement that inserts the objects.
    ///
    /// - Parameter leadsToObjects: True if each key of `keptReference` is that of a new object.
    func insertAssignments(leadsToObjects: Bool) -> [ColumnAssignment] {
        guard let columns, isKnownAtInsert else { return [] }
        if leadsToObjects, let kept = keptReference, let target = targets.first {
            let key = EntityMappingPlan.rowAlias + "." + kept.reference.column.sqlName
            return assignments(
                key: key, entity: "CASE WHEN \(key) IS NULL THEN NULL ELSE \(target.entityNumber) END", in: columns)
        }
        func value(_ part: (RelationshipTargets) -> String) -> String {
            let values = targets.map { target in
                target.objects.selecting(part(target), suffix: target.objects.isToMany ? target.order : " LIMIT 1")
            }
            return values.isEmpty
                ? "NULL" : values.count == 1 ? values[0] : "coalesce(\(values.joined(separator: ", ")))"
        }
        return assignments(key: value(\.key), entity: value(\.entityNumber), in: columns)
    }

    private func assignments(key: String, entity: String, in columns: LinkStorage.Columns) -> [ColumnAssignment] {
        var found = [ColumnAssignment(column: columns.reference, value: key)]
        if let column = columns.entity { found.append(ColumnAssignment(column: column, value: entity)) }
        if let order = columns.order, let place = targets.lazy.compactMap(\.objects.ownerPlace).first {
            found.append(ColumnAssignment(column: order, value: place))
        }
        return found
    }

    /// Returns a query with a row for each link between new objects: `owner`, `owner_entity`, `target`,
    /// `target_entity`, `place` (the target's position) and `owner_place`.
    func links(_ rows: MappedRows) -> String {
        targets.map { target in
            var all = rows
            all.sources += target.objects.sources
            all.conditions += target.objects.conditions
            return all.query([
                "\(rows.key) AS owner", "\(rows.entityNumber) AS owner_entity", "\(target.key) AS target",
                "\(target.entityNumber) AS target_entity", "\(target.objects.place ?? "NULL") AS place",
                "\(target.objects.ownerPlace ?? "NULL") AS owner_place",
            ])
        }.joined(separator: " UNION ALL ")
    }
}

extension RelationshipTargets {
    /// The SQL suffix that selects the first of several targets.
    fileprivate var order: String {
        " ORDER BY " + [objects.place, key].compactMap(\.self).joined(separator: ", ") + " LIMIT 1"
    }
}
