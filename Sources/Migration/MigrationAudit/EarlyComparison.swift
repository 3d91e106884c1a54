import LinuxSystem
import SQLiteFormat
import SQLiteStore
import Synchronization
import SystemPackage

/// A comparison of large tables with the older store's, by another thread, as soon as a mapping model has filled the
/// new store's tables. Meanwhile, the migrating thread builds the indexes.
///
/// What it proves counts for the finished store only if a table still has the same definition and the same pages. The
/// audit compares all else as if there were no early comparison, and so it does if this one fails.
package final class EarlyComparison: Sendable {
    /// What was found equal, and the table of which that is true.
    private struct Finding: Sendable {
        let proof: KeyedComparison.Proof
        let rootPage: Int64
        let definition: String
        let digest: TableDigest
    }

    /// The memory for pages of each database, in KiB. Both are read from their beginning to their end.
    private static let cacheSize = 2048
    /// The interval at which a wait for the thread looks for a cancellation.
    private static let pollingInterval = Duration.milliseconds(50)

    private let audit: MigratedStoreAudit
    private let before: FilePath
    private let thread = Mutex<SystemThread?>(nil)
    private let findings = Mutex<[String: Finding]>([:])
    private let isStopped = Atomic(false)

    /// - Parameter before: The older store, or a copy. It must not change until the audit.
    package init(_ audit: MigratedStoreAudit, before: FilePath) {
        self.audit = audit
        self.before = before
    }

    /// Begins with the database file at `path`. Its tables may not be written any more.
    package func begin(_ path: FilePath) {
        thread.withLock { thread in
            guard thread == nil else { return }
            thread = try? SystemThread(name: "gs-audit") { [self] in
                let found = (try? compare(path)) ?? [:]
                findings.withLock { $0 = found }
            }
        }
    }

    /// Ends the comparison. What it has proven so far is lost.
    package func stop() {
        isStopped.store(true, ordering: .relaxed)
        wait { false }
    }

    /// Waits for the thread, which reads files that are written or removed afterwards.
    private func wait(isCancelled: () -> Bool) {
        guard let running = thread.withLock({ $0.take() }) else { return }
        while !running.join(within: Self.pollingInterval) {
            if isCancelled() { isStopped.store(true, ordering: .relaxed) }
        }
    }

    private func compare(_ path: FilePath) throws -> [String: Finding] {
        guard case .mapped(let copied) = audit.kind else { return [:] }
        let isCancelled = { [self] in isStopped.load(ordering: .relaxed) }
        let reader = try ComparisonReader(path, beside: before, cacheSize: Self.cacheSize)
        reader.interrupt(when: isCancelled)
        let search = RowSearch(
            reader, before: before, after: path, usesSecondThread: false, isCancelled: isCancelled)
        let context = try AuditContext(reader, search: search, from: audit.old, to: audit.new, writes: nil)
        var found: [String: Finding] = [:]
        for (destination, comparison) in CopiedCheck(context: context, entities: copied).comparisons
        where try comparison.isLarge() {
            guard let table = context.newSchema.table(context.newLayout.tree.table(of: destination)),
                let digest = try TableDigest(of: table.rootPage, in: path, isCancelled: isCancelled),
                let proof = try comparison.proof()
            else { continue }
            found[destination] = Finding(
                proof: proof, rootPage: table.rootPage, definition: table.sql, digest: digest)
        }
        return found
    }

    /// Waits for the end of the comparison, and returns what is proven of the finished store, by its entity.
    ///
    /// - Parameters:
    ///   - context: The finished store and the older one.
    ///   - path: The finished store's database file.
    func proofs(
        for context: AuditContext, in path: FilePath, isCancelled: @escaping () -> Bool
    ) throws -> [String: KeyedComparison.Proof] {
        wait(isCancelled: isCancelled)
        return try findings.withLock { $0 }.filter { _, finding in
            guard let table = context.newSchema.table(finding.proof.newTable), table.rootPage == finding.rootPage,
                table.sql.hasSameBytes(as: finding.definition)
            else { return false }
            return try TableDigest(of: table.rootPage, in: path, isCancelled: isCancelled) == finding.digest
        }.mapValues(\.proof)
    }
}
