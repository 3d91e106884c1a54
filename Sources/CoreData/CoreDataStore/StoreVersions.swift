import ManagedObjectModels

/// The search for the version of a store.
extension ModelBundle {
    /// Returns the versions that the store may have, likeliest first. It is empty if no version has the store's hashes.
    ///
    /// If several versions have these hashes, it keeps those with the store's version identifiers, then those with the
    /// renaming identifiers in the store's model cache. Several remain if neither distinguishes them.
    ///
    /// Every search for a store's version goes through this function. A wrong version may have other renaming
    /// identifiers, and a migration by them removes objects.
    package func versions(of store: StoreModel) -> [ModelVersion] {
        let matching = versions(matching: store.metadata.versionHashes)
        guard matching.count > 1 else { return matching }
        let identified = matching.narrowed { $0.model.isIdentified(by: store.metadata.versionIdentifiers) }
        guard identified.count > 1, let cached = store.cachedModel?.renamingIdentifiers else { return identified }
        return identified.narrowed { $0.model.renamingIdentifiers == cached }
    }

    /// Returns the name of the store's version, such as `Notes 2`, or `Notes or Notes 2` if two versions can't be
    /// distinguished; nil if no version has its hashes.
    package func versionName(of store: StoreModel) -> String? {
        let names = versions(of: store).map(\.name)
        return names.isEmpty ? nil : names.joined(separator: " or ")
    }
}

extension [ModelVersion] {
    /// Returns the versions that satisfy the condition, or all if none does.
    fileprivate func narrowed(by condition: (ModelVersion) -> Bool) -> [ModelVersion] {
        let found = filter(condition)
        return found.isEmpty ? self : found
    }
}

extension ManagedObjectModel {
    /// Returns true if a store's identifiers equal the model's. Xcode writes an empty identifier for a version without
    /// one. A store without identifiers matches no model.
    fileprivate func isIdentified(by identifiers: [String]) -> Bool {
        !identifiers.isEmpty && Set(identifiers).subtracting([""]) == versionIdentifiers.subtracting([""])
    }

    /// The renaming identifiers of all entities and properties, by `Entity` or `Entity.property`. An inferred mapping
    /// uses them; no hash covers them.
    package var renamingIdentifiers: [String: String] {
        var found: [String: String] = [:]
        func add(_ attributes: [AttributeDescription], in path: String) {
            for attribute in attributes {
                found[path + "." + attribute.name] = attribute.renamingIdentifier
                add(attribute.elements, in: path + "." + attribute.name)
            }
        }
        for entity in entities {
            found[entity.name] = entity.renamingIdentifier
            add(entity.attributes, in: entity.name)
            for relationship in entity.relationships {
                found[entity.name + "." + relationship.name] = relationship.renamingIdentifier
            }
        }
        return found
    }
}
