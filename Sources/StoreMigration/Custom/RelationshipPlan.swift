import CoreDataStore
import ManagedObjectModels
import MappingModels

/// Where the objects of one relationship come from, for the new objects of one entity mapping.
struct RelationshipPlan {
    let relationship: RelationshipDescription
    /// Where the new store keeps it.
    let link: LinkStorage
    /// The columns of a to-one relationship; nil where it is kept elsewhere.
    let columns: LinkStorage.Columns?
    /// The objects, by each entity mapping that may have made them.
    let targets: [RelationshipTargets]
    /// `FUNCTION($entityPolicy, …)`: the policy is asked for the objects.
    var policyCall: PolicyCall?

    /// Whether what became of the older objects is known before any new one is made.
    var isKnownEarly: Bool { columns != nil && targets.allSatisfy(\.isKnownEarly) && policyCall == nil }
}

/// New objects that an entity mapping made of older ones.
struct RelationshipTargets {
    /// The older ones.
    let objects: SQLObjects
    /// The new key and its entity's number.
    let key: String
    let entityNumber: String
    let isKnownEarly: Bool
}

extension MappingPlan {
    private static let byMapping = "destinationInstancesForEntityMappingNamed:sourceInstances:"
    private static let byRelationship = "destinationInstancesForSourceRelationshipNamed:sourceInstances:"

    /// One for each relationship that the mapping says something of.
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
                let targets = call == nil ? try targets(expression, relationship, plan) : []
                found.append(
                    RelationshipPlan(
                        relationship: relationship, link: link, columns: columns, targets: targets, policyCall: call))
            } catch {
                throw error.within(plan.mapping.name + "." + mapping.name)
            }
        }
        return found
    }

    private func targets(
        _ expression: MappingExpression, _ relationship: RelationshipDescription, _ plan: EntityMappingPlan
    ) throws(MappingFault) -> [RelationshipTargets] {
        guard case .message(.variable("manager"), let selector, let arguments) = expression, arguments.count == 2,
            case .constant(.string(let name)?) = arguments[0], [Self.byMapping, Self.byRelationship].contains(selector)
        else {
            throw MappingFault(
                "\(expression) gives no new objects",
                remedy: "use FUNCTION($manager, \"\(Self.byMapping)\", \"MAPPING\", $source.RELATIONSHIP)")
        }
        let objects = try sourceObjects(arguments[1], plan)
        guard selector == Self.byMapping else {
            let candidates = plans(from: objects.entity, to: relationship.destinationEntityName)
            var found: [RelationshipTargets] = []
            for candidate in candidates { found.append(try targets(objects, candidate)) }
            return found
        }
        guard let candidate = self.plan(named: name) else {
            throw MappingFault("there is no entity mapping “\(name)”", remedy: "name one that there is")
        }
        let family = destination.model.family(of: relationship.destinationEntityName)
        guard candidate.destination.map({ family.contains($0.name) }) ?? false else {
            throw MappingFault(
                "“\(name)” makes no objects of \(relationship.destinationEntityName)",
                remedy: "name an entity mapping that does")
        }
        return [try targets(objects, candidate)]
    }

    private func sourceObjects(
        _ expression: MappingExpression, _ plan: EntityMappingPlan
    ) throws(MappingFault) -> SQLObjects {
        var expression = expression
        if case .aggregate(let elements) = expression, elements.count == 1 { expression = elements[0] }
        var compiler = compiler.about(plan.source?.name ?? "", as: EntityMappingPlan.rowAlias, plan.mapping)
        guard case .objects(let objects) = try compiler.compile(expression) else {
            throw MappingFault("\(expression) leads to no objects", remedy: "name a relationship of $source")
        }
        return objects
    }

    /// What the entity mapping made of these objects.
    private func targets(
        _ objects: SQLObjects, _ candidate: EntityMappingPlan
    ) throws(MappingFault) -> RelationshipTargets {
        var found = objects
        let number = destination.numbers.number(of: candidate.destination?.name ?? "")
        switch candidate.association {
        case .identity:
            found.conditions += try conditions(candidate, alias: objects.alias)
            return RelationshipTargets(
                objects: found, key: objects.key, entityNumber: String(number), isKnownEarly: true)
        case .table(let name):
            let alias = "a\(candidate.number)"
            found.sources.append("temp.\(name) AS \(alias)")
            found.conditions += [
                "\(alias).source = \(objects.key)", "\(alias).source_entity = \(objects.entityNumber)",
            ]
            return RelationshipTargets(
                objects: found, key: alias + ".destination", entityNumber: alias + ".destination_entity",
                isKnownEarly: !candidate.usesPolicy)
        }
    }
}

extension RelationshipPlan {
    /// The columns of a to-one relationship, in the statement that makes the objects.
    var earlyAssignments: [ColumnAssignment] {
        guard let columns, isKnownEarly else { return [] }
        func value(_ part: (RelationshipTargets) -> String) -> String {
            let values = targets.map { target in
                target.objects.selecting(part(target), suffix: target.objects.isToMany ? target.order : " LIMIT 1")
            }
            return values.isEmpty
                ? "NULL" : values.count == 1 ? values[0] : "coalesce(\(values.joined(separator: ", ")))"
        }
        var found = [ColumnAssignment(column: columns.reference, value: value(\.key))]
        if let entity = columns.entity { found.append(ColumnAssignment(column: entity, value: value(\.entityNumber))) }
        if let order = columns.order, let place = targets.lazy.compactMap(\.objects.ownerPlace).first {
            found.append(ColumnAssignment(column: order, value: place))
        }
        return found
    }

    /// A row for each link, from a new object to a new object: `owner`, `owner_entity`, `target`, `target_entity`,
    /// `place` among the owner's, `owner_place`.
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
    /// The first of several, where only one is wanted.
    fileprivate var order: String {
        " ORDER BY " + [objects.place, key].compactMap(\.self).joined(separator: ", ") + " LIMIT 1"
    }
}
