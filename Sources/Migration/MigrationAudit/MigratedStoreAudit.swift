import ManagedObjectModels
import SQLiteStore
import SystemPackage

/// An audit that proves that a migrated copy holds the content of the store. Its matching, layout and SQL are its own
/// and share nothing with the code that migrates.
package struct MigratedStoreAudit: Sendable {
    /// The kind of migration.
    package enum Kind: Sendable {
        /// An inferred migration, which keeps each object and its key.
        case inferred
        /// A migration by a mapping model, which creates new objects. The audit counts the content that it copies
        /// unchanged.
        case mapped(copied: [CopiedEntity])
    }

    let old: ManagedObjectModel
    let new: ManagedObjectModel
    let kind: Kind

    package init(from old: ManagedObjectModel, to new: ManagedObjectModel, kind: Kind) {
        self.old = old
        self.new = new
        self.kind = kind
    }

    /// Compares two database files that have no log and no writer. It creates no files beside them. Memory doesn't grow
    /// with the rows; time doesn't either for tables that, according to `writes`, were only renamed or got new columns.
    ///
    /// Throws `AuditFailure` for the first difference, and `StoreError` if a file can't be read.
    ///
    /// - Parameter early: A comparison with the same older store that has begun before. What it proved isn't compared
    ///   again if the tables are still the same.
    package func check(
        before: FilePath, after: FilePath, writes: TableWrites? = nil, early: EarlyComparison? = nil,
        isCancelled: @escaping () -> Bool = { false }
    ) throws {
        let reader = try ComparisonReader(after, beside: before)
        reader.interrupt(when: isCancelled)
        let search = RowSearch(reader, before: before, after: after, isCancelled: isCancelled)
        let context = try AuditContext(reader, search: search, from: old, to: new, writes: writes)
        try BookkeepingCheck(context: context, isInferred: isInferred).check()
        switch kind {
        case .inferred:
            var outcomes: [String: ObjectComparison.Outcome] = [:]
            for root in context.newLayout.tree.roots {
                outcomes[root] = try ObjectComparison(context: context, root: root).check()
            }
            try RelationshipCheck(context: context, outcomes: outcomes).check()
            try HistoryCheck(context: context).check()
        case .mapped(let copied):
            let proofs = try early?.proofs(for: context, in: after, isCancelled: isCancelled) ?? [:]
            try CopiedCheck(context: context, entities: copied, earlierProofs: proofs).check()
        }
        if isInferred { try OtherTablesCheck(context: context).check() }
    }

    private var isInferred: Bool { if case .inferred = kind { true } else { false } }
}
