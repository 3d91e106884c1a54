import FoundationEssentials
import Synchronization
import TestSupport
import Testing

@testable import FileCoordination

/// Presenters that are written as `NSFilePresenter` spells its methods.
@Suite struct CompletionHandlerTests {
    private let rig: Rig

    init() throws { rig = try Rig() }

    @Test func callsTheMethodsAsAppleSpellsThem() async throws {
        let presenter = ApplePresenter(rig.notes, rig.log)
        _ = try await rig.presenters.add(presenter, in: rig.container)
        let coordinator = rig.coordinator()
        try await coordinator.coordinate(with: [.readingIntent(with: rig.notes)]) { [log = rig.log] _ in
            log.note("reads")
        }
        await rig.log.has("reacquires from reader")
        #expect(rig.log.entries == ["saves", "to reader", "reads", "reacquires from reader"])
        try await coordinator.coordinate(
            with: [.writingIntent(with: rig.notes, options: .forDeleting)]
        ) { [log = rig.log] _ in log.note("deletes") }
        await rig.log.has("reacquires from writer")
        #expect(
            rig.log.entries.dropFirst(4) == [
                "to writer", "accommodates deletion", "deletes", "changed", "reacquires from writer",
            ])
    }

    @Test func anErrorOfTheHandlerRefusesTheAccess() async throws {
        let presenter = ApplePresenter(rig.notes, rig.log)
        presenter.failSaving()
        _ = try await rig.presenters.add(presenter, in: rig.container)
        let error = await #expect(throws: FileCoordinationError.self) {
            try await rig.coordinator().coordinate(with: [.readingIntent(with: rig.notes)]) { _ in }
        }
        #expect(error?.code == .presenterFailed)
        #expect(error?.message.contains("CannotSave") == true)
    }

    /// Its handler is called after the access was given up: nobody else would return the item.
    @Test func aLateRelinquishmentIsReacquiredAtOnce() async throws {
        let presenter = ApplePresenter(rig.notes, rig.log)
        presenter.postponeAnswers()
        _ = try await rig.presenters.add(presenter, in: rig.container)
        let access = Task { [rig] in
            try await rig.coordinator().coordinate(with: [.writingIntent(with: rig.notes)], deadline: .ample) { _ in }
        }
        await rig.log.has("to writer")
        access.cancel()
        let error = await #expect(throws: FileCoordinationError.self) { try await access.value }
        #expect(error?.code == .cancelled)
        // The next request is carried out once the first one has ended.
        let next = Task { [rig] in
            try await rig.coordinator().coordinate(with: [.readingIntent(with: rig.notes)], deadline: .ample) {
                _ in
            }
        }
        await rig.log.has("to reader")
        presenter.answerWriter()
        await rig.log.has("reacquires from writer")
        presenter.answerReader()
        try await next.value
        await rig.log.has("reacquires from reader")
    }

    /// `NSFilePresenter` says that a handler is called once.
    @Test func aHandlerThatIsCalledTwiceDoesNoHarm() async throws {
        let presenter = ApplePresenter(rig.notes, rig.log)
        presenter.answerTwice()
        _ = try await rig.presenters.add(presenter, in: rig.container)
        try await rig.coordinator().coordinate(with: [.writingIntent(with: rig.notes)]) { _ in }
        await rig.log.has("reacquires from writer")
    }
}

/// A presenter with the signatures of Apple's protocol.
private final class ApplePresenter: FilePresenter {
    typealias Handler = @Sendable ((@Sendable () -> Void)?) -> Void

    struct CannotSave: Error {}

    private struct State {
        var failsSaving = false
        var answers = 1
        var reader: Handler?
        var writer: Handler?
    }

    let presentedItemURL: URL?
    private let log: Log
    private let state = Mutex(State())

    init(_ url: URL, _ log: Log) {
        presentedItemURL = url
        self.log = log
    }

    func failSaving() { state.withLock { $0.failsSaving = true } }
    func postponeAnswers() { state.withLock { $0.answers = 0 } }
    func answerTwice() { state.withLock { $0.answers = 2 } }

    func answerReader() { state.withLock { $0.reader.take() }?({ [log] in log.note("reacquires from reader") }) }
    func answerWriter() { state.withLock { $0.writer.take() }?({ [log] in log.note("reacquires from writer") }) }

    func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
        log.note("to reader")
        state.withLock { $0.reader = reader }
        if state.withLock({ $0.answers }) > 0 { answerReader() }
    }

    func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) {
        log.note("to writer")
        let answers = state.withLock { state in
            state.writer = writer
            return state.answers
        }
        guard answers > 0 else { return }
        answerWriter()
        for _ in 1..<answers { writer(nil) }
    }

    func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        log.note("saves")
        completionHandler(state.withLock { $0.failsSaving } ? CannotSave() : nil)
    }

    func accommodatePresentedItemDeletion(completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        log.note("accommodates deletion")
        completionHandler(nil)
    }

    func presentedItemDidChange() { log.note("changed") }
}
