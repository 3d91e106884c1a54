import Dispatch
import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// Coordinates reads and writes of a group container's items with other processes and objects
/// (https://developer.apple.com/documentation/foundation/nsfilecoordinator).
///
/// An access first asks the item's file presenters to save or relinquish it, then waits for conflicting accesses, and
/// then calls its accessor:
///
///     let coordinator = FileCoordinator(in: container)
///     try coordinator.coordinate(writingItemAt: url, options: .forReplacing) { url in
///         try data.write(to: url)
///     }
///
/// Readers share an item; a writer has it alone. The `deadline` of an access bounds the wait before its accessor is
/// called; zero tries once. An access that can't begin throws ``FileCoordinationError``.
///
/// Accesses work without an agent. Presenters in other processes are asked through it.
///
/// - Important: Claims are advisory. They hold off only processes that use a file coordinator too.
public final class FileCoordinator: Sendable {
    private let container: GroupContainer
    private let presenters: RegisteredPresenters
    private let presenter: (any FilePresenter)?
    private let ownPurpose: String
    private let state: Mutex<State>

    private struct State {
        var purpose: String
        /// The number of cancellations. An access that began before the last one doesn't happen.
        var cancellations = 0
        var moves: [(from: URL, to: URL)] = []
    }

    /// The items that one access may have: 64. An agent accepts no more.
    package static let maximumItems = 64

    /// The deadline of an access that names none: 30 seconds.
    public static let standardDeadline = Duration.seconds(30)

    /// Creates a coordinator for items of one group container. `presenter` makes the accesses itself: it is neither
    /// asked for them nor notified of them.
    public convenience init(in container: GroupContainer, filePresenter presenter: (any FilePresenter)? = nil) {
        self.init(in: container, presenters: .shared(in: container), filePresenter: presenter)
    }

    package init(
        in container: GroupContainer, presenters: RegisteredPresenters, filePresenter: (any FilePresenter)? = nil
    ) {
        self.container = container
        self.presenters = presenters
        presenter = filePresenter
        ownPurpose = filePresenter.map { RegisteredPresenter.purpose(of: $0) } ?? Self.makePurpose()
        state = Mutex(State(purpose: ownPurpose))
    }

    private static func makePurpose() -> String {
        "coordinator-" + String(UInt64.random(in: 0...UInt64.max), radix: 36)
    }

    /// The purpose of this coordinator's accesses
    /// (https://developer.apple.com/documentation/foundation/nsfilecoordinator/purposeidentifier).
    ///
    /// Accesses with the same purpose don't wait for each other, even in different processes. So accesses of one
    /// coordinator don't either.
    ///
    /// The initial value is unique to the coordinator, or to its file presenter: all coordinators of one presenter
    /// share it. Setting nil restores the initial value. Reading never returns nil.
    public var purposeIdentifier: String? {
        get { state.withLock { $0.purpose } }
        set { state.withLock { $0.purpose = newValue ?? ownPurpose } }
    }

    /// Cancels all accesses that this coordinator has begun and that are not yet granted. They throw
    /// ``FileCoordinationError`` with the code ``FileCoordinationError/Code-swift.enum/cancelled``.
    ///
    /// May be called on any thread. It doesn't interrupt a running accessor.
    public func cancel() { state.withLock { $0.cancellations += 1 } }

    // MARK: Accesses

    /// Waits on the calling thread until `url` may be read, then calls `reader` with the item's URL.
    ///
    /// Presenters of the item save their changes and relinquish it to a reader first, unless `options` says otherwise.
    ///
    /// `url` is a file URL inside the group container. The URL that `reader` gets has the links in its directories
    /// resolved; use that one.
    ///
    /// Returns what `reader` returns. Throws ``FileCoordinationError``, and what `reader` throws.
    ///
    /// - Important: Don't call this on the main actor or in a presenter's methods if the presenter that must answer
    ///   runs there: it can't answer while the thread is blocked. Use ``coordinate(with:deadline:byAccessor:)``.
    public func coordinate<Result>(
        readingItemAt url: URL, options: ReadingOptions = [], deadline: Duration = standardDeadline,
        byAccessor reader: (URL) throws -> Result
    ) throws -> Result {
        try coordinateBlocking([.readingIntent(with: url, options: options)], deadline: deadline) {
            try reader($0[0].url)
        }
    }

    /// Waits on the calling thread until `url` may be written, then calls `writer` with the item's URL.
    ///
    /// Presenters of the item relinquish it to a writer first, and are notified of the change afterwards, unless
    /// `options` says otherwise.
    ///
    /// `url` is a file URL inside the group container; the item needn't exist. `options` is at most one option.
    ///
    /// Returns what `writer` returns. Throws ``FileCoordinationError``, and what `writer` throws.
    ///
    /// - Important: An accessor that throws doesn't undo what it wrote. Presenters are notified of a change in that
    ///   case too.
    public func coordinate<Result>(
        writingItemAt url: URL, options: WritingOptions = [], deadline: Duration = standardDeadline,
        byAccessor writer: (URL) throws -> Result
    ) throws -> Result {
        try coordinateBlocking([.writingIntent(with: url, options: options)], deadline: deadline) {
            try writer($0[0].url)
        }
    }

    /// Waits on the calling thread until one item may be read and another one written, then calls `accessor` with the
    /// URLs of both.
    ///
    /// Throws ``FileCoordinationError``, and what `accessor` throws.
    ///
    /// - Important: Don't nest two accesses instead: two programs that claim the same items in opposite order could
    ///   wait for each other until their deadlines.
    public func coordinate<Result>(
        readingItemAt readingURL: URL, options readingOptions: ReadingOptions = [],
        writingItemAt writingURL: URL, options writingOptions: WritingOptions = [],
        deadline: Duration = standardDeadline, byAccessor accessor: (URL, URL) throws -> Result
    ) throws -> Result {
        try coordinateBlocking(
            [
                .readingIntent(with: readingURL, options: readingOptions),
                .writingIntent(with: writingURL, options: writingOptions),
            ], deadline: deadline
        ) { try accessor($0[0].url, $0[1].url) }
    }

    /// Waits on the calling thread until two items may be written, as for a move, then calls `accessor` with the URLs
    /// of both.
    ///
    /// Call ``item(at:didMoveTo:)`` in the accessor after a move. Throws ``FileCoordinationError``, and what `accessor`
    /// throws.
    public func coordinate<Result>(
        writingItemAt firstURL: URL, options firstOptions: WritingOptions = [],
        writingItemAt secondURL: URL, options secondOptions: WritingOptions = [],
        deadline: Duration = standardDeadline, byAccessor accessor: (URL, URL) throws -> Result
    ) throws -> Result {
        try coordinateBlocking(
            [
                .writingIntent(with: firstURL, options: firstOptions),
                .writingIntent(with: secondURL, options: secondOptions),
            ], deadline: deadline
        ) { try accessor($0[0].url, $0[1].url) }
    }

    private func coordinateBlocking<Result>(
        _ intents: [FileAccessIntent], deadline: Duration, _ accessor: ([FileAccessIntent]) throws -> Result
    ) throws -> Result {
        let access = try begin(intents, deadline, isCancelled: { false })
        // A failed accessor may have changed the disk before: notify the presenters all the same.
        defer { end(access) }
        return try accessor(access.intents)
    }

    /// Waits until all items may be accessed together, then calls `accessor` with the intents in the same order.
    ///
    /// The wait suspends the task and blocks no thread of its executor. Cancelling the task ends the wait with the code
    /// ``FileCoordinationError/Code-swift.enum/cancelled``.
    ///
    /// The URL of each intent that `accessor` gets is the item's current one. An access has at most 64 intents.
    ///
    /// Returns what `accessor` returns. Throws ``FileCoordinationError``, and what `accessor` throws.
    public func coordinate<Result: Sendable>(
        with intents: [FileAccessIntent], deadline: Duration = standardDeadline,
        byAccessor accessor: @Sendable ([FileAccessIntent]) async throws -> Result
    ) async throws -> Result {
        let cancellation = Cancellation()
        let access = try await withTaskCancellationHandler {
            do {
                return try await SystemThread.run(name: "gs-claim") { [self] in
                    try begin(intents, deadline, isCancelled: { cancellation.isRequested })
                }
            } catch {
                // Creating the thread may have failed.
                throw FileCoordinationError(error)
            }
        } onCancel: {
            cancellation.request()
        }
        defer { end(access) }
        return try await accessor(access.intents)
    }

    /// Reports that the running accessor moved an item. When the access ends, the item's presenters are notified of its
    /// new URL (https://developer.apple.com/documentation/foundation/nsfilecoordinator/item(at:didmoveto:)).
    ///
    /// - Important: Call this inside the accessor. A move that isn't reported leaves presenters at the old URL.
    public func item(at oldURL: URL, didMoveTo newURL: URL) {
        state.withLock { $0.moves.append((oldURL, newURL)) }
    }
}

// MARK: - Steps of an access

extension FileCoordinator {
    private struct Access: Sendable {
        let intents: [FileAccessIntent]
        let claim: Claim
        let number: UInt64
        let purpose: String
    }

    /// Claims the items. If it throws, the claim holds nothing.
    private func begin(
        _ intents: [FileAccessIntent], _ deadline: Duration, isCancelled: @escaping @Sendable () -> Bool
    ) throws(FileCoordinationError) -> Access {
        let cancellations = state.withLock { $0.cancellations }
        let wait = ClaimWait(Deadline(after: deadline)) { [self] in
            isCancelled() || state.withLock { $0.cancellations != cancellations }
        }
        while true {
            do throws(FileCoordinationError) {
                return try begin(intents, in: current(), wait)
            } catch {
                // Another directory has got the path while this one's locks were waited for.
                guard error.code == .containerReplaced, container.isReplaced, !wait.deadline.hasPassed else {
                    throw error
                }
            }
        }
    }

    /// Returns the container at the path: other processes coordinate there.
    private func current() throws(FileCoordinationError) -> GroupContainer {
        do throws(SystemError) {
            return try container.current()
        } catch {
            guard error.errno == .noSuchFileOrDirectory || error.errno == .notDirectory else {
                throw FileCoordinationError(error)
            }
            throw .containerReplaced(container.directory.path)
        }
    }

    private func begin(
        _ intents: [FileAccessIntent], in container: GroupContainer, _ wait: ClaimWait
    ) throws(FileCoordinationError) -> Access {
        do {
            guard intents.count <= Self.maximumItems else { throw FileCoordinationError.tooManyItems(intents.count) }
            let claimed = try intents.map { try claimIntent($0, in: container) }
            let registration = presenter.flatMap { presenters.registration(of: $0) }
            let purpose = state.withLock { $0.purpose }
            let claim = try Claim(
                claimed, in: container, purpose: purpose,
                presenterPurpose: presenter.map { RegisteredPresenter.purpose(of: $0) })
            let isNested = hasAccess(purpose, in: container)
            let number = try ClaimProcedure(
                claim: claim, intents: claimed, registry: presenters.registry, ownPresenter: registration?.number,
                bypassesQueue: { isNested || registration?.owesAnswer == true }
            ).run(wait)
            presenters.accesses.begin(purpose)
            let urls = zip(intents, claimed).map {
                FileAccessIntent(url: container.url(of: $1.item), access: $0.access)
            }
            return Access(intents: urls, claim: claim, number: number, purpose: purpose)
        } catch {
            throw FileCoordinationError(error)
        }
    }

    /// Returns true if this purpose already has an access, here or, if the purpose was set by name, in another process.
    /// A queued claim may wait for that access, so a further access of the purpose must not wait for the queue.
    private func hasAccess(_ purpose: String, in container: GroupContainer) -> Bool {
        presenters.accesses.contains(purpose)
            || purpose != ownPurpose
                && container.claimRecords().contains { $0.isGranted && $0.purpose == purpose }
    }

    private func end(_ access: Access) {
        let moves = state.withLock { state in
            defer { state.moves = [] }
            return state.moves
        }
        let known = moves.compactMap { move -> ClaimState.Outcome.Move? in
            guard let from = try? container.item(at: move.from), let to = try? container.item(at: move.to) else {
                return nil
            }
            return ClaimState.Outcome.Move(from: from, to: to)
        }
        // The presenter that made the access is not notified of it.
        presenter.flatMap { presenters.registration(of: $0) }?.apply(known)
        access.claim.release()
        presenters.accesses.end(access.purpose)
        presenters.registry.end(access.number, ClaimState.Outcome(tookPlace: true, moves: known))
    }

    private func claimIntent(
        _ intent: FileAccessIntent, in container: GroupContainer
    ) throws(FileCoordinationError) -> ClaimIntent {
        switch intent.access {
        case .read(let options):
            let resolves = options.contains(.resolvesSymbolicLink)
            let item = try container.item(at: intent.url, resolvesLink: resolves)
            guard !item.isBookkeeping else { throw .bookkeeping(item.path) }
            return ClaimIntent(item, .read(options))
        case .write(let options):
            guard options.rawValue.nonzeroBitCount <= 1 else {
                throw FileCoordinationError(
                    .system, "more than one writing option for \(intent.url.path)", remedy: "choose one")
            }
            let item = try container.item(at: intent.url)
            guard !item.isBookkeeping else { throw .bookkeeping(item.path) }
            if let database = container.database(withSideFile: item) { throw .sideFile(item.path, of: database) }
            return ClaimIntent(item, .write(options))
        }
    }
}
