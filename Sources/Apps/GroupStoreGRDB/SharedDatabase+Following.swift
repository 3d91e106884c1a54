import FoundationEssentials
import GroupStore
import LinuxSystem

// Other processes' commits.

extension SharedDatabase {
    struct Following {
        /// Follows other processes' changes to the store at `url`; nil if no agent can know the store there.
        var task: Task<Void, Never>?
        var url: URL?
        var error: (any Error)?
        var token: String?
        var isEnded = false
    }

    /// The reason why other processes' commits aren't observed although an agent runs: it doesn't serve the store, or
    /// refuses the subscription. Nil while commits are observed, and while no agent runs: this process then watches the
    /// store itself, and keeps looking for one. A refused subscription is retried.
    public var followingError: (any Error)? { following.withLock { $0.error } }

    /// The token of the last change that observers were notified of; nil before the first one. With it,
    /// `store.changes(since:)` continues after that change.
    public var changeToken: String? { following.withLock { $0.token } }

    /// Starts following the store, or follows it under its new name after a move.
    func follow() {
        // Nil during the first opening; the initializer calls this method then.
        guard let presentation = presentation.withLock({ $0 }), let presentedURL = presentation.presentedItemURL,
            following.withLock({ $0.url != presentedURL })
        else { return }
        let task = presentation.presentedStore.map { follower($0.changes()) }
        let obsolete = following.withLock { following -> Task<Void, Never>? in
            guard !following.isEnded else { return task }
            following.url = presentedURL
            if task == nil {
                let message = "agents don't follow \(presentedURL.path): it isn't directly in the group's directory"
                following.error = NotFollowed(message: message, remedy: "move it into the group's directory itself")
            }
            defer { following.task = task }
            return following.task
        }
        obsolete?.cancel()
    }

    func stopFollowing() {
        following.withLock { following in
            following.isEnded = true
            return following.task.take()
        }?.cancel()
    }

    private func follower(_ changes: StoreChanges) -> Task<Void, Never> {
        Task(executorPreference: executor) { [weak self] in
            var backoff = Backoff(first: .seconds(1), longest: .seconds(60))
            while !Task.isCancelled {
                do {
                    for try await change in changes {
                        guard let self, !Task.isCancelled else { return }
                        await receive(change)
                        backoff.reset()
                    }
                } catch {
                    if !Task.isCancelled { self?.following.withLock { $0.error = error } }
                }
                // The agent's configuration decides who may subscribe, and may change. A task that is cancelled
                // meanwhile ends.
                await QueueExecutor.sleep(for: backoff.next())
            }
        }
    }

    private func receive(_ change: StoreChange) async {
        following.withLock { following in
            if case .notServed(let message) = change {
                following.error = NotFollowed(
                    message: message, remedy: "add the store's group to the agent's configuration")
            } else {
                following.error = nil
            }
        }
        if let region = ExternalChanges.region(of: change) { await notifyObservers(of: region) }
        if let token = change.token { following.withLock { $0.token = token } }
    }

    private func notifyObservers(of region: ExternalChanges.Region) async {
        // GRDB reads once for an observation of a database that this program can't write.
        guard !configuration.readonly else { return lifecycle.restartObservers() }
        do {
            try await withConnection { try await ExternalChanges.notify(region, $0) }
        } catch {
            // A fresh value makes up for a failed notification, or the observation reports its own error.
            lifecycle.restartObservers()
        }
    }
}
