import LinuxSystem

/// A difference between a migrated copy and the store that the audit of a migration found.
package struct AuditFailure: ActionableError, Equatable {
    package var errorCode: String { "audit_failed" }

    /// The entity, or another part of the store; nil if the difference concerns neither.
    package let entity: String?
    /// The property, or another detail.
    package let property: String?
    /// The `Z_PK` of one object with the difference.
    package let key: Int64?
    /// The expected and the actual content in readable form.
    package let expected: String
    package let found: String

    package init(
        entity: String? = nil, property: String? = nil, key: Int64? = nil, expected: String, found: String
    ) {
        self.entity = entity
        self.property = property
        self.key = key
        self.expected = expected
        self.found = found
    }

    /// A suggestion that helps, in one line.
    package var remedy: String {
        "the store is unchanged; report this with both models, and migrate with a mapping model meanwhile"
    }
}

extension AuditFailure {
    package var message: String {
        let element = [entity, property].compactMap(\.self).joined(separator: ".")
        let place = [element.isEmpty ? nil : element, key.map { "object \($0)" }].compactMap(\.self)
        let subject = place.isEmpty ? "" : place.joined(separator: ", ") + ": "
        return "the migrated copy did not pass the audit: \(subject)expected \(expected), found \(found)"
    }
}
