import FoundationEssentials
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport

@testable import FileCoordination

/// A group container with one store file, and presenters and coordinators that share an in-process registry.
final class Rig: Sendable {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    let presenters = RegisteredPresenters(registry: InProcessRegistry())
    let log = Log()

    init() throws {
        scratch = try TemporaryDirectory()
        guard let identifier = GroupIdentifier("group.example") else { throw Unexpected("no identifier") }
        container = try GroupContainer(scratch.path, identifier: identifier)
        try DurableFile.write(Array("content".utf8), as: "Notes.sqlite", in: container.directory, mode: 0o600)
        try container.directory.makeDirectory("Documents", mode: 0o700)
        let documents = try container.directory.directory("Documents")
        try DurableFile.write(Array("inside".utf8), as: "Inside", in: documents, mode: 0o600)
    }

    var notes: URL { url("Notes.sqlite") }
    var documents: URL { url("Documents") }
    var inside: URL { url("Documents/Inside") }

    func url(_ path: String) -> URL { URL(path: scratch.path.pushing(FilePath(path))) }

    func coordinator(_ presenter: (any FilePresenter)? = nil, purpose: String? = nil) -> FileCoordinator {
        let coordinator = FileCoordinator(in: container, presenters: presenters, filePresenter: presenter)
        coordinator.purposeIdentifier = purpose
        return coordinator
    }

    func present(_ url: URL, name: String = "P") async throws -> RecordingPresenter {
        let presenter = RecordingPresenter(url, name, log)
        _ = try await presenters.add(presenter, in: container)
        return presenter
    }
}

/// Logs the requests and notifications that it gets. A test can set what it does for some of them.
final class RecordingPresenter: FilePresenter {
    struct CannotSave: Error {}

    private let place: Mutex<URL>
    private let name: String
    private let log: Log
    private let saving = Mutex<(@Sendable () async throws -> Void)?>(nil)
    private let relinquishing = Mutex<(@Sendable () async throws -> Void)?>(nil)
    private let changing = Mutex<(@Sendable () async -> Void)?>(nil)

    init(_ url: URL, _ name: String, _ log: Log) {
        place = Mutex(url)
        self.name = name
        self.log = log
    }

    var presentedItemURL: URL? { place.withLock { $0 } }

    func onSave(_ body: @escaping @Sendable () async throws -> Void) { saving.withLock { $0 = body } }
    func onRelinquish(_ body: @escaping @Sendable () async throws -> Void) { relinquishing.withLock { $0 = body } }

    func onChange(_ body: @escaping @Sendable () async -> Void) { changing.withLock { $0 = body } }

    private func note(_ entry: String) { log.note("\(name) \(entry)") }

    func relinquishPresentedItemToReader() async throws -> Reacquirer? {
        note("to reader")
        try await relinquishing.withLock { $0 }?()
        return { [self] in note("reacquires") }
    }

    func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
        note("to writer")
        try await relinquishing.withLock { $0 }?()
        return { [self] in note("reacquires") }
    }

    func savePresentedItemChanges() async throws {
        note("saves")
        try await saving.withLock { $0 }?()
        note("has saved")
    }

    func accommodatePresentedItemDeletion() async throws { note("accommodates deletion") }
    func accommodatePresentedSubitemDeletion(at url: URL) async throws {
        note("accommodates deletion of \(url.lastPathComponent)")
    }

    func presentedItemDidMove(to newURL: URL) async {
        place.withLock { $0 = newURL }
        note("is now \(newURL.lastPathComponent)")
    }

    func presentedItemDidChange() async {
        note("changed")
        await changing.withLock { $0 }?()
    }
    func presentedSubitemDidChange(at url: URL) async { note("changed in \(url.lastPathComponent)") }
    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) async {
        note("\(oldURL.lastPathComponent) is now \(newURL.lastPathComponent)")
    }
}
