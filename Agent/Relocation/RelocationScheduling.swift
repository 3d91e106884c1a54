import AgentProtocol
import DirectoryWatching
import FileCoordination
import SystemPackage

/// Decides when configured legacy stores are relocated, on a thread of its own, and has others relocate them. All calls
/// return at once, except `stop`.
package protocol RelocationScheduling: AnyObject, Sendable {
    /// Begins; the legacy and group directories that are there now are looked at.
    func start()

    /// A new configuration holds from now on.
    func configurationChanged(_ configuration: Configuration)

    /// Something happened in a legacy directory, or a directory came or went, or notices were lost. Called on the
    /// thread that watches, in order.
    func notice(_ notice: Notice)

    /// A client's request. Each object that it is to see goes through `events`, from any thread; the last one is of
    /// type `summary`, or has an `error`. `isAbandoned`: the client is gone, and what can still be put back is.
    func relocate(
        _ operation: RelocateOperation, isAbandoned: @escaping @Sendable () -> Bool,
        events: @escaping @Sendable (RelocateAnswer) -> Void)

    /// A presenter of the store came or went.
    func presentersChanged(of store: StoreAddress)

    /// For `status`: the legacy stores that are waited for, and the stores that were relocated.
    func statusRows() -> [LegacyStatus]

    /// Ends what is under way at the next point where that is safe, and returns then.
    func stop()
}

/// What relocations have to do with in the agent.
package struct RelocationSurroundings: Sendable {
    package let feed: FeedControl
    /// The file presenters of all connected processes.
    package let presenters: InProcessRegistry

    package init(feed: FeedControl, presenters: InProcessRegistry) {
        self.feed = feed
        self.presenters = presenters
    }
}

/// A part of the answer to a client's relocation.
package enum RelocateAnswer: Sendable {
    /// What the request names by device and inode is what is there under these paths.
    case recognized
    /// Progress; may be left out when the client doesn't keep up.
    case progress(type: String, JSONObject)
    /// The end: the summary's members.
    case summary(JSONObject)
    /// The end: it was not begun.
    case refused(WireError)
}

/// Where one legacy store stands.
package struct LegacyStatus: Sendable {
    package let store: StoreAddress
    package let path: FilePath
    /// One word: `absent`, `arriving`, `waiting`, `relocating`, `relocated`, `conflict`, `refused`, `failed`.
    package let state: String
    /// A sentence, where there is more to say.
    package let detail: String?
    /// Of a conflict, a refusal or a failure: the word for it, and what a command would exit with.
    package let code: String?
    package let exitCode: Int32?

    package init(
        store: StoreAddress, path: FilePath, state: String, detail: String? = nil, code: String? = nil,
        exitCode: Int32? = nil
    ) {
        self.code = code
        self.exitCode = exitCode
        self.store = store
        self.path = path
        self.state = state
        self.detail = detail
    }
}
