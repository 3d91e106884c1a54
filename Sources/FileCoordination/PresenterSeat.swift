import FoundationEssentials
import GroupContainer
import LinuxSystem
import Synchronization

/// A file presenter that is registered: carries messages to it, one after another, and its answers back.
package final class PresenterSeat: Sendable {
    private let presenter: any FilePresenter
    private let container: GroupContainer
    private let registry: any PresenterRegistry
    private let messages: AsyncStream<PresenterMessage>.Continuation
    private let state: Mutex<State>

    private struct State {
        var item: ClaimedItem
        var number: UInt64?
        /// Being asked something now: its own coordinated accesses then go before those who wait for the answer.
        var isAnswering = false
        /// Claims that began before it was registered.
        var waitsFor: Set<UInt64> = []
        var ready: CheckedContinuation<Void, Never>?
    }

    package var number: UInt64? { state.withLock { $0.number } }
    package var isAnswering: Bool { state.withLock { $0.isAnswering } }
    package var item: ClaimedItem { state.withLock { $0.item } }

    package func isSeat(of other: any FilePresenter) -> Bool { presenter === other }

    /// Registers it. Throws what the registry throws.
    package init(
        _ presenter: any FilePresenter, _ item: ClaimedItem, in container: GroupContainer,
        registry: any PresenterRegistry
    ) throws {
        self.presenter = presenter
        self.container = container
        self.registry = registry
        state = Mutex(State(item: item))
        let (stream, continuation) = AsyncStream<PresenterMessage>.makeStream()
        messages = continuation
        let added = try registry.add(
            item, ProcessIdentity.current.holder, versions: presenter.openableModelVersions
        ) { continuation.yield($0) }
        state.withLock { state in
            state.number = added.presenter
            state.waitsFor = Set(added.waitsFor)
        }
        Task { [self] in
            var given = Given()
            for await message in stream { await handle(message, &given) }
        }
    }

    /// What the presenter has let go of, for which claims, and how it takes it back.
    private struct Given {
        var claims: [UInt64: PresenterRequest.Accessor] = [:]
        var reacquirers: [Reacquirer] = []

        /// Letting go for a writer is enough for all.
        func covers(_ accessor: PresenterRequest.Accessor) -> Bool {
            claims.values.contains { $0 == .writer || $0 == accessor }
        }
    }

    /// Returns when no claim that began before it was registered is under way any more.
    package func untilReady() async {
        await withCheckedContinuation { continuation in
            let isReady = state.withLock { state in
                if !state.waitsFor.isEmpty { state.ready = continuation }
                return state.waitsFor.isEmpty
            }
            if isReady { continuation.resume() }
        }
    }

    package func leave() {
        if let number { registry.remove(number) }
        messages.finish()
        state.withLock { $0.ready.take() }?.resume()
    }

    private func handle(_ message: PresenterMessage, _ given: inout Given) async {
        switch message {
        case .request(let claim, let request):
            state.withLock { $0.isAnswering = true }
            var failure: String?
            do { try await perform(request, claim, &given) } catch { failure = "\(error)" }
            state.withLock { $0.isAnswering = false }
            if let number { registry.answer(number, claim: claim, request, failure: failure) }
        case .notice(let claim, .reacquire): await reacquire(claim, &given)
        case .notice(_, .didChange(nil)): await presenter.presentedItemDidChange()
        case .notice(_, .didChange(let item?)):
            await presenter.presentedSubitemDidChange(at: container.url(of: item))
        case .notice(_, .didMove(let new, nil)):
            state.withLock { $0.item = new }
            await presenter.presentedItemDidMove(to: container.url(of: new))
        case .notice(_, .didMove(let new, let old?)):
            await presenter.presentedSubitem(at: container.url(of: old), didMoveTo: container.url(of: new))
        }
    }

    private func perform(_ request: PresenterRequest, _ claim: UInt64, _ given: inout Given) async throws {
        switch request {
        case .save: try await presenter.savePresentedItemChanges()
        case .relinquish(let accessor):
            if !given.covers(accessor) {
                let reacquirer =
                    switch accessor {
                    case .reader: try await presenter.relinquishPresentedItemToReader()
                    case .writer: try await presenter.relinquishPresentedItemToWriter()
                    }
                if let reacquirer { given.reacquirers.append(reacquirer) }
            }
            given.claims[claim] = accessor
        case .accommodateDeletion(nil): try await presenter.accommodatePresentedItemDeletion()
        case .accommodateDeletion(let item?):
            try await presenter.accommodatePresentedSubitemDeletion(at: container.url(of: item))
        }
    }

    /// Only the last claim's end is the time to take the item again.
    private func reacquire(_ claim: UInt64, _ given: inout Given) async {
        given.claims[claim] = nil
        if given.claims.isEmpty {
            for reacquirer in given.reacquirers.reversed() { await reacquirer() }
            given.reacquirers = []
        }
        state.withLock { state in
            state.waitsFor.remove(claim)
            return state.waitsFor.isEmpty ? state.ready.take() : nil
        }?.resume()
    }
}
