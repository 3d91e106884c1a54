import ManagedObjectModels

/// Finds properties whose names are constants in the format language: `no` alone means false, even if the entity has a
/// property of that name.
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
            check(ReferencedKeys(filter).constants, for: names, of: entity.name, in: mapping.name + " where")
        }
        for property in mapping.attributeMappings + mapping.relationshipMappings {
            guard let expression = property.valueExpression else { continue }
            let place = mapping.name + "." + property.name
            check(ReferencedKeys(expression).constants, for: names, of: entity.name, in: place)
        }
    }

    private mutating func check(
        _ constants: [AttributeValue?], for names: [String], of entity: String, in place: String
    ) {
        for name in names {
            guard let constant = Self.constants[name.lowercased()], constants.contains(constant) else { continue }
            var finding = MigrationFinding(
                .warning, entity: entity, property: name,
                "in \(place), “\(name)” alone reads as the constant \(constant == nil ? "nil" : name.uppercased()), not as "
                    + "the property",
                remedy: "write SELF.\(name) or #\(name) to refer to the property")
            finding.isReportedAtRun = true
            findings.append(finding)
        }
    }
}
