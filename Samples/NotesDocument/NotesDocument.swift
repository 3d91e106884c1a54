import Foundation
import GroupStore
import Synchronization

/// A text file of a group container as an app with a window would keep it. This program's code is isolated to the main
/// actor unless it says otherwise (`-default-isolation MainActor`), as an app's is that Xcode 26 makes.
///
///     NotesDocument group.com.example.notes FILE SECONDS
@main
struct NotesDocument {
    static func main() async throws {
        let words = CommandLine.arguments
        guard words.count == 4, let seconds = Double(words[3]) else {
            FileHandle.standardError.write(Data("usage: NotesDocument GROUP_ID FILE SECONDS\n".utf8))
            exit(64)
        }
        let container = try GroupContainer(identifier: words[1])
        let document = Document(container.url.appending(path: words[2]), in: container)
        try await FileCoordinator.addFilePresenter(document, in: container)
        try await document.reload()
        try await Task.sleep(for: .seconds(seconds))
        FileCoordinator.removeFilePresenter(document, in: container)
    }
}

/// The conformance is `nonisolated`: presenters are called from other threads. What is asked `async` runs on the main
/// actor all the same, as all of this class does; only `presentedItemURL`, which is asked without waiting, doesn't, and
/// is kept under a lock of its own. `@MainActor` is written out: Swift's default leaves out classes with such conformances.
@MainActor final class Document: nonisolated FilePresenter {
    private let container: GroupContainer
    nonisolated private let place: Mutex<URL>
    private(set) var text = ""
    private var isClosed = false

    init(_ url: URL, in container: GroupContainer) {
        self.container = container
        place = Mutex(url)
    }

    nonisolated var presentedItemURL: URL? { place.withLock { $0 } }

    /// The asynchronous form: the one that blocks would keep the main thread from answering what others ask, its own
    /// presenters included, until its deadline.
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

    func presentedItemDidMove(to newURL: URL) async { place.withLock { $0 = newURL } }

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
