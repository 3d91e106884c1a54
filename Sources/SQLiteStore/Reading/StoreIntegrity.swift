import SQLiteFormat

/// The findings of SQLite's `integrity_check` (https://sqlite.org/pragma.html#pragma_integrity_check).
package struct StoreIntegrity: Sendable, Equatable {
    /// The first findings, a sentence each; empty if SQLite found nothing.
    package let findings: [String]

    package var isIntact: Bool { findings.isEmpty }

    /// The maximum number of findings that are kept.
    private static let limit = 20

    /// Checks the whole store without changing it. Throws `StoreError` if it can't be read at all or the check is
    /// cancelled, and `SystemError`.
    package init(_ location: StoreLocation, isCancelled: @escaping () -> Bool = { false }) throws {
        findings = try StoreReader.read(location) { reader in
            reader.interrupt(when: isCancelled)
            var found: [String] = []
            let statement = try reader.prepare("PRAGMA integrity_check(\(Self.limit))")
            while try statement.step() {
                if let text = statement.text(0), text != "ok" { found.append(text) }
            }
            return found
        }
    }
}
