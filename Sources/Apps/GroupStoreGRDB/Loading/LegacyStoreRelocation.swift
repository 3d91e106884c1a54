import FileCoordination
import GroupContainers
import GroupStore
import LinuxSystem
import StoreRelocation
import SystemPackage

/// Brings a store from its legacy place to the group container before it is opened. The agent does it if it serves the
/// group, so that its subscribers and its configuration are heeded; otherwise this process does.
struct LegacyStoreRelocation: Sendable {
    let store: SharedStore
    /// How long the relocation waits for other processes.
    let deadline: Duration
    let progress: @Sendable (RelocationProgress) -> Void

    /// Returns when the store is in the group container, or there is none at the legacy place. Throws `GroupStoreError`
    /// and `CancellationError`; both places are then unchanged.
    func run() async throws {
        guard let request else { return }
        while try await hasWork(request) {
            let identity = FileStatus(following: request.source)?.identity
            guard try await store.isServedByAgent() else { return try await relocate(request) }
            do {
                for try await step in store.relocate(deadline: deadline) { progress(step) }
                return try Task.checkCancellation()
            } catch let error as GroupStoreError where error.code == .noAgent {
                // It has ended meanwhile. What it had begun is finished or undone here.
                return try await relocate(request)
            } catch let error as GroupStoreError where error.code == .refused {
                // Another process may have had the store relocated since this one looked at it: the agent then refuses
                // a request for a file that is gone.
                guard FileStatus(following: request.source)?.identity != identity else { throw error }
            }
        }
    }

    private var request: RelocationRequest? {
        guard let legacy = store.legacyURL, let name = FilePath.Component(store.name) else { return nil }
        var request = RelocationRequest(source: FilePath(legacy.path), group: store.container.directory.path)
        request.name = name
        request.identifier = store.container.identifier
        request.deadline = deadline
        return request
    }

    private func hasWork(_ request: RelocationRequest) async throws -> Bool {
        do {
            return try await SystemThread.run(name: "gs-legacy") { !Relocation(request).hasNothingToDo }
        } catch let error as SystemError {
            throw GroupStoreError(.system, "\(error)", remedy: error.remedy)
        }
    }

    private func relocate(_ request: RelocationRequest) async throws {
        let cancellation = Cancellation()
        let summary: RelocationSummary
        do {
            summary = try await withTaskCancellationHandler {
                try await SystemThread.run(name: "gs-relocate") { [container = store.container, progress] in
                    // The signal must be ignored before the first lease is taken.
                    FileLease.ignoreBreakSignal()
                    return try Relocation(
                        request, registry: RegisteredPresenters.shared(in: container).registry,
                        isCancelled: { cancellation.isRequested },
                        report: { if let step = RelocationProgress($0) { progress(step) } }
                    ).run()
                }
            } onCancel: {
                cancellation.request()
            }
        } catch let failure as RelocationFailure {
            if cancellation.isRequested { throw CancellationError() }
            throw GroupStoreError(failure)
        } catch let error as SystemError {
            throw GroupStoreError(.system, "\(error)", remedy: error.remedy)
        }
        progress(
            .finished(
                outcome: summary.outcome.rawValue, from: store.legacyURL ?? store.groupURL, to: store.groupURL))
    }
}

extension GroupStoreError {
    fileprivate init(_ failure: RelocationFailure) {
        let code: Code = if case .busy = failure.kind { .busy } else { .refused }
        self.init(code, failure.message, remedy: failure.remedy)
    }
}

extension RelocationProgress {
    /// Returns nil for a step that the library doesn't report.
    fileprivate init?(_ event: RelocationEvent) {
        switch event {
        case .plan(let text, _), .recovered(let text), .note(let text): self = .note(text)
        case .waiting(let holders):
            self = .waiting(
                for: holders.map { .init(pid: $0.pid, program: $0.program, isElsewhere: $0.isElsewhere) })
        case .copied(let bytes, let all): self = .copied(bytes: bytes, of: all)
        case .transforming, .published, .merging: return nil
        }
    }
}
