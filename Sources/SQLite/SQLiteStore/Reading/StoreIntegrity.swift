import CSQLite
import SQLiteFormat

/// The findings of SQLite's `integrity_check` (https://sqlite.org/pragma.html#pragma_integrity_check).
package struct StoreIntegrity: Sendable, Equatable {
    /// The first findings, a sentence each; empty if SQLite found nothing.
    package let findings: [String]

    package var isIntact: Bool { findings.isEmpty }

    /// Checks the whole store without changing it. Throws `StoreError` if it can't be read at all or the check is
    /// cancelled, and `SystemError`.
    package init(_ location: StoreLocation, isCancelled: @escaping () -> Bool = { false }) throws {
        findings = try StoreReader.read(location) { reader in
            reader.interrupt(when: isCancelled)
            return try reader.integrityFindings()
        }
    }
}

extension StoreReader {
    /// Returns SQLite's first findings about the state that is read; empty if it is intact.
    package func integrityFindings() throws -> [String] {
        var found: [String] = []
        let statement = try prepare("PRAGMA integrity_check(20)")
        while try statement.step() {
            if let text = statement.text(0), text != "ok" { found.append(text) }
        }
        return found
    }

    /// Returns the same, and SQLite's message if it can't check the store here: an index may be on a function of the
    /// program's own.
    package func possibleIntegrityFindings() throws -> (findings: [String], obstacle: String?) {
        do {
            return (try integrityFindings(), nil)
        } catch StoreError.sqlite(SQLITE_ERROR, let message, _) {
            return ([], message)
        }
    }
}
