import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreMigration
import StoreRelocation
import SystemPackage

/// The agent's configuration: the stores that it serves.
package struct Configuration: Sendable, Equatable {
    package struct Group: Sendable, Equatable {
        package var identifier: GroupIdentifier
        /// Absolute; it may not exist yet.
        package var directory: FilePath
        package var stores: [Store]
        package var apps: [App] = []
        /// True if no file names it: it is served because its directory exists.
        package var isDiscovered = false

        package func store(named name: FilePath.Component) -> Store? { stores.first { $0.name.database == name } }
    }

    /// The settings for recording row changes, as `groupstore history enable` does.
    package struct History: Sendable, Equatable {
        /// Older changes are purged unless a named subscriber needs them; nil keeps all.
        package var keep: Duration?
    }

    package struct Store: Sendable, Equatable {
        package var name: StoreName
        /// The absolute paths at which it may still be.
        package var legacy: [FilePath]
        package var onConflict: RelocationRequest.ConflictPolicy
        package var retirement: Transfer.Retirement?
        /// The history settings; nil if the agent doesn't manage the history. A history that was enabled stays.
        package var history: History?
        /// True if the agent follows the rows of a store without a history, from a copy of its pages.
        package var rows = false
        /// The time without a new file after which a store that is being copied in counts as whole.
        package var settle: Duration
        /// The migration of a store of an older model version, when it is relocated or in place; nil for none.
        package var migration: MigrationRequest?
        /// The journal mode of an arriving store; nil leaves it unchanged.
        package var journalMode: DatabaseHeader.JournalMode?
        /// True if the user asserts that no program has the store open where nothing proves it, on overlayfs or FUSE.
        package var assumeClosed: Bool

        package init(
            name: StoreName, legacy: [FilePath] = [], onConflict: RelocationRequest.ConflictPolicy = .refuse,
            retirement: Transfer.Retirement? = nil, settle: Duration = .seconds(1),
            migration: MigrationRequest? = nil, journalMode: DatabaseHeader.JournalMode? = nil,
            assumeClosed: Bool = false
        ) {
            self.assumeClosed = assumeClosed
            self.name = name
            self.legacy = legacy
            self.onConflict = onConflict
            self.retirement = retirement
            self.settle = settle
            self.migration = migration
            self.journalMode = journalMode
        }
    }

    /// A program's directory that is moved into the group once, when it appears.
    package struct App: Sendable, Equatable {
        /// The directory; absolute.
        package var source: FilePath
        /// Its name in the group's directory.
        package var name: FilePath.Component
        package var recipe: AppRecipe?
        /// Paths to change in the stores.
        package var rewrites: [PathRewrite] = []
        /// True to change the directory's own path, too.
        package var rewritesOwnPath = false
        /// The time after which a directory that has just come counts as whole.
        package var settle = Duration.seconds(1)
        /// The longest time that an attempt waits for programs that have a file open.
        package var deadline = Duration.milliseconds(100)
        package var stopsHolders = false
        /// True if the user asserts that no program has a store open where nothing proves it.
        package var assumeClosed = false

        package init(source: FilePath, name: FilePath.Component) { (self.source, self.name) = (source, name) }
    }

    /// What the agent does when a program has lost files of a store open.
    package enum Rescue: String, CaseIterable, Sendable {
        /// It copies what the program has committed to `.groupstore/rescue`.
        case on
        case off
    }

    /// The socket's path; nil for the one that `AgentSocket` finds.
    package var socket: FilePath?
    /// The roles of users other than the agent's own and root, who may request everything.
    package var allowed: [uid_t: Set<Role>]
    /// The maximum number of connections per user.
    package var connectionsPerUser: Int
    package var subscriptions = SubscriptionLimits()
    /// The time that presenters get to release a store.
    package var claimDeadline: Duration
    package var rescue = Rescue.on
    package var groups: [Group]
    /// The directory in which every group container is served, whether or not it is configured; nil for none.
    package var containers: FilePath?
    /// The files that were read, in order.
    package var files: [FilePath] = []
    /// The errors in files and groups that are left out, or that are used as they were before.
    package var problems: [ConfigurationError] = []
    /// The groups that are left out because this user may not use them, which is no error.
    package var notes: [ConfigurationError] = []

    package init(
        socket: FilePath? = nil, allowed: [uid_t: Set<Role>] = [:],
        connectionsPerUser: Int = Self.defaultConnectionsPerUser, claimDeadline: Duration = .seconds(30),
        groups: [Group] = []
    ) {
        self.socket = socket
        self.allowed = allowed
        self.connectionsPerUser = connectionsPerUser
        self.claimDeadline = claimDeadline
        self.groups = groups
    }

    /// Enough for a thousand subscribers, and some programs that monitor them.
    package static let defaultConnectionsPerUser = 1100

    /// Returns the migration of the store at `path`, in a group's directory or at a legacy path; nil if none is
    /// configured.
    package func migration(of path: FilePath) -> MigrationRequest? {
        guard let identity = FileStatus(following: path)?.identity else { return nil }
        for group in groups {
            for store in group.stores {
                let paths = [group.directory.appending(store.name.database)] + store.legacy
                guard paths.contains(where: { FileStatus(following: $0)?.identity == identity }) else {
                    continue
                }
                return store.migration
            }
        }
        return nil
    }

    package func group(_ identifier: String) -> Group? { groups.first { $0.identifier.rawValue == identifier } }
}

/// An error in a configuration, and its place.
package struct ConfigurationError: ActionableError, Equatable {
    package enum Kind: Sendable {
        case invalid
        /// It is valid, but this user may not do what it requires.
        case notPermitted
    }

    package let kind: Kind
    /// The file; nil for the command line.
    package let path: FilePath?
    /// The line, counted from 1; nil for the whole file.
    package let line: Int?
    package let message: String
    package let remedy: String
    private let cause: SystemError?

    package init(
        _ kind: Kind = .invalid, in path: FilePath?, line: Int?, _ message: String, remedy: String,
        cause: SystemError? = nil
    ) {
        self.kind = kind
        self.path = path
        self.cause = cause
        self.line = line
        self.message = message
        self.remedy = remedy
    }

    package var errorCode: String { "bad_configuration" }
    package var errorPath: FilePath? { path }
    package var underlyingError: (any Error)? { cause }

    /// The file and line, followed by the message.
    package var fullMessage: String {
        "\(path.map { "\(PrintablePath($0))" } ?? "command line")\(line.map { ":\($0)" } ?? ""): \(message)"
    }
}
