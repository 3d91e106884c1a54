import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// The locks of one claim, on all its items and the directories above them. The kernel drops them when the process
/// ends.
///
/// A claim first joins the queue, then acquires its items. While it is queued, presenters are asked to relinquish: no
/// later claim overtakes it, and earlier ones finish. Files are locked in the order of their device and inode numbers,
/// so that two claims never deadlock.
package final class Claim: Sendable {
    /// The locks that a claim needs in one item's file. Each value is true for exclusive, false for shared, nil for
    /// none.
    private struct LockRequest {
        var writesItem: Bool?
        var writesContents: Bool?
        var writesPresented: Bool?

        var writes: Bool { writesItem == true || writesContents == true || writesPresented == true }

        static func stronger(_ first: Bool?, _ second: Bool) -> Bool { (first ?? false) || second }
    }

    private struct ItemLock: Sendable {
        let file: ClaimLock
        let item: FilePath
        let writesItem: Bool?
        let writesContents: Bool?
        let writesPresented: Bool?
        let writesQueue: Bool
    }

    private let container: GroupContainer
    private let slot: ClaimLock.Slot
    /// The row of the claimant's own presenter. The presenter doesn't block the claim, whatever the claim's purpose is.
    private let presenterSlot: ClaimLock.Slot
    private let locks: [ItemLock]
    private let published: PublishedRecord?
    private let record: ClaimRecord

    /// The claim's record in the group container; its file is nil if the process may not write there.
    private final class PublishedRecord: Sendable {
        private let file: Mutex<ClaimNotice?>

        init(_ record: ClaimRecord, _ container: GroupContainer) throws {
            file = Mutex(try ClaimNotice(record, in: container))
        }

        func update(_ record: ClaimRecord) throws { try file.withLock { try $0?.update(record) } }

        func remove() { file.withLock { $0 = nil } }
    }

    /// Opens the lock files. `presenterPurpose` is the purpose of the claimant's own presenter. Throws
    /// `FileCoordinationError` if a lock file can't be created, and `SystemError`.
    package convenience init(
        _ intents: [ClaimIntent], in container: GroupContainer, purpose: String? = nil, presenterPurpose: String? = nil
    ) throws {
        try self.init(
            Self.requests(intents), for: intents, in: container, purpose: purpose, presenterPurpose: presenterPurpose)
    }

    /// Opens the lock files for a presentation that opens the item and keeps it open: call `acquire`, then
    /// `keepOnlyPresentedLock`.
    package convenience init(presenting item: ClaimedItem, in container: GroupContainer, purpose: String) throws {
        let intent = ClaimIntent(item, .read(.immediatelyAvailableMetadataOnly))
        var requests = Self.requests([intent])
        requests[item.path]?.writesPresented = false
        try self.init(requests, for: [intent], in: container, purpose: purpose, presenterPurpose: nil)
    }

    private init(
        _ requests: [FilePath: LockRequest], for intents: [ClaimIntent], in container: GroupContainer, purpose: String?,
        presenterPurpose: String?
    ) throws {
        self.container = container
        slot = ClaimLock.Slot(purpose: purpose)
        presenterSlot = presenterPurpose.map { ClaimLock.Slot(purpose: $0) } ?? slot
        locks = try requests.map { path, request in
            ItemLock(
                file: try ClaimLock(path, in: container, writes: request.writes), item: path,
                writesItem: request.writesItem, writesContents: request.writesContents,
                writesPresented: request.writesPresented, writesQueue: request.writes)
        }.sorted { $0.file.identity < $1.file.identity }
        record = ClaimRecord(
            process: .current, purpose: purpose,
            accesses: intents.map { .init(item: $0.item.path, writes: $0.writes) }, isGranted: false)
        published = try? PublishedRecord(record, container)
    }

    /// Returns the locks on each item and, shared, on the contents of each directory above it.
    private static func requests(_ intents: [ClaimIntent]) -> [FilePath: LockRequest] {
        var requests: [FilePath: LockRequest] = [:]
        for intent in intents {
            let path = intent.item.path
            requests[path, default: LockRequest()].writesItem = LockRequest.stronger(
                requests[path]?.writesItem, intent.writes)
            if intent.coversContents { requests[path]?.writesContents = true }
            if intent.displacesPresenters { requests[path]?.writesPresented = true }
            var above = path
            while above.removeLastComponent() {
                requests[above, default: LockRequest()].writesContents = LockRequest.stronger(
                    requests[above]?.writesContents, false)
            }
        }
        return requests
    }

    /// Waits until no conflicting claim is queued, or until `mayBypass` returns true. Throws what `ClaimWait.retry`
    /// throws.
    package func joinQueue(_ wait: ClaimWait, unless mayBypass: @Sendable () -> Bool = { false }) throws {
        for lock in locks {
            try wait.retry { try mayBypass() || lock.file.acquire(.queue, slot: slot, writes: lock.writesQueue) }
        }
    }

    /// Waits until the items are free, acquires them, and leaves the queue. Throws what `ClaimWait.retry` throws, and
    /// `FileCoordinationError` if the container's directory isn't at its path any more.
    package func acquire(_ wait: ClaimWait) throws {
        for lock in locks {
            if let writes = lock.writesItem {
                try wait.retry { try lock.file.acquire(.item, slot: slot, writes: writes) }
            }
            if let writes = lock.writesContents {
                try wait.retry { try lock.file.acquire(.contents, slot: slot, writes: writes) }
            }
            if let writes = lock.writesPresented {
                try wait.retry { try lock.file.acquire(.presented, slot: presenterSlot, writes: writes) }
            }
        }
        for lock in locks { lock.file.release(.queue) }
        guard try locks.allSatisfy({ try $0.file.isLinked() }) else {
            throw FileCoordinationError(
                .system, "a lock file in \(PrintablePath(container.directory.path)) was removed",
                remedy: "leave .groupstore alone, and try again")
        }
        guard container.isCurrent else { throw FileCoordinationError.containerReplaced(container.directory.path) }
        var granted = record
        granted.isGranted = true
        try published?.update(granted)
    }

    /// Admits readers and writers again, except those that need presenters to relinquish the item.
    package func keepOnlyPresentedLock() {
        for lock in locks { lock.file.release(.item) }
    }

    /// Releases all locks at once. Closing the files isn't enough: they stay open while anything references this value.
    package func release() {
        for lock in locks {
            for region in [ClaimLock.Region.queue, .item, .contents, .presented] { lock.file.release(region) }
        }
        published?.remove()
    }

    /// Returns the processes whose claims conflict with this one. Compares purposes by name.
    package func blockers() -> [FileHolder] {
        let others = container.claimRecords().filter { other in
            other.id != record.id && (record.purpose == nil || other.purpose != record.purpose)
                && other.accesses.contains { access in
                    record.accesses.contains { Self.conflicts(access, $0) }
                }
        }
        let granted = others.filter(\.isGranted)
        return (granted.isEmpty ? others : granted).map(\.process.holder)
    }

    private static func conflicts(_ first: ClaimRecord.Access, _ second: ClaimRecord.Access) -> Bool {
        (first.writes || second.writes)
            && (first.item.path.starts(with: second.item.path) || second.item.path.starts(with: first.item.path))
    }
}

/// The deadline of a wait, and the condition that cancels it.
package struct ClaimWait: Sendable {
    package struct TimedOut: Error {}
    package struct Cancelled: Error {}

    package let deadline: Deadline
    private let isCancelled: @Sendable () -> Bool

    package init(_ deadline: Deadline, isCancelled: @escaping @Sendable () -> Bool = { false }) {
        self.deadline = deadline
        self.isCancelled = isCancelled
    }

    package var isCancelledNow: Bool { isCancelled() }

    /// Returns the same wait with another deadline.
    func withDeadline(after duration: Duration) -> ClaimWait {
        ClaimWait(Deadline(after: duration), isCancelled: isCancelled)
    }

    /// Returns the same wait with a second condition that cancels it.
    func cancelled(when isOver: @escaping @Sendable () -> Bool) -> ClaimWait {
        ClaimWait(deadline) { [isCancelled] in isCancelled() || isOver() }
    }

    /// Calls `attempt` until it returns true. Throws `TimedOut` and `Cancelled`.
    ///
    /// The kernel has no blocking lock with a timeout, so this polls: an attempt costs microseconds. The pause doubles
    /// from 50 µs to 4 ms and is randomized, so that two processes don't poll in step.
    func retry(until attempt: () throws -> Bool) throws {
        var backoff = Backoff(first: .microseconds(50), longest: .milliseconds(4), isRandomized: true)
        while try !attempt() {
            if isCancelled() { throw Cancelled() }
            if deadline.hasPassed { throw TimedOut() }
            let delay = backoff.next()
            pause(min(delay, deadline.remaining ?? delay))
        }
    }
}

extension FileIdentity: Comparable {
    package static func < (first: FileIdentity, second: FileIdentity) -> Bool {
        (first.device, first.inode) < (second.device, second.inode)
    }
}
