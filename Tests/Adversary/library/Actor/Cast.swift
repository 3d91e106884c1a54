import Foundation
import GroupStore
import GroupStoreGRDB
import ManagedObjectModels
import StoreMigration
import SystemPackage

/// The state of one actor, and the operations on it.
final class Cast: Sendable {
    let notebooks = Shelf<Notebook>()
    let presentations = Shelf<StorePresentation>()
    let presenters = Shelf<any FilePresenter>()
    /// The containers that the presenters were added in. A directory may be a different one by now.
    let containers = Shelf<GroupContainer>()
    let coordinators = Shelf<FileCoordinator>()
    let holds = Shelf<DispatchSemaphore>()
    let pools = Shelf<SharedDatabasePool>()
    let tasks = Shelf<Task<Void, Never>>()

    /// Performs a line's operation, and answers it.
    func play(_ request: Request) async {
        do {
            var reply = try await answer(request)
            (reply.id, reply.ok, reply.key, reply.at) = (request.id, true, request.key, Report.now)
            reply.send()
        } catch {
            Report(id: request.id, key: request.key).with(error).send()
        }
    }

    func container(_ request: Request) throws -> GroupContainer {
        let identifier = try request.need(request.group, "group")
        guard let directory = request.directory else { return try GroupContainer(identifier: identifier) }
        return try GroupContainer(identifier: identifier, directory: URL(filePath: directory))
    }

    func store(_ request: Request) throws -> SharedStore {
        try SharedStore(
            try request.need(request.name, "name"), in: try container(request),
            legacy: request.legacy.map { URL(filePath: $0) })
    }

    private func answer(_ request: Request) async throws -> Report {
        let key = request.key ?? "?"
        switch request.op {
        case "present": return try await present(request)
        case "write":
            try notebooks.get(key).write(request.text ?? "")
            return Report()
        case "read": return Report(rows: try notebooks.get(key).read())
        case "where": return Report(what: notebooks.find(key)?.isOpen == true ? "open" : "closed", path: place(key))
        case "withdraw", "end": return try await end(key)
        case "add": return try await add(request)
        case "remove":
            guard let presenter = presenters.find(key) else { throw Complaint(message: "there is no \(key)") }
            let container = try containers.get(key, or: { try self.container(request) })
            FileCoordinator.removeFilePresenter(presenter, in: container)
            if request.action == "forget" { _ = (presenters.take(key), containers.take(key)) }
            return Report()
        case "coordinate": return try await coordinate(request)
        case "release":
            try holds.get(key).signal()
            return Report()
        case "cancel":
            try coordinators.get(key).cancel()
            return Report()
        case "watch": return try watch(request)
        case "unwatch":
            let task = tasks.take(key)
            task?.cancel()
            await task?.value
            return Report()
        case "pool": return try await pool(request)
        case "observe": return try observe(request)
        case "pool-write", "pool-read", "pool-nested", "pool-close", "pool-error": return try await use(request)
        case "prepare": return try await prepare(request)
        case "relocate": return try await relocate(request)
        case "crash":
            kill(getpid(), SIGKILL)
            return Report()
        default: throw Complaint(message: "no operation \(request.op)")
        }
    }

    private func place(_ key: String) -> String? { presentations.find(key)?.url.path(percentEncoded: false) }

    private func present(_ request: Request) async throws -> Report {
        let key = request.key ?? "?"
        let notebook = Notebook(request)
        notebooks.put(notebook, as: key)
        let presentation = try await store(request).present(
            open: { try await notebook.open($0) }, close: { try await notebook.close() },
            failed: { Report(event: "failed", key: key, message: String(describing: $0)).send() })
        presentations.put(presentation, as: key)
        presenters.put(presentation, as: key)
        return Report(path: place(key))
    }

    private func end(_ key: String) async throws -> Report {
        let presentation = try presentations.get(key)
        try await presentation.end()
        let isOpen = notebooks.find(key)?.isOpen == true || presentation.isOpen
        // The actor keeps nothing that has ended: anything left behind then is the library's.
        _ = (presentations.take(key), presenters.take(key), notebooks.take(key))
        return Report(what: isOpen ? "open" : "closed")
    }

    private func add(_ request: Request) async throws -> Report {
        let place = URL(filePath: try request.need(request.path, "path"))
        let presenter = try presenters.get(request.key ?? "?", or: { Recorder(request, at: place) })
        let container = try containers.get(request.key ?? "?", or: { try self.container(request) })
        _ = try await FileCoordinator.addFilePresenter(presenter, in: container)
        return Report()
    }

    private func prepare(_ request: Request) async throws -> Report {
        let model = try ModelBundle(reading: FilePath(try request.need(request.model, "model")))
        var options = StoreOptions()
        options.deadline = .milliseconds(Int((request.deadline ?? 30) * 1000))
        let place = FilePath(try request.need(request.path, "path"))
        switch try await model.prepareStore(at: place, options: options, progress: { _, _ in }) {
        case .upToDate: return Report(what: "up-to-date")
        case .created: return Report(what: "created")
        case .migrated: return Report(what: "migrated")
        }
    }

    private func relocate(_ request: Request) async throws -> Report {
        var last = ""
        let deadline = Duration.milliseconds(Int((request.deadline ?? 30) * 1000))
        for try await progress in try store(request).relocate(deadline: deadline) {
            last = String(describing: progress)
        }
        return Report(what: last)
    }
}
