import Glibc
import LinuxSystem
import SQLiteFormat
import Synchronization
import SystemPackage

/// The commit at which a branch begins: the last one that was found in an index before the log, the index or the
/// database lost its name.
package struct BranchStart: Sendable {
    let commit: WALPosition
    /// The map of the pages as of that commit, by which the next commits name their tables; nil if there is none.
    let pageMap: PageMap?
}

/// Detects what one process commits to files of a store that have lost their names: by the frames of its log or, in
/// rollback mode, by the database's change counter.
///
/// It reads through descriptors that it is given. It takes no lock, and doesn't open the index: a frame that ends a
/// commit is whole when the event of its write comes.
package final class BranchObserver: Sendable {
    private struct State {
        /// The last commit that was found.
        var commit = WALPosition.none
        var pageMap: PageMap?
        var changeCounter: UInt32?
        var stamp: StoreFiles.Stamp?
        /// The database's stamp at the last poll, if a program held a lock then.
        var lockedStamp: StoreFiles.Stamp?
    }

    private enum Files {
        case log(WALFile)
        case database(SharedDescriptor, journal: SharedDescriptor?)
    }

    private let files: Files
    private let state: Mutex<State>

    /// Observes a log. Call `poll` once at the beginning: the process may have committed since the log lost its name.
    ///
    /// - Parameter starts: The commits at which the branch may begin. If none is of this log, all that the log has
    ///   counts as new.
    package init(log: consuming Descriptor, starts: [BranchStart]) {
        let file = WALFile(log)
        let salt = try? file.salt()
        let start = starts.filter { $0.commit.salt == salt }.max { $0.commit.frame < $1.commit.frame }
        files = .log(file)
        state = Mutex(State(commit: start?.commit ?? .none, pageMap: start?.pageMap))
    }

    /// Observes a database in rollback mode. Its first state counts as a commit: the process may have made one since
    /// the database lost its name. `journal`: the one that the process has open.
    package init(database: consuming Descriptor, journal: consuming Descriptor?) {
        var open: SharedDescriptor?
        if let journal { open = SharedDescriptor(journal) }
        files = .database(SharedDescriptor(database), journal: open)
        state = Mutex(State())
    }

    /// The last commit that was found in a log: a later observer of the log begins there. Nil in rollback mode, and
    /// during a poll, which may take long.
    package var position: BranchStart? {
        guard case .log = files, let commit = state.withLockIfAvailable({ $0.commit }), commit.frame > 0 else {
            return nil
        }
        return BranchStart(commit: commit, pageMap: nil)
    }

    /// Returns the tables of the commits since the last poll; nil if there are none. Any thread may call it.
    package func poll() -> TableChanges? {
        state.withLock { state in
            switch files {
            case .log(let file): try? Self.poll(file, &state)
            case .database(let file, let journal): try? Self.poll(file, journal, &state)
            }
        }
    }

    private static func poll(_ file: WALFile, _ state: inout State) throws -> TableChanges? {
        let known = state.commit
        let last = try file.lastCommit(beyond: known)
        // A log that was begun anew has no commit yet.
        guard last.frame > 0, last != known else { return nil }
        state.commit = last
        var map = state.pageMap.take()
        guard map != nil, last.salt == known.salt, last.frame > known.frame else { return .unknown }
        do {
            var names: Set<ExactName> = []
            for transaction in try WALFrames.transactions(file, after: known.frame, to: last) {
                if let more = try map?.apply(transaction) { names.formUnion(more) }
            }
            state.pageMap = map
            return TableChanges(names, isComplete: true)
        } catch {
            return .unknown
        }
    }

    /// A transaction that is open, or an exclusive locking mode, keeps a lock. Then a write counts once it stays for
    /// two polls, and no journal could undo it.
    private static func poll(
        _ file: SharedDescriptor, _ journal: SharedDescriptor?, _ state: inout State
    ) throws -> TableChanges? {
        let stamp = StoreFiles.Stamp(try file.status())
        let isLocked = DatabaseLocks.areHeld(on: file.raw)
        defer { state.lockedStamp = isLocked ? stamp : nil }
        guard !stamp.isIdentical(to: state.stamp) else { return nil }
        if isLocked, !stamp.isIdentical(to: state.lockedStamp) { return nil }
        // The commit removes the journal, and leaves its content to whoever has it open.
        if let journal, try journal.status().links > 0, try journal.read(count: 1, at: 0).first ?? 0 != 0 { return nil }
        let counter = DatabaseHeader(try file.read(count: DatabaseHeader.length, at: 0))?.changeCounter
        defer { (state.stamp, state.changeCounter) = (stamp, counter) }
        // In exclusive mode the counter counts only a program's first commit.
        return isLocked || counter != state.changeCounter ? .unknown : nil
    }
}

extension StoreObserver {
    /// The commits at which a branch may begin: those of indexes that have lost their names, and the last one.
    package var branchStarts: [BranchStart] { formerStarts + [presentStart].compactMap(\.self) }

    private var presentStart: BranchStart? {
        guard files != nil else { return nil }
        return BranchStart(
            commit: baseline.commit, pageMap: tracker.pageMap(at: baseline.commit, limit: Self.maximumBranchPages))
    }

    /// A map of more pages isn't kept for a branch: each end of a session would copy it.
    private static let maximumBranchPages: UInt32 = 1 << 17
    private static let maximumFormerStarts = 4

    /// Keeps the last commit before the index or the database loses its name.
    func keepBranchStart() {
        if let presentStart { formerStarts = formerStarts.suffix(Self.maximumFormerStarts - 1) + [presentStart] }
    }

    /// Forgets former indexes: no process has lost files of the store open.
    package func forgetBranchStarts() { formerStarts = [] }
}
