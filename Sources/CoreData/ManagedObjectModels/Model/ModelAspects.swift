/// A setting of an entity or property, named as in a model's XML.
package struct ModelAspect: Equatable, Sendable {
    package let name: String
    package let value: String

    /// True if the name alone describes the setting. A default value is never a flag, even if it is `YES`.
    package var isFlag: Bool { value == "YES" && name != "default" }

    fileprivate init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// A list of settings that leaves out those with their usual value.
private struct AspectList {
    var aspects: [ModelAspect] = []

    mutating func add(_ name: String, _ value: String?) {
        if let value { aspects.append(ModelAspect(name, value)) }
    }

    mutating func add(_ name: String, _ isSet: Bool) { add(name, isSet ? "YES" : nil) }

    mutating func add(_ userInfo: [String: String]) {
        for (key, value) in userInfo.sorted(by: { $0.key < $1.key }) { add("userInfo " + key, value) }
    }
}

extension EntityDescription {
    /// The settings of the entity without its properties.
    package var aspects: [ModelAspect] {
        var list = AspectList()
        list.add("class", managedObjectClassName)
        list.add("abstract", isAbstract)
        list.add("parent", superentityName)
        list.add("renamingIdentifier", renamingIdentifier == name ? nil : renamingIdentifier)
        list.add("versionHashModifier", versionHashModifier)
        for constraint in uniquenessConstraints { list.add("unique " + constraint.joined(separator: ", "), true) }
        for index in indexes { list.add("index " + index.name, index.text) }
        for index in compoundIndexes { list.add("compoundIndex " + index.joined(separator: ", "), true) }
        list.add(userInfo)
        return list.aspects
    }
}

extension FetchIndexDescription {
    fileprivate var text: String {
        let elements = elements.map { element in
            element.property + (element.isAscending ? "" : " descending") + (element.kind == .rTree ? " RTree" : "")
        }
        return elements.joined(separator: ", ") + (partialIndexPredicate.map { " where " + $0 } ?? "")
    }
}

extension PropertyDescription {
    /// The settings of the property.
    package var aspects: [ModelAspect] {
        switch self {
        case .attribute(let attribute): attribute.aspects
        case .relationship(let relationship): relationship.aspects
        case .fetched(let property): property.aspects
        }
    }

    /// The kind of property: `attribute`, `relationship` or `fetchedProperty`.
    package var kind: String {
        switch self {
        case .attribute: "attribute"
        case .relationship: "relationship"
        case .fetched: "fetchedProperty"
        }
    }
}

extension AttributeDescription {
    fileprivate var aspects: [ModelAspect] {
        var list = AspectList()
        list.add("type", type.name)
        list.add("optional", isOptional)
        list.add("transient", isTransient)
        // A derived attribute always is.
        list.add("readOnly", isReadOnly && derivation == nil)
        list.add("default", defaultValue?.description)
        list.add("derived", derivation?.expression)
        list.add("derivationFilter", derivation?.filteringPredicate)
        list.add("externalStorage", allowsExternalBinaryDataStorage)
        list.add("preserveAfterDeletion", preservesValueInHistoryOnDeletion)
        list.add("cloudEncryption", allowsCloudEncryption)
        list.add("class", valueClassName)
        list.add("transformer", valueTransformerName)
        list.add("indexed", isIndexed)
        list.add("spotlight", isIndexedBySpotlight)
        for rule in validations {
            list.add("validation " + rule.predicate, rule.message ?? rule.errorCode.map(String.init) ?? "YES")
        }
        for element in elements {
            let settings = element.aspects.map { $0.isFlag ? $0.name : $0.value }
            list.add("element " + element.name, settings.joined(separator: " "))
        }
        list.add("renamingIdentifier", renamingIdentifier == name ? nil : renamingIdentifier)
        list.add("versionHashModifier", versionHashModifier)
        list.add(userInfo)
        return list.aspects
    }
}

extension RelationshipDescription {
    fileprivate var aspects: [ModelAspect] {
        var list = AspectList()
        list.add("destination", destinationEntityName)
        list.add("inverse", inverseName)
        list.add("toMany", isToMany)
        list.add("ordered", isOrdered)
        list.add("optional", isOptional)
        list.add("transient", isTransient)
        list.add("readOnly", isReadOnly)
        list.add("minCount", minCount == 0 ? nil : String(minCount))
        list.add("maxCount", maxCount <= 1 ? nil : String(maxCount))
        list.add("deleteRule", deleteRule.name)
        list.add("renamingIdentifier", renamingIdentifier == name ? nil : renamingIdentifier)
        list.add("versionHashModifier", versionHashModifier)
        list.add(userInfo)
        return list.aspects
    }
}

extension FetchedPropertyDescription {
    fileprivate var aspects: [ModelAspect] {
        var list = AspectList()
        list.add("entity", fetchRequest.entityName)
        list.add("predicate", fetchRequest.predicate)
        list.add("fetchLimit", fetchRequest.fetchLimit == 0 ? nil : String(fetchRequest.fetchLimit))
        list.add("fetchBatchSize", fetchRequest.fetchBatchSize == 0 ? nil : String(fetchRequest.fetchBatchSize))
        list.add("renamingIdentifier", renamingIdentifier == name ? nil : renamingIdentifier)
        list.add(userInfo)
        return list.aspects
    }
}
