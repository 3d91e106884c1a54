import ManagedObjectModels
import SQLiteStore
import SystemPackage

/// Proves that a migrated copy holds what the store held: with a pairing, a layout and SQL of its own, which share nothing
/// with those that migrated it.
package struct MigratedStoreAudit {
    package enum Kind {
        /// Each object is the one that it was.
        case inferred
        /// By a mapping model, which makes new objects; what it copies unchanged is there as often as it was.
        case mapped(copied: [CopiedEntity])
    }

    private let old: ManagedObjectModel
    private let new: ManagedObjectModel
    private let kind: Kind

    package init(from old: ManagedObjectModel, to new: ManagedObjectModel, kind: Kind) {
        self.old = old
        self.new = new
        self.kind = kind
    }

    /// Compares two database files that nobody writes to and that have no log. Nothing is made beside them. Memory doesn't
    /// grow with the rows; nor does time for tables that `writes` tells were only renamed or added to.
    ///
    /// Throws `AuditFailure` with the first difference, and `StoreError` where one of them can't be read.
    package func check(
        before: FilePath, after: FilePath, writes: TableWrites? = nil, isCancelled: @escaping () -> Bool = { false }
    ) throws {
        let reader = try ComparisonReader(after, beside: before)
        reader.interrupt(when: isCancelled)
        let context = try AuditContext(reader, from: old, to: new, writes: writes)
        try BookkeepingCheck(context: context, isInferred: isInferred).check()
        switch kind {
        case .inferred:
            var outcomes: [String: ObjectCheck.Outcome] = [:]
            for root in context.new.tree.roots {
                outcomes[root] = try ObjectCheck(context: context, root: root).check()
            }
            try RelationshipCheck(context: context, outcomes: outcomes).check()
            try HistoryCheck(context: context).check()
        case .mapped(let copied): try CopiedCheck(context: context, entities: copied).check()
        }
        if isInferred { try OtherTablesCheck(context: context).check() }
    }

    private var isInferred: Bool { if case .inferred = kind { true } else { false } }
}
