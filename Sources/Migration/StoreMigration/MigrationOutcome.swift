import SQLiteStore

/// The effects of a migration on a store, for a person to read.
package struct MigrationOutcome: Sendable {
    /// The content that was removed.
    package let losses: RemovedContent
    package var remarks: [String]
    /// A sentence about external files that no object references any more and that stay on disk; nil if there are none.
    package let orphanedFilesNote: String?
    /// The dropped objects whose deletion a delete rule would have denied, if the migration checks them.
    let deniedDeletions: [InvalidContent.Fault]

    package static let none = MigrationOutcome(losses: .none, remarks: [])

    init(
        losses: RemovedContent, remarks: [String], orphanedFilesNote: String? = nil,
        deniedDeletions: [InvalidContent.Fault] = []
    ) {
        self.deniedDeletions = deniedDeletions
        self.losses = losses
        self.remarks = remarks
        self.orphanedFilesNote = orphanedFilesNote
    }

    package var notes: [String] { losses.sentences + remarks + [orphanedFilesNote].compactMap(\.self) }
}

/// Receives each SQL statement.
package struct StatementTrace: Sendable {
    /// The level of detail. From 3 on, statements include their values.
    package let level: Int
    package let report: @Sendable (_ sql: String, _ time: Duration) -> Void

    package init(level: Int, _ report: @escaping @Sendable (_ sql: String, _ time: Duration) -> Void) {
        self.level = level
        self.report = report
    }
}
