import AgentProtocol
import DirectoryWatching
import FileCoordination
import GroupContainers
import SystemPackage

/// Decides on its own thread when to relocate configured legacy stores, and has other threads relocate them. All calls
/// return at once, except `stop`.
package protocol RelocationScheduling: AnyObject, Sendable {
    /// Starts the scheduler, which inspects the present legacy and group directories.
    func start()

    /// Applies a new configuration.
    func configurationChanged(_ configuration: Configuration)

    /// Receives an event in a legacy directory, the coming or going of a directory, or a loss of events. Called on the
    /// feed thread, in order.
    func receive(_ notice: Notice)

    /// Runs a client's relocation. Each answer goes through `events`, from any thread; the last is `summary` or
    /// `refused`. `isAbandoned`: the client is gone, and what can still be undone is.
    func relocate(
        _ operation: RelocateOperation, isAbandoned: @escaping @Sendable () -> Bool,
        events: @escaping @Sendable (RelocateAnswer) -> Void)

    /// Reports that a presenter of the store came or went.
    func presentersChanged(of store: StoreAddress)

    /// Returns the rows of `status`: waiting and relocated legacy stores.
    func statusRows() -> [LegacyStatus]

    /// Returns the rows of `status` about apps' directories.
    func appRows() -> [AppStatus]

    /// Stops running relocations at the next safe point, and returns then.
    func stop()
}

/// The parts of the agent that relocations work with.
package struct RelocationEnvironment: Sendable {
    package let feed: FeedControl
    /// The file presenters of all connected processes.
    package let presenters: InProcessRegistry
}

/// A part of the answer to a client's relocation.
package enum RelocateAnswer: Sendable {
    /// The files at the request's paths are those that it names by device and inode.
    case recognized
    /// Progress; may be dropped when the client doesn't keep up.
    case progress(type: String, JSONObject)
    /// The last answer: the summary's members.
    case summary(JSONObject)
    /// The last answer: the relocation was not begun.
    case refused(WireError)
}

/// The state of one app's directory.
package struct AppStatus: Sendable {
    package let group: GroupIdentifier
    package let path: FilePath
    package let destination: FilePath
    /// One word: `absent`, `arriving`, `waiting`, `moving`, `moved`, `undone`, `conflict`, `refused`, `failed`.
    package let state: String
    /// A sentence, if there is more to say.
    package let detail: String?
    /// For a conflict, a refusal or a failure: its code, and the exit code of a command.
    package var code: String?
    package var exitCode: Int32?
    /// The time since which a directory that is there has been arriving or waiting.
    package var waitingSince: ContinuousClock.Instant?
    /// The hidden directory beside the old place with the files that a move could not remove; nil if there is none.
    package var leftBehind: FilePath?

    package init(
        group: GroupIdentifier, path: FilePath, destination: FilePath, state: String, detail: String? = nil
    ) {
        self.group = group
        self.path = path
        self.destination = destination
        self.state = state
        self.detail = detail
    }
}

/// The state of one legacy store.
package struct LegacyStatus: Sendable {
    package let store: StoreAddress
    package let path: FilePath
    /// One word: `absent`, `arriving`, `waiting`, `relocating`, `relocated`, `conflict`, `refused`, `failed`.
    package let state: String
    /// A sentence, if there is more to say.
    package let detail: String?
    /// For a conflict, a refusal or a failure: its code, and the exit code of a command.
    package let code: String?
    package let exitCode: Int32?
    /// The time since which a store that is there has been arriving or waiting.
    package let waitingSince: ContinuousClock.Instant?

    package init(
        store: StoreAddress, path: FilePath, state: String, detail: String? = nil, code: String? = nil,
        exitCode: Int32? = nil, waitingSince: ContinuousClock.Instant? = nil
    ) {
        self.code = code
        self.waitingSince = waitingSince
        self.exitCode = exitCode
        self.store = store
        self.path = path
        self.state = state
        self.detail = detail
    }
}
