import Foundation
import GroupStore
import Synchronization

/// A text file in a group container, as an app with a window would keep it. This program's code is isolated to the main
/// actor by default (`-default-isolation MainActor`), like an app created by Xcode 26.
///
///     NotesDocument group.com.example.notes FILE SECONDS
@main
struct NotesDocument {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let seconds = Double(arguments[3]) else {
            FileHandle.standardError.write(Data("usage: NotesDocument GROUP_ID FILE SECONDS\n".utf8))
            exit(64)
        }
        let container = try GroupContainer(identifier: arguments[1])
        let document = Document(container.url.appending(path: arguments[2]), in: container)
        let registration = try await FileCoordinator.addFilePresenter(document, in: container)
        if registration != .registered { FileHandle.standardError.write(Data("\(registration)\n".utf8)) }
        try await document.reload()
        try await Task.sleep(for: .seconds(seconds))
        FileCoordinator.removeFilePresenter(document, in: container)
    }
}

/// The conformance is `nonisolated`, because presenters are called from other threads. Its `async` methods still run on
/// the main actor, like the rest of the class. Only `presentedItemURL`, which is read synchronously, doesn't, and is
/// protected by its own lock. `@MainActor` is explicit, because Swift's default isolation doesn't apply to classes with
/// such conformances.
@MainActor final class Document: nonisolated FilePresenter {
    private let container: GroupContainer
    nonisolated private let currentURL: Mutex<URL>
    private(set) var text = ""
    private var isClosed = false

    init(_ url: URL, in container: GroupContainer) {
        self.container = container
        currentURL = Mutex(url)
    }

    nonisolated var presentedItemURL: URL? { currentURL.withLock { $0 } }

    /// Uses the asynchronous form of `coordinate`. The blocking form would keep the main thread from answering other
    /// processes, and its own presenters, until its deadline.
    func savePresentedItemChanges() async throws {
        guard !isClosed, let url = presentedItemURL else { return }
        let text = text
        try await FileCoordinator(in: container, filePresenter: self).coordinate(with: [.writingIntent(with: url)]) {
            try text.write(to: $0[0].url, atomically: true, encoding: .utf8)
        }
    }

    func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
        isClosed = true
        return { await self.reopen() }
    }

    func presentedItemDidMove(to newURL: URL) async { currentURL.withLock { $0 = newURL } }

    func presentedItemDidChange() async { try? await reload() }

    func reload() async throws {
        guard let url = presentedItemURL else { return }
        text = try await FileCoordinator(in: container, filePresenter: self).coordinate(
            with: [.readingIntent(with: url)]
        ) { (try? String(contentsOf: $0[0].url, encoding: .utf8)) ?? "" }
        print("\(url.lastPathComponent): \(text.count) characters")
    }

    private func reopen() async { isClosed = false }
}
