import Foundation
import GroupStore

/// Coordinated accesses, in all of the library's forms.
extension Cast {
    func coordinator(for request: Request) throws -> FileCoordinator {
        func make() throws -> FileCoordinator {
            let presenter = try request.presenter.map { try presenters.get($0) }
            let coordinator = FileCoordinator(in: try container(request), filePresenter: presenter)
            if let purpose = request.purpose { coordinator.purposeIdentifier = purpose }
            return coordinator
        }
        guard let name = request.coordinator else { return try make() }
        return try coordinators.get(name, or: make)
    }

    func coordinate(_ request: Request) async throws -> Report {
        let coordinator = try coordinator(for: request)
        if request.isBlocking == true {
            // The blocking form must not block a thread that runs tasks.
            try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, any Error>) in
                Thread.detachNewThread {
                    done.resume(with: Result { try self.coordinateHere(request, by: coordinator) })
                }
            }
        } else {
            try await coordinateAsync(request, by: coordinator)
        }
        return Report(what: request.action)
    }

    private func deadline(_ request: Request) -> Duration {
        request.deadline.map { .milliseconds(Int($0 * 1000)) } ?? FileCoordinator.standardDeadline
    }

    private func coordinateAsync(_ request: Request, by coordinator: FileCoordinator) async throws {
        let access = Access(request: request, cast: self)
        let intents = try request.need(request.intents, "intents").map { intent in
            intent.access == "read"
                ? FileAccessIntent.readingIntent(with: url(intent.path), options: reading(intent.options))
                : FileAccessIntent.writingIntent(with: url(intent.path), options: writing(intent.options))
        }
        let hold = access.hold()
        try await coordinator.coordinate(with: intents, deadline: deadline(request)) { granted in
            let urls = granted.map(\.url)
            access.report("granted", urls)
            defer { access.report("leaving") }
            try access.act(on: urls, by: coordinator)
            if let hold { await Self.wait(hold) }
            for inner in request.inner ?? [] {
                try await self.nested(inner) { try await self.coordinateAsync($0, by: $1) }
            }
        }
    }

    private func coordinateHere(_ request: Request, by coordinator: FileCoordinator) throws {
        let access = Access(request: request, cast: self)
        let intents = try request.need(request.intents, "intents")
        let hold = access.hold()
        let body: ([URL]) throws -> Void = { urls in
            access.report("granted", urls)
            defer { access.report("leaving") }
            try access.act(on: urls, by: coordinator)
            hold?.wait()
            for inner in request.inner ?? [] { self.nestedHere(inner) }
        }
        let limit = deadline(request)
        let first = intents[0]
        if intents.count == 1, first.access == "read" {
            try coordinator.coordinate(
                readingItemAt: url(first.path), options: reading(first.options), deadline: limit
            ) { try body([$0]) }
        } else if intents.count == 1 {
            try coordinator.coordinate(
                writingItemAt: url(first.path), options: writing(first.options), deadline: limit
            ) { try body([$0]) }
        } else if first.access == "read" {
            try coordinator.coordinate(
                readingItemAt: url(first.path), options: reading(first.options),
                writingItemAt: url(intents[1].path), options: writing(intents[1].options), deadline: limit
            ) { try body([$0, $1]) }
        } else {
            try coordinator.coordinate(
                writingItemAt: url(first.path), options: writing(first.options),
                writingItemAt: url(intents[1].path), options: writing(intents[1].options), deadline: limit
            ) { try body([$0, $1]) }
        }
    }

    /// Runs an access inside an access. It has its own answer, and its failure doesn't end the outer access.
    private func nested(
        _ request: Request, _ body: (Request, FileCoordinator) async throws -> Void
    ) async throws {
        do {
            try await body(request, try coordinator(for: request))
            Report(id: request.id, ok: true, what: request.action).send()
        } catch {
            Report(id: request.id).with(error).send()
        }
    }

    private func nestedHere(_ request: Request) {
        do {
            try coordinateHere(request, by: try coordinator(for: request))
            Report(id: request.id, ok: true, what: request.action).send()
        } catch {
            Report(id: request.id).with(error).send()
        }
    }

    private static func wait(_ semaphore: DispatchSemaphore) async {
        await withCheckedContinuation { done in
            Thread.detachNewThread {
                semaphore.wait()
                done.resume()
            }
        }
    }

    /// Returns the path's URL without resolving any of it.
    private func url(_ path: String) -> URL { URL(filePath: path) }

    private func reading(_ names: [String]?) -> FileCoordinator.ReadingOptions {
        var options: FileCoordinator.ReadingOptions = []
        for name in names ?? [] {
            switch name {
            case "without_changes": options.insert(.withoutChanges)
            case "resolves_symbolic_link": options.insert(.resolvesSymbolicLink)
            case "metadata": options.insert(.immediatelyAvailableMetadataOnly)
            default: break
            }
        }
        return options
    }

    private func writing(_ names: [String]?) -> FileCoordinator.WritingOptions {
        var options: FileCoordinator.WritingOptions = []
        for name in names ?? [] {
            switch name {
            case "deleting": options.insert(.forDeleting)
            case "moving": options.insert(.forMoving)
            case "merging": options.insert(.forMerging)
            case "replacing": options.insert(.forReplacing)
            case "metadata": options.insert(.contentIndependentMetadataOnly)
            default: break
            }
        }
        return options
    }
}
