import ManagedObjectModels

/// Which of several versions a store is of.
extension ModelBundle {
    /// The versions that the store may be of, the likeliest first: one, where its hashes are one version's. Of several with
    /// these hashes, those whose identifiers the store names; of these, those whose renaming identifiers are the ones in its
    /// model cache. Several are left where neither tells them apart, none where no version has the hashes.
    ///
    /// Whatever asks which version a store is of asks here: a version that the store isn't of may call its entities by
    /// other renaming identifiers, and a migration by these removes objects.
    package func versions(of store: StoreModel) -> [ModelVersion] {
        let known = versions(matching: store.metadata.versionHashes)
        guard known.count > 1 else { return known }
        let identified = known.narrowed { $0.model.isIdentified(by: store.metadata.versionIdentifiers) }
        guard identified.count > 1, let cached = store.cachedModel?.renamingIdentifiers else { return identified }
        return identified.narrowed { $0.model.renamingIdentifiers == cached }
    }

    /// What developers call the store's version: `Notes 2`, `Notes or Notes 2` where nothing tells two apart; nil where no
    /// version has its hashes.
    package func versionName(of store: StoreModel) -> String? {
        let names = versions(of: store).map(\.name)
        return names.isEmpty ? nil : names.joined(separator: " or ")
    }
}

extension [ModelVersion] {
    /// Those for which it holds; all, where it holds for none.
    fileprivate func narrowed(to isMeant: (ModelVersion) -> Bool) -> [ModelVersion] {
        let found = filter(isMeant)
        return found.isEmpty ? self : found
    }
}

extension ManagedObjectModel {
    /// Whether a store names just these identifiers. Xcode gives a version without one an empty one; a store without any
    /// says nothing.
    fileprivate func isIdentified(by identifiers: [String]) -> Bool {
        !identifiers.isEmpty && Set(identifiers).subtracting([""]) == versionIdentifiers.subtracting([""])
    }

    /// What each entity and property is known by across versions: what an inferred mapping goes by, and no hash covers.
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
