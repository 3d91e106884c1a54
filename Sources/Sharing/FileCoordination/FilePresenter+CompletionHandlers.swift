import FoundationEssentials
import Synchronization

// A presenter implements a request either with `async` or with a completion handler: each default implementation of the
// former calls the latter.
extension FilePresenter {
    public func relinquishPresentedItemToReader() async throws -> Reacquirer? {
        try await HandlerCall.relinquish { [self] in await relinquishPresentedItem(toReader: $0) }
    }

    public func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
        try await HandlerCall.relinquish { [self] in await relinquishPresentedItem(toWriter: $0) }
    }

    public func savePresentedItemChanges() async throws {
        try await HandlerCall.perform { [self] in await savePresentedItemChanges(completionHandler: $0) }
    }

    public func accommodatePresentedItemDeletion() async throws {
        try await HandlerCall.perform { [self] in await accommodatePresentedItemDeletion(completionHandler: $0) }
    }

    public func accommodatePresentedSubitemDeletion(at url: URL) async throws {
        try await HandlerCall.perform { [self] in
            await accommodatePresentedSubitemDeletion(at: url, completionHandler: $0)
        }
    }

    public func relinquishPresentedItem(
        toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void
    ) async { reader(nil) }

    public func relinquishPresentedItem(
        toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void
    ) async { writer(nil) }

    public func savePresentedItemChanges(
        completionHandler: @escaping @Sendable ((any Error)?) -> Void
    ) async { completionHandler(nil) }

    public func accommodatePresentedItemDeletion(
        completionHandler: @escaping @Sendable ((any Error)?) -> Void
    ) async { completionHandler(nil) }

    public func accommodatePresentedSubitemDeletion(
        at url: URL, completionHandler: @escaping @Sendable ((any Error)?) -> Void
    ) async { completionHandler(nil) }
}

/// A request to a presenter that answers by calling a handler, once, at any time and on any thread.
private final class HandlerCall: Sendable {
    private typealias Answer = Result<Reacquirer?, any Error>

    private enum State {
        case begun
        case waiting(CheckedContinuation<Reacquirer?, any Error>)
        /// The answer came before anybody waited for it.
        case answered(Answer)
        case ended
    }

    private let state = Mutex(State.begun)

    /// Calls `body`, and returns what its handler gets. Throws `CancellationError` if the access is given up first: an
    /// item that the presenter relinquishes later is reacquired at once, because nobody else would return it.
    static func relinquish(
        _ body: @Sendable (@escaping @Sendable ((@Sendable () -> Void)?) -> Void) async -> Void
    ) async throws -> Reacquirer? {
        let call = HandlerCall()
        return try await call.answer {
            await body { handler in
                var reacquirer: Reacquirer?
                if let handler { reacquirer = { handler() } }
                if !call.end(.success(reacquirer)) { handler?() }
            }
        }
    }

    /// Calls `body`. Throws the error that its handler gets, and `CancellationError` if the access is given up first.
    static func perform(
        _ body: @Sendable (@escaping @Sendable ((any Error)?) -> Void) async -> Void
    ) async throws {
        let call = HandlerCall()
        _ = try await call.answer { await body { error in call.end(error.map { .failure($0) } ?? .success(nil)) } }
    }

    private func answer(_ body: () async -> Void) async throws -> Reacquirer? {
        await body()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let answer = state.withLock { state -> Answer? in
                    if case .answered(let answer) = state {
                        state = .ended
                        return answer
                    }
                    if Task.isCancelled {
                        state = .ended
                        return .failure(CancellationError())
                    }
                    state = .waiting(continuation)
                    return nil
                }
                if let answer { continuation.resume(with: answer) }
            }
        } onCancel: {
            let continuation = state.withLock { state -> CheckedContinuation<Reacquirer?, any Error>? in
                guard case .waiting(let continuation) = state else { return nil }
                state = .ended
                return continuation
            }
            continuation?.resume(throwing: CancellationError())
        }
    }

    /// Delivers the answer. Returns false if there has been one, or if nobody waits for it any more.
    @discardableResult
    private func end(_ answer: Answer) -> Bool {
        let (isFirst, continuation) = state.withLock {
            state -> (Bool, CheckedContinuation<Reacquirer?, any Error>?) in
            switch state {
            case .begun:
                state = .answered(answer)
                return (true, nil)
            case .waiting(let continuation):
                state = .ended
                return (true, continuation)
            case .answered, .ended: return (false, nil)
            }
        }
        continuation?.resume(with: answer)
        return isFirst
    }
}
