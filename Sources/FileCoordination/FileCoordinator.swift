import Dispatch
import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// Reads and writes items of a group container in turn with other processes and objects, after the file presenters
/// concerned were asked
/// (https://developer.apple.com/documentation/foundation/nsfilecoordinator).
///
/// Claims are advisory: they hold off only those who use a file coordinator too. They work without an agent; presenters
/// in other processes are asked through it.
public final class FileCoordinator: Sendable {
    private let container: GroupContainer
    private let seats: RegisteredPresenters
    private let presenter: (any FilePresenter)?
    private let ownPurpose: String
    private let state: Mutex<State>

    private struct State {
        var purpose: String
        /// Counts cancellations: an access that began before one doesn't take place.
        var cancellations = 0
        var moves: [(from: URL, to: URL)] = []
    }

    /// How long an access waits unless it says otherwise.
    public static let standardDeadline = Duration.seconds(30)

    /// `presenter`: it makes the accesses itself, and is not asked or told of them.
    public convenience init(in container: GroupContainer, filePresenter presenter: (any FilePresenter)? = nil) {
        self.init(in: container, seats: .process(container), filePresenter: presenter)
    }

    package init(in container: GroupContainer, seats: RegisteredPresenters, filePresenter: (any FilePresenter)? = nil) {
        self.container = container
        self.seats = seats
        presenter = filePresenter
        ownPurpose = filePresenter.map { RegisteredPresenter.purpose(of: $0) } ?? Self.freshPurpose()
        state = Mutex(State(purpose: ownPurpose))
    }

    private static func freshPurpose() -> String {
        "coordinator-" + String(UInt64.random(in: 0...UInt64.max), radix: 36)
    }

    /// Accesses of coordinators with the same purpose don't wait for each other, in whatever process they are; nor do
    /// those of one coordinator
    /// (https://developer.apple.com/documentation/foundation/nsfilecoordinator/purposeidentifier). At first it is this
    /// coordinator's own, or the one that all coordinators of its file presenter have; set to nil, it is that again.
    /// Never nil when it is read.
    public var purposeIdentifier: String? {
        get { state.withLock { $0.purpose } }
        set { state.withLock { $0.purpose = newValue ?? ownPurpose } }
    }

    /// Ends the waiting of all accesses that this coordinator has begun and not yet been granted; they throw
    /// `cancelled`. May be called on any thread.
    public func cancel() { state.withLock { $0.cancellations += 1 } }

    // MARK: Presenters

    /// Registers the presenter for what is at its `presentedItemURL` now, until `removeFilePresenter`. When this
    /// returns, nobody is at work on the item who would have asked it. Without an agent that serves the group, and
    /// beside one that doesn't answer within two seconds, only this process asks it until there is one
    /// (`registration`). A presenter that is added twice is added once.
    ///
    /// Throws `FileCoordinationError`, `agent` where the agent refuses; and `CancellationError`. It isn't added then.
    public static func addFilePresenter(
        _ presenter: any FilePresenter, in container: GroupContainer
    ) async throws {
        let seats = RegisteredPresenters.process(container)
        let seat = try await seats.add(presenter, in: container)
        guard case .refused(let reason) = seat.registration else { return }
        seats.remove(presenter)
        throw FileCoordinationError(.agent, reason, remedy: "see the agent's log, or groupstore doctor")
    }

    /// Who asks the presenter; nil when it isn't added.
    public static func registration(
        of presenter: any FilePresenter, in container: GroupContainer
    ) -> FilePresenterRegistration? {
        RegisteredPresenters.process(container).seat(of: presenter)?.registration
    }

    public static func removeFilePresenter(_ presenter: any FilePresenter, in container: GroupContainer) {
        RegisteredPresenters.process(container).remove(presenter)
    }

    // MARK: Accesses

    /// Waits, on the calling thread, until `url` may be read, and runs `reader` with where it is then. Throws
    /// `FileCoordinationError`, and what `reader` throws.
    public func coordinate<Result>(
        readingItemAt url: URL, options: ReadingOptions = [], deadline: Duration = standardDeadline,
        byAccessor reader: (URL) throws -> Result
    ) throws -> Result {
        try blocking([.readingIntent(with: url, options: options)], deadline) { try reader($0[0].url) }
    }

    /// Waits, on the calling thread, until `url` may be written, and runs `writer` with where it is then. Throws
    /// `FileCoordinationError`, and what `writer` throws.
    public func coordinate<Result>(
        writingItemAt url: URL, options: WritingOptions = [], deadline: Duration = standardDeadline,
        byAccessor writer: (URL) throws -> Result
    ) throws -> Result {
        try blocking([.writingIntent(with: url, options: options)], deadline) { try writer($0[0].url) }
    }

    /// Waits, on the calling thread, until one item may be read and another one written: taken one after the other, two
    /// programs could wait for each other for ever.
    public func coordinate<Result>(
        readingItemAt readingURL: URL, options readingOptions: ReadingOptions = [],
        writingItemAt writingURL: URL, options writingOptions: WritingOptions = [],
        deadline: Duration = standardDeadline, byAccessor accessor: (URL, URL) throws -> Result
    ) throws -> Result {
        try blocking(
            [
                .readingIntent(with: readingURL, options: readingOptions),
                .writingIntent(with: writingURL, options: writingOptions),
            ], deadline
        ) { try accessor($0[0].url, $0[1].url) }
    }

    /// Waits, on the calling thread, until two items may be written: for a move from one to the other.
    public func coordinate<Result>(
        writingItemAt firstURL: URL, options firstOptions: WritingOptions = [],
        writingItemAt secondURL: URL, options secondOptions: WritingOptions = [],
        deadline: Duration = standardDeadline, byAccessor accessor: (URL, URL) throws -> Result
    ) throws -> Result {
        try blocking(
            [
                .writingIntent(with: firstURL, options: firstOptions),
                .writingIntent(with: secondURL, options: secondOptions),
            ], deadline
        ) { try accessor($0[0].url, $0[1].url) }
    }

    private func blocking<Result>(
        _ intents: [FileAccessIntent], _ deadline: Duration, _ accessor: ([FileAccessIntent]) throws -> Result
    ) throws -> Result {
        let access = try begin(intents, deadline, isCancelled: { false })
        // What an accessor that fails did before is on the disk: the presenters are told all the same.
        defer { end(access) }
        return try accessor(access.intents)
    }

    /// Waits until all items may be used together, and runs `accessor` with where they are then. The task's cancellation
    /// ends the waiting. Throws `FileCoordinationError`, and what `accessor` throws.
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
                // There may be no thread to be had.
                throw FileCoordinationError(error)
            }
        } onCancel: {
            cancellation.request()
        }
        defer { end(access) }
        return try await accessor(access.intents)
    }

    /// Inside the accessor, after a move: the item's presenters learn where it is when the access ends
    /// (https://developer.apple.com/documentation/foundation/nsfilecoordinator/item(at:didmoveto:)).
    public func item(at oldURL: URL, didMoveTo newURL: URL) {
        state.withLock { $0.moves.append((oldURL, newURL)) }
    }
}

// MARK: - One access

extension FileCoordinator {
    private struct Access: Sendable {
        let intents: [FileAccessIntent]
        let claim: Claim
        let number: UInt64
        let purpose: String
    }

    /// An access that is given up before it is granted holds nothing.
    private func begin(
        _ intents: [FileAccessIntent], _ deadline: Duration, isCancelled: @escaping @Sendable () -> Bool
    ) throws(FileCoordinationError) -> Access {
        let cancellations = state.withLock { $0.cancellations }
        let wait = ClaimWait(Deadline(after: deadline)) { [self] in
            isCancelled() || state.withLock { $0.cancellations != cancellations }
        }
        do {
            let claimed = try intents.map { try claimIntent($0) }
            let seat = presenter.flatMap { seats.seat(of: $0) }
            let purpose = state.withLock { $0.purpose }
            let claim = try Claim(
                claimed, in: container, purpose: purpose,
                presenterPurpose: presenter.map { RegisteredPresenter.purpose(of: $0) })
            let isNested = hasAccess(purpose)
            let number = try ClaimProcedure(
                claim: claim, intents: claimed, registry: seats.registry, own: seat?.number,
                passesLine: { isNested || seat?.isAwaited == true }
            ).run(wait)
            seats.accesses.began(purpose)
            let urls = zip(intents, claimed).map {
                FileAccessIntent(url: container.url(of: $1.item), access: $0.access)
            }
            return Access(intents: urls, claim: claim, number: number, purpose: purpose)
        } catch {
            throw FileCoordinationError(error)
        }
    }

    /// Whoever stands in line may wait for an access of this purpose, here or, where it was given a name, in another
    /// process: one more of them must not wait for those in the line.
    private func hasAccess(_ purpose: String) -> Bool {
        seats.accesses.has(purpose)
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
        // The presenter that made the access is not told of it.
        presenter.flatMap { seats.seat(of: $0) }?.follow(known)
        access.claim.leave()
        seats.accesses.ended(access.purpose)
        seats.registry.end(access.number, ClaimState.Outcome(tookPlace: true, moves: known))
    }

    private func claimIntent(_ intent: FileAccessIntent) throws(FileCoordinationError) -> ClaimIntent {
        switch intent.access {
        case .read(let options):
            let resolves = options.contains(.resolvesSymbolicLink)
            return ClaimIntent(try container.item(at: intent.url, resolvesLink: resolves), .read(options))
        case .write(let options):
            guard options.rawValue.nonzeroBitCount <= 1 else {
                throw FileCoordinationError(
                    .system, "more than one writing option for \(intent.url.path)", remedy: "choose one")
            }
            return ClaimIntent(try container.item(at: intent.url), .write(options))
        }
    }
}
