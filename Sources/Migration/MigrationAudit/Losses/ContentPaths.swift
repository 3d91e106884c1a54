import ManagedObjectModels

/// The way of each entity, attribute and relationship of the oldest model through all steps of a migration.
struct ContentPaths {
    private let steps: [StepCorrespondence]
    let old: EntityTree
    let new: EntityTree
    /// True if some objects may be gone although their entity stays: a condition or an app's own code decides.
    let mayDropObjects: Bool
    /// True if an app's own code changes the store on the way.
    let isChangedByHandlers: Bool

    /// An entity whose objects were those of an older entity.
    struct EntityEnd: Hashable {
        let entity: String
        let keepsKeys: Bool
    }

    enum EntityFate {
        case lost(LossPoint)
        case ends([EntityEnd])
    }

    struct ValueEnd {
        let entity: String
        let key: AttributeKey
        let keepsKeys: Bool
        /// The conversions on the way that may change the value. The audit proves that the others don't.
        let conversions: [ValueConversion]
    }

    enum ValueFate {
        case lost(LossPoint)
        case ends([ValueEnd])
        case undecided
    }

    /// Returns nil if there are no steps.
    init?(_ steps: [CountedStep]) {
        self.steps = steps.map { StepCorrespondence($0) }
        guard let first = self.steps.first, let last = self.steps.last else { return nil }
        (old, new) = (first.old, last.new)
        isChangedByHandlers = steps.contains { $0.runsHandlers && !$0.isMapped }
        mayDropObjects = steps.contains { $0.isMapped || $0.runsHandlers }
        for entity in old.names { entityFates[entity] = follow(entity) }
    }

    private func lossPoint(at index: Int) -> LossPoint {
        let step = steps[index].step
        return LossPoint(version: step.version, isLast: index == steps.count - 1, isMapped: step.isMapped)
    }

    // MARK: Entities

    private var entityFates: [String: EntityFate] = [:]

    func fate(of entity: String) -> EntityFate { entityFates[entity] ?? follow(entity) }

    private func follow(_ entity: String) -> EntityFate {
        var ends = [EntityEnd(entity: entity, keepsKeys: true)]
        for (index, step) in steps.enumerated() {
            ends = ends.flatMap { end in
                step.successors(of: end.entity).map {
                    EntityEnd(entity: $0.entity, keepsKeys: end.keepsKeys && $0.keepsKeys)
                }
            }
            guard !ends.isEmpty else { return .lost(lossPoint(at: index)) }
        }
        return .ends(ends)
    }

    func ends(of entity: String) -> [EntityEnd] { if case .ends(let ends) = fate(of: entity) { ends } else { [] } }

    func survives(_ entity: String) -> Bool { !ends(of: entity).isEmpty }

    // MARK: Values

    func fate(of key: AttributeKey, in entity: String) -> ValueFate {
        var ends = [ValueEnd(entity: entity, key: key, keepsKeys: true, conversions: [])]
        for (index, step) in steps.enumerated() {
            var next: [ValueEnd] = []
            for end in ends {
                for successor in step.successors(of: end.entity) {
                    switch step.attribute(end.key, of: end.entity, in: successor) {
                    case .none: continue
                    case .undecided: return .undecided
                    case .property(let property):
                        guard let was = step.old.stored(end.key), let now = step.new.stored(property) else { continue }
                        let conversion = ValueConversion(from: was, to: now)
                        if step.step.isMapped, !conversion.isComparable { return .undecided }
                        next.append(
                            ValueEnd(
                                entity: successor.entity, key: property,
                                keepsKeys: end.keepsKeys && successor.keepsKeys,
                                conversions: end.conversions + (conversion.isExact ? [] : [conversion])))
                    }
                }
            }
            guard !next.isEmpty else { return .lost(lossPoint(at: index)) }
            ends = next
        }
        return .ends(ends)
    }

    // MARK: Links

    /// A relationship as which links between two entities' objects are stored, from one or both of its ends.
    struct LinkEnd {
        let owner: EntityEnd
        let target: EntityEnd
        /// The relationship of the owner, and that of the target.
        let forward: PropertyKey?
        let backward: PropertyKey?
        /// True if nothing about the relationship changes for these objects.
        let isExact: Bool
        /// True if the owner's, or the target's, order of the links is kept.
        let keepsOrder: Orders
    }

    struct Orders {
        let forward: Bool
        let backward: Bool
    }

    enum LinkFate {
        /// Neither end's relationship has a successor.
        case lost(LossPoint)
        /// The relationship can't lead to these objects any more.
        case excluded
        /// One of the objects is removed.
        case withoutObject
        case ends([LinkEnd])
        case undecided
    }

    /// Returns the step at which a relationship is lost for all entities that have it; nil if it is kept by some.
    func lossPoint(of key: PropertyKey) -> LossPoint? {
        var entities = old.family(of: key.entity).map { ($0, key) }
        for (index, step) in steps.enumerated() {
            entities = entities.flatMap { entity, key in
                step.successors(of: entity).compactMap { successor in
                    switch step.relationship(key, of: entity, in: successor) {
                    case .property(let next): (successor.entity, next)
                    // What an expression makes of it is not followed.
                    case .undecided: (successor.entity, key)
                    case .none: nil
                    }
                }
            }
            guard !entities.isEmpty else { return lossPoint(at: index) }
        }
        return nil
    }

    /// Returns what becomes of links between objects of two entities.
    func fate(of forward: PropertyKey, _ backward: PropertyKey?, from owner: String, to target: String) -> LinkFate {
        guard survives(owner), survives(target) else { return .withoutObject }
        var ends = [
            LinkEnd(
                owner: EntityEnd(entity: owner, keepsKeys: true), target: EntityEnd(entity: target, keepsKeys: true),
                forward: forward, backward: backward, isExact: true,
                keepsOrder: Orders(forward: true, backward: true))
        ]
        for (index, step) in steps.enumerated() {
            var next: [LinkEnd] = []
            var isExcluded = false
            for end in ends {
                for owner in step.successors(of: end.owner.entity) {
                    for target in step.successors(of: end.target.entity) {
                        let continued = step.continued(end, owner, target)
                        if continued.isUndecided { return .undecided }
                        isExcluded = isExcluded || continued.isExcluded
                        if let end = continued.end { next.append(end) }
                    }
                }
            }
            guard !next.isEmpty else { return isExcluded ? .excluded : .lost(lossPoint(at: index)) }
            ends = next
        }
        return .ends(ends)
    }
}

extension StepCorrespondence {
    /// The links after the step; no end if they have no place. `isExcluded` is true if only these objects have none.
    fileprivate func continued(
        _ end: ContentPaths.LinkEnd, _ owner: Successor, _ target: Successor
    ) -> (end: ContentPaths.LinkEnd?, isExcluded: Bool, isUndecided: Bool) {
        func follow(_ key: PropertyKey?, _ entity: String, _ successor: Successor) -> Continuation<PropertyKey> {
            key.map { relationship($0, of: entity, in: successor) } ?? .none
        }
        var found: [PropertyKey?] = []
        for next in [follow(end.forward, end.owner.entity, owner), follow(end.backward, end.target.entity, target)] {
            switch next {
            case .undecided: return (nil, false, true)
            case .none: found.append(nil)
            case .property(let key): found.append(key)
            }
        }
        let forward = found[0].flatMap { leads($0, from: owner.entity, to: target.entity) ? $0 : nil }
        let backward = found[1].flatMap { leads($0, from: target.entity, to: owner.entity) ? $0 : nil }
        guard forward != nil || backward != nil else { return (nil, found.contains { $0 != nil }, false) }
        func inverse(of key: PropertyKey?, from: String, to: String) -> PropertyKey? {
            key.flatMap(new.relationship).flatMap(new.inverse).flatMap { leads($0, from: from, to: to) ? $0 : nil }
        }
        func isOrdered(_ key: PropertyKey?, or inverse: PropertyKey?, _ entity: String, _ successor: Successor) -> Bool
        {
            let key = key ?? inverse.flatMap { isNew($0, of: entity, in: successor) ? $0 : nil }
            return key.flatMap(new.relationship).map { $0.isToMany && $0.isOrdered } ?? false
        }
        let inverses = (
            forward: inverse(of: backward, from: owner.entity, to: target.entity),
            backward: inverse(of: forward, from: target.entity, to: owner.entity)
        )
        let end = ContentPaths.LinkEnd(
            owner: .init(entity: owner.entity, keepsKeys: end.owner.keepsKeys && owner.keepsKeys),
            target: .init(entity: target.entity, keepsKeys: end.target.keepsKeys && target.keepsKeys),
            forward: forward ?? inverses.forward, backward: backward ?? inverses.backward,
            isExact: end.isExact && !step.isMapped && isSame(end.forward, forward) && isSame(end.backward, backward)
                && backward == forward.flatMap(new.relationship).flatMap(new.inverse)
                && isOwnInverse(end.forward, in: old) == isOwnInverse(forward, in: new),
            keepsOrder: .init(
                forward: end.keepsOrder.forward
                    && isOrdered(forward, or: inverses.forward, end.owner.entity, owner),
                backward: end.keepsOrder.backward
                    && isOrdered(backward, or: inverses.backward, end.target.entity, target)))
        return (end, false, false)
    }

    private func leads(_ key: PropertyKey, from owner: String, to target: String) -> Bool {
        guard let relationship = new.relationship(key) else { return false }
        return new.inherits(owner, from: key.entity)
            && new.inherits(target, from: relationship.destinationEntityName)
    }

    /// A link of a relationship that is its own inverse is followed from one end only.
    private func isOwnInverse(_ key: PropertyKey?, in tree: EntityTree) -> Bool {
        key != nil && key.flatMap(tree.relationship).flatMap(tree.inverse) == key
    }

    private func isSame(_ before: PropertyKey?, _ after: PropertyKey?) -> Bool {
        guard let before, let after else { return before == nil && after == nil }
        return old.relationship(before)?.isToMany == new.relationship(after)?.isToMany
    }
}
