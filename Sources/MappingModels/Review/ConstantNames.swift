import ManagedObjectModels

/// Properties that are called as the format language calls a constant: `no` alone is false there, whatever the entity has.
package struct ConstantNames {
    package private(set) var findings: [MigrationFinding] = []

    private static let constants: [String: AttributeValue?] = [
        "no": .boolean(false), "false": .boolean(false), "yes": .boolean(true), "true": .boolean(true), "nil": nil,
        "null": nil,
    ]

    package init(_ mapping: EntityMapping, _ source: ManagedObjectModel) {
        guard let entity = mapping.sourceEntityName.flatMap(source.entity(named:)) else { return }
        let names = source.properties(of: entity).map(\.name).filter { Self.constants.keys.contains($0.lowercased()) }
        guard !names.isEmpty else { return }
        if let filter = mapping.filter {
            look(ReferencedKeys(filter).constants, names, entity.name, mapping.name + " where")
        }
        for property in mapping.attributeMappings + mapping.relationshipMappings {
            guard let expression = property.valueExpression else { continue }
            look(ReferencedKeys(expression).constants, names, entity.name, mapping.name + "." + property.name)
        }
    }

    private mutating func look(_ found: [AttributeValue?], _ names: [String], _ entity: String, _ place: String) {
        for name in names {
            guard let constant = Self.constants[name.lowercased()], found.contains(constant) else { continue }
            var finding = MigrationFinding(
                .warning, entity: entity, property: name,
                "in \(place), “\(name)” alone reads as the constant \(constant == nil ? "nil" : name.uppercased()), not as "
                    + "the property",
                remedy: "write SELF.\(name) or #\(name) where the property is meant")
            finding.isTold = true
            findings.append(finding)
        }
    }
}
