import Foundation
import GroupStore
import Synchronization

/// A file presenter that reports the begin and end of each callback.
final class Recorder: FilePresenter {
    private struct State {
        var place: URL
        var callbacks = 0
    }

    private let key: String
    private let milliseconds: Int
    private let fails: Set<String>
    private let state: Mutex<State>

    init(_ request: Request, at place: URL) {
        key = request.key ?? "?"
        milliseconds = request.milliseconds ?? 0
        fails = Set(request.fails ?? [])
        state = Mutex(State(place: place))
    }

    var presentedItemURL: URL? { state.withLock { $0.place } }

    func relinquishPresentedItemToReader() async throws -> Reacquirer? {
        try await asked("relinquish-reader")
        return { await self.reportCallback("reacquire-reader") }
    }

    func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
        try await asked("relinquish-writer")
        return { await self.reportCallback("reacquire-writer") }
    }

    func savePresentedItemChanges() async throws { try await asked("save") }

    func accommodatePresentedItemDeletion() async throws { try await asked("deletion") }

    func accommodatePresentedSubitemDeletion(at url: URL) async throws { try await asked("subitem-deletion", url) }

    func presentedItemDidMove(to newURL: URL) async {
        state.withLock { $0.place = newURL }
        await reportCallback("moved", newURL)
    }

    func presentedItemDidChange() async { await reportCallback("changed") }

    func presentedSubitemDidChange(at url: URL) async { await reportCallback("subitem-changed", url) }

    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) async { await reportCallback("subitem-moved", newURL) }

    private func asked(_ what: String, _ url: URL? = nil) async throws {
        await reportCallback(what, url)
        if fails.contains(what) { throw Complaint(message: "this answer fails on purpose") }
    }

    private func reportCallback(_ what: String, _ url: URL? = nil) async {
        let others = state.withLock { state in
            state.callbacks += 1
            return state.callbacks - 1
        }
        if others > 0 { Report(event: "trouble", key: key, what: "\(what) beside another callback").send() }
        Report(event: "asked", key: key, what: what, path: url?.path(percentEncoded: false)).send()
        try? await Task.sleep(for: .milliseconds(milliseconds))
        state.withLock { $0.callbacks -= 1 }
        Report(event: "answered", key: key, what: what).send()
    }
}
