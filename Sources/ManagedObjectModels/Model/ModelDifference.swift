/// What changed from one model to another. Entities and properties belong together when their renaming identifiers
/// are the same, as in an inferred migration; declared ones are compared, not inherited ones.
package struct ModelDifference: Sendable {
    package enum Kind: String, Sendable {
        case added, removed, renamed, changed
    }

    package struct Detail: Equatable, Sendable {
        package let aspect: String
        /// Nil when it was not said.
        package let old: String?
        package let new: String?
    }

    package struct Change: Sendable {
        package let kind: Kind
        /// The newer model's name; of a removed one, the older's.
        package let entity: String
        package let property: String?
        /// What it was called; nil unless it was renamed.
        package let oldName: String?
        package let details: [Detail]
        /// Whether a store must be migrated for it.
        package let changesVersionHash: Bool
    }

    /// By entity; each entity's own change comes before its properties'.
    package let changes: [Change]

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
        let pairs = Pairing(old.entities, new.entities, \.renamingIdentifier, \.name)
        var found: [ModelDifference.Change] = pairs.removed.map { change(.removed, $0.name, changesHash: true) }
        for (before, after) in pairs.all {
            guard let before else {
                found.append(change(.added, after.name, changesHash: true))
                continue
            }
            found += changes(from: before, to: after)
        }
        let order = found.enumerated().sorted { one, other in
            one.element.entity == other.element.entity
                ? one.offset < other.offset : one.element.entity.precedes(other.element.entity)
        }
        return order.map(\.element)
    }

    private func changes(from before: EntityDescription, to after: EntityDescription) -> [ModelDifference.Change] {
        var found: [ModelDifference.Change] = []
        let details = Self.details(before.aspects, after.aspects)
        let hasOtherHash = oldHashes[before.name] != newHashes[after.name]
        if before.name != after.name || !details.isEmpty {
            found.append(
                change(
                    before.name == after.name ? .changed : .renamed, after.name, oldName: before.name, details,
                    changesHash: hasOtherHash && (before.name != after.name || details.contains { $0.isHashed })))
        }
        let pairs = Pairing(before.declaredProperties, after.declaredProperties, \.renamingIdentifier, \.name)
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
            before.name == after.name ? .changed : .renamed, entity.name, after.name, oldName: before.name, details,
            changesHash: isStored && old.versionHash(of: before) != new.versionHash(of: after))
    }

    private func change(
        _ kind: ModelDifference.Kind, _ entity: String, _ property: String? = nil, oldName: String? = nil,
        _ details: [ModelDifference.Detail] = [], changesHash: Bool
    ) -> ModelDifference.Change {
        ModelDifference.Change(
            kind: kind, entity: entity, property: property, oldName: kind == .renamed ? oldName : nil,
            details: details, changesVersionHash: changesHash)
    }

    private static func details(_ before: [ModelAspect], _ after: [ModelAspect]) -> [ModelDifference.Detail] {
        let was = Dictionary(before.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
        let became = Dictionary(after.map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
        let names = before.map(\.name) + after.map(\.name).filter { was[$0] == nil }
        return names.filter { was[$0] != became[$0] }.map { .init(aspect: $0, old: was[$0], new: became[$0]) }
    }
}

extension ModelDifference.Detail {
    /// Of an entity's own aspects, those that its version hash covers.
    fileprivate var isHashed: Bool {
        ["abstract", "parent", "versionHashModifier"].contains(aspect) || aspect.hasPrefix("unique ")
    }
}

/// Two lists put together by what their elements are known by.
package struct Pairing<Element> {
    /// Each of the newer list, with the older one that it was; in the newer list's order.
    package let all: [(old: Element?, new: Element)]
    /// The older ones that no newer one is.
    package let removed: [Element]

    package init(
        _ old: [Element], _ new: [Element], _ identifier: (Element) -> String, _ name: (Element) -> String
    ) {
        var known = Dictionary(old.map { (identifier($0), $0) }, uniquingKeysWith: { first, _ in first })
        var pairs: [(old: Element?, new: Element)] = []
        for element in new { pairs.append((known.removeValue(forKey: identifier(element)), element)) }
        all = pairs
        removed = known.values.sorted { name($0).precedes(name($1)) }
    }
}
