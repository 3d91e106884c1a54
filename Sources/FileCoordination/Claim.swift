import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// The locks of one claim, on all its items and the directories above them. The kernel drops them when the process
/// ends.
///
/// First the claim stands in line, then it enters. While it stands there, presenters are asked to let go: nobody who
/// comes later overtakes, and whoever was there before finishes. Files are locked in the order of their device and
/// inode numbers, so that two claims never wait for each other.
package final class Claim: Sendable {
    /// What is locked in one item's file.
    private struct Want {
        var writesItem: Bool?
        var writesContents: Bool?
        var writesPresented: Bool?

        var writes: Bool { writesItem == true || writesContents == true || writesPresented == true }

        static func stronger(_ one: Bool?, _ other: Bool) -> Bool { (one ?? false) || other }
    }

    private struct Lock: Sendable {
        let file: ClaimLock
        let item: FilePath
        let writesItem: Bool?
        let writesContents: Bool?
        let writesPresented: Bool?
        let writesLine: Bool
    }

    private let container: GroupContainer
    private let place: ClaimLock.Place
    /// The row of the claimant's own presenter, which isn't in its way whatever the claim's purpose is.
    private let presenterPlace: ClaimLock.Place
    private let locks: [Lock]
    private let notice: Notice?
    private let record: ClaimRecord

    /// Nil in a process that may not write there.
    private final class Notice: Sendable {
        private let file: Mutex<ClaimNotice?>

        init(_ record: ClaimRecord, _ container: GroupContainer) throws {
            file = Mutex(try ClaimNotice(record, in: container))
        }

        func update(_ record: ClaimRecord) throws { try file.withLock { try $0?.update(record) } }

        func withdraw() { file.withLock { $0 = nil } }
    }

    /// `presenterPurpose`: that of the claimant's own presenter. Throws `FileCoordinationError` where the locks can't
    /// be made, and `SystemError`.
    package convenience init(
        _ intents: [ClaimIntent], in container: GroupContainer, purpose: String? = nil, presenterPurpose: String? = nil
    ) throws {
        try self.init(Self.wants(intents), intents, container, purpose, presenterPurpose)
    }

    /// The claim of somebody who is about to open the item, and keeps it open: `enter`, then `keepOnlyPresented`.
    package convenience init(presenting item: ClaimedItem, in container: GroupContainer, purpose: String) throws {
        let intent = ClaimIntent(item, .read(.immediatelyAvailableMetadataOnly))
        var wants = Self.wants([intent])
        wants[item.path]?.writesPresented = false
        try self.init(wants, [intent], container, purpose, nil)
    }

    private init(
        _ wants: [FilePath: Want], _ intents: [ClaimIntent], _ container: GroupContainer, _ purpose: String?,
        _ presenterPurpose: String?
    ) throws {
        self.container = container
        place = ClaimLock.Place(purpose: purpose)
        presenterPlace = presenterPurpose.map { ClaimLock.Place(purpose: $0) } ?? place
        locks = try wants.map { path, want in
            Lock(
                file: try ClaimLock(path, in: container, writes: want.writes), item: path,
                writesItem: want.writesItem, writesContents: want.writesContents,
                writesPresented: want.writesPresented, writesLine: want.writes)
        }.sorted { $0.file.identity < $1.file.identity }
        record = ClaimRecord(
            process: .current, purpose: purpose,
            accesses: intents.map { .init(item: $0.item.path, writes: $0.writes) }, isGranted: false)
        notice = try? Notice(record, container)
    }

    /// Of each item its content, and of each directory above it that something inside is claimed.
    private static func wants(_ intents: [ClaimIntent]) -> [FilePath: Want] {
        var wants: [FilePath: Want] = [:]
        for intent in intents {
            let path = intent.item.path
            wants[path, default: Want()].writesItem = Want.stronger(wants[path]?.writesItem, intent.writes)
            if intent.coversContents { wants[path]?.writesContents = true }
            if intent.displacesPresenters { wants[path]?.writesPresented = true }
            var above = path
            while above.removeLastComponent() {
                wants[above, default: Want()].writesContents = Want.stronger(wants[above]?.writesContents, false)
            }
        }
        return wants
    }

    /// Waits until nobody who would be in the way stands in line, or `passes`. Throws what `wait` throws.
    package func standInLine(_ wait: ClaimWait, unless passes: @Sendable () -> Bool = { false }) throws {
        for lock in locks {
            try wait.until { try passes() || lock.file.enter(.line, place, writes: lock.writesLine) }
        }
    }

    /// Waits until the items are free, takes them, and leaves the line. Throws what `wait` throws.
    package func enter(_ wait: ClaimWait) throws {
        for lock in locks {
            if let writes = lock.writesItem {
                try wait.until { try lock.file.enter(.item, place, writes: writes) }
            }
            if let writes = lock.writesContents {
                try wait.until { try lock.file.enter(.contents, place, writes: writes) }
            }
            if let writes = lock.writesPresented {
                try wait.until { try lock.file.enter(.presented, presenterPlace, writes: writes) }
            }
        }
        for lock in locks { lock.file.leave(.line) }
        guard try locks.allSatisfy({ try $0.file.isNamed() }) else {
            throw FileCoordinationError(
                .system, "a lock file in \(PrintablePath(container.directory.path)) was removed",
                remedy: "leave .groupstore alone, and try again")
        }
        var granted = record
        granted.isGranted = true
        try notice?.update(granted)
    }

    /// Lets readers and writers in again, but for those for whom presenters let go of the item.
    package func keepOnlyPresented() {
        for lock in locks { lock.file.leave(.item) }
    }

    /// Gives up all that is held, at once: closing alone would wait for whoever keeps this value.
    package func leave() {
        for lock in locks {
            for region in [ClaimLock.Region.line, .item, .contents, .presented] { lock.file.leave(region) }
        }
        notice?.withdraw()
    }

    /// Those whose claims are in the way; purposes are told apart by name.
    package func obstacles() -> [FileHolder] {
        let others = container.claimRecords().filter { other in
            other.id != record.id && (record.purpose == nil || other.purpose != record.purpose)
                && other.accesses.contains { access in
                    record.accesses.contains { Self.collide(access, $0) }
                }
        }
        let granted = others.filter(\.isGranted)
        return (granted.isEmpty ? others : granted).map(\.process.holder)
    }

    private static func collide(_ one: ClaimRecord.Access, _ other: ClaimRecord.Access) -> Bool {
        (one.writes || other.writes)
            && (one.item.path.starts(with: other.item.path) || other.item.path.starts(with: one.item.path))
    }
}

/// How long, and until what else, a claim waits.
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

    /// The same wait with another deadline.
    func until(_ duration: Duration) -> ClaimWait { ClaimWait(Deadline(after: duration), isCancelled: isCancelled) }

    /// The same wait, cancelled by that too.
    func unless(_ isOver: @escaping @Sendable () -> Bool) -> ClaimWait {
        ClaimWait(deadline) { [isCancelled] in isCancelled() || isOver() }
    }

    /// Tries until it succeeds. The kernel tells nobody with a deadline when a lock is free: a try costs microseconds,
    /// and they come seldomer with time, at odd intervals so that two don't keep step. Throws `TimedOut`, `Cancelled`.
    func until(_ succeeds: () throws -> Bool) throws {
        var longest: Int64 = 50_000
        while try !succeeds() {
            if isCancelled() { throw Cancelled() }
            if deadline.hasPassed { throw TimedOut() }
            let left = deadline.remaining?.nanoseconds ?? .max
            pause(.nanoseconds(min(Int64.random(in: longest / 2...longest), left)))
            longest = min(longest * 2, 4_000_000)
        }
    }
}

extension FileIdentity: Comparable {
    package static func < (one: FileIdentity, other: FileIdentity) -> Bool {
        (one.device, one.inode) < (other.device, other.inode)
    }
}
