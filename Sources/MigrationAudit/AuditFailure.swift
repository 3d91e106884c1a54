/// What the audit of a migration found: a migrated copy doesn't hold what the store held.
package struct AuditFailure: Error, Equatable, Sendable {
    /// The word for scripts.
    package static let code = "audit_failed"

    /// Nil where it is about no entity of the new model.
    package let entity: String?
    package let property: String?
    /// The `Z_PK` of one object that shows it.
    package let key: Int64?
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

    /// One line: what would help.
    package var remedy: String {
        "the store was left as it was: report this with both models, and migrate with a mapping model meanwhile"
    }
}

extension AuditFailure: CustomStringConvertible {
    package var description: String {
        let element = [entity, property].compactMap(\.self).joined(separator: ".")
        let place = [element.isEmpty ? nil : element, key.map { "object \($0)" }].compactMap(\.self)
        let subject = place.isEmpty ? "" : place.joined(separator: ", ") + ": "
        return "the migrated copy did not pass the audit: \(subject)expected \(expected), found \(found)"
    }
}
