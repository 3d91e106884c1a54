import ManagedObjectModels

/// One step of a migration, as the count of losses follows content through it.
package struct CountedStep: Sendable {
    package enum Kind: Sendable {
        /// Objects keep their keys; entities and properties correspond by their renaming identifiers.
        case inferred
        /// A mapping model decides.
        case mapped([FollowedEntity])
    }

    let source: ManagedObjectModel
    let destination: ManagedObjectModel
    /// The name of the newer version.
    let version: String
    let kind: Kind
    /// True if an app's own code changes the store before or after the step.
    let runsHandlers: Bool

    package init(
        from source: ManagedObjectModel, to destination: ManagedObjectModel, named version: String, kind: Kind,
        runsHandlers: Bool = false
    ) {
        self.source = source
        self.destination = destination
        self.version = version
        self.kind = kind
        self.runsHandlers = runsHandlers
    }

    var isMapped: Bool { if case .mapped = kind { true } else { false } }
}

/// What one entity mapping of a mapping model does with the content of its source entity.
package struct FollowedEntity: Sendable {
    package var source: String
    /// Empty if a policy alone decides what becomes of the objects.
    package var destination: String
    /// True if each new object has the key of the older one.
    package var keepsKeys: Bool
    /// True if all objects of the source entity become objects of the destination.
    package var isUnconditional: Bool
    /// True if a policy, which is an app's own code, migrates the objects.
    package var usesPolicy: Bool
    /// The copied attributes, and the relationships whose migrated objects are linked again.
    package var copied: [(source: String, destination: String)]
    /// The properties that other expressions and the condition read. The mapping model decides what becomes of their
    /// content.
    package var read: Set<String>
    /// The properties that they read from related objects.
    package var readFromOthers: Set<String>
    /// True if an expression reads the whole object, and so any property.
    package var readsWholeObject: Bool

    package init(
        source: String, destination: String, keepsKeys: Bool, isUnconditional: Bool, usesPolicy: Bool,
        copied: [(source: String, destination: String)] = [], read: Set<String> = [],
        readFromOthers: Set<String> = [], readsWholeObject: Bool = false
    ) {
        self.source = source
        self.destination = destination
        self.keepsKeys = keepsKeys
        self.isUnconditional = isUnconditional
        self.usesPolicy = usesPolicy
        self.copied = copied
        self.read = read
        self.readFromOthers = readFromOthers
        self.readsWholeObject = readsWholeObject
    }
}

/// The step at which content is lost.
struct LossPoint: Hashable {
    /// The version that can't store the content.
    let version: String
    let isLast: Bool
    let isMapped: Bool

    /// The predicate of a sentence whose subject is the lost entity.
    var reasonForObjects: String { isMapped ? "has no entity mapping" : place("is not in") }
    /// The predicate of a sentence whose subject is the lost property.
    var reasonForContent: String { isMapped ? "is not read by any mapping" : place("is not stored by") }

    private func place(_ verb: String) -> String {
        isLast ? "\(verb) the newer model" : "\(verb) \(version), a version on the migration path"
    }
}
