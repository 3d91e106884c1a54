/// The changes from one model to another.
///
/// Entities and properties match if their renaming identifiers are equal, as in an inferred migration. Each entity's
/// declared properties are compared, not its inherited ones.
///
/// ```swift
/// for change in ModelDifference(from: old, to: new).changes where change.changesVersionHash {
///     print(change.kind, change.entity, change.property ?? "")
/// }
/// ```
package struct ModelDifference: Sendable {
    /// The kind of a change. A renamed entity or property may have changed otherwise, too.
    package enum Kind: String, Sendable {
        case added, removed, renamed, changed
    }

    /// A setting that changed.
    package struct Detail: Equatable, Sendable {
        /// The name of the setting, as in a model's XML.
        package let aspect: String
        /// The old value; nil if it was not set.
        package let old: String?
        /// The new value; nil if it is not set.
        package let new: String?
    }

    /// A change of one entity or property.
    package struct Change: Sendable {
        package let kind: Kind
        /// The name of the entity in the newer model, or in the older model if the entity was removed.
        package let entity: String
        /// The name of the property; nil for a change of the entity itself.
        package let property: String?
        /// The former name; nil unless the entity or property was renamed.
        package let oldName: String?
        package let details: [Detail]
        /// True if a store must be migrated because of the change.
        package let changesVersionHash: Bool
    }

    /// The changes, sorted by entity. An entity's own change precedes those of its properties.
    package let changes: [Change]

    /// Compares two models.
    package init(from old: ManagedObjectModel, to new: ManagedObjectModel) {
        changes = ModelComparison(old, new).changes
    }
}

private struct ModelComparison {
    private let old: ManagedObjectModel
    private let new: ManagedObjectModel
    private let oldHashes: [String: [UInt8]]
    private let newHashes: [String: [UInt8]]

    init(_ old: ManagedObjectModel, _ new: ManagedObjectModel) {
        self.old = old
        self.new = new
        oldHashes = old.entityVersionHashesByName
        newHashes = new.entityVersionHashesByName
    }

    var changes: [ModelDifference.Change] {
        let pairs = Pairing(old.entities, new.entities, identifier: \.renamingIdentifier, name: \.name)
        var found: [ModelDifference.Change] = pairs.removed.map { change(.removed, $0.name, changesHash: true) }
        for (before, after) in pairs.all {
            guard let before else {
                found.append(change(.added, after.name, changesHash: true))
                continue
            }
            found += changes(from: before, to: after)
        }
        let sorted = found.enumerated().sorted { lhs, rhs in
            lhs.element.entity == rhs.element.entity
                ? lhs.offset < rhs.offset : lhs.element.entity.precedes(rhs.element.entity)
        }
        return sorted.map(\.element)
    }

    private func changes(from before: EntityDescription, to after: EntityDescription) -> [ModelDifference.Change] {
        var found: [ModelDifference.Change] = []
        let details = Self.details(before.aspects, after.aspects)
        let hasNewHash = oldHashes[before.name] != newHashes[after.name]
        if before.name != after.name || !details.isEmpty {
            found.append(
                change(
                    before.name == after.name ? .changed : .renamed, after.name, oldName: before.name, details: details,
                    changesHash: hasNewHash && (before.name != after.name || details.contains { $0.isHashed })))
        }
        let pairs = Pairing(
            before.declaredProperties, after.declaredProperties, identifier: \.renamingIdentifier, name: \.name)
        found += pairs.removed.map { change(.removed, after.name, $0.name, changesHash: !$0.isTransient) }
        found += pairs.all.compactMap { change(of: after, from: $0, to: $1) }
        return found
    }

    private func change(
        of entity: EntityDescription, from before: PropertyDescription?, to after: PropertyDescription
    ) -> ModelDifference.Change? {
        guard let before else { return change(.added, entity.name, after.name, changesHash: !after.isTransient) }
        var details = Self.details(before.aspects, after.aspects)
        if before.kind != after.kind { details.insert(.init(aspect: "kind", old: before.kind, new: after.kind), at: 0) }
        guard before.name != after.name || !details.isEmpty else { return nil }
        let isStored = !(before.isTransient && after.isTransient)
        return change(
            before.name == after.name ? .changed : .renamed, entity.name, after.name, oldName: before.name,
            details: details,
            changesHash: isStored && old.versionHash(of: before) != new.versionHash(of: after))
    }

    private func change(
        _ kind: ModelDifference.Kind, _ entity: String, _ property: String? = nil, oldName: String? = nil,
        details: [ModelDifference.Detail] = [], changesHash: Bool
    ) -> ModelDifference.Change {
        ModelDifference.Change(
            kind: kind, entity: entity, property: property, oldName: kind == .renamed ? oldName : nil,
            details: details, changesVersionHash: changesHash)
    }

    private static func details(_ before: [ModelAspect], _ after: [ModelAspect]) -> [ModelDifference.Detail] {
        let oldValues = Dictionary(before.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
        let newValues = Dictionary(after.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
        let names = before.map(\.name) + after.map(\.name).filter { oldValues[$0] == nil }
        return names.filter { oldValues[$0] != newValues[$0] }.map {
            .init(aspect: $0, old: oldValues[$0], new: newValues[$0])
        }
    }
}

extension ModelDifference.Detail {
    /// True for a setting of an entity that its version hash covers.
    fileprivate var isHashed: Bool {
        ["abstract", "parent", "versionHashModifier"].contains(aspect) || aspect.hasPrefix("unique ")
    }
}

/// The elements of two lists, matched by an identifier; of several with one identifier, those of the same name first.
package struct Pairing<Element> {
    /// The elements of the newer list in their order, each with its match in the older list.
    package let all: [(old: Element?, new: Element)]
    /// The elements of the older list without a match, sorted by name.
    package let removed: [Element]

    package init(
        _ old: [Element], _ new: [Element], identifier: (Element) -> String, name: (Element) -> String
    ) {
        var known = Dictionary(grouping: old, by: identifier)
        var pairs: [(old: Element?, new: Element)] = new.map { (nil, $0) }
        for needsSameName in [true, false] {
            for (index, pair) in pairs.enumerated() where pair.old == nil {
                let key = identifier(pair.new)
                let found = known[key]?.firstIndex { !needsSameName || name($0) == name(pair.new) }
                if let found { pairs[index].old = known[key]?.remove(at: found) }
            }
        }
        all = pairs
        removed = known.values.joined().sorted { name($0).precedes(name($1)) }
    }
}
