import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreMigration
import StoreRelocation
import SystemPackage

/// What the agent was told to serve.
package struct Configuration: Sendable, Equatable {
    package struct Group: Sendable, Equatable {
        package var identifier: GroupIdentifier
        /// Absolute; it may not exist yet.
        package var directory: FilePath
        package var stores: [Store]

        package init(identifier: GroupIdentifier, directory: FilePath, stores: [Store]) {
            self.identifier = identifier
            self.directory = directory
            self.stores = stores
        }

        package func store(named name: FilePath.Component) -> Store? { stores.first { $0.name.database == name } }
    }

    /// Row changes are recorded, as `groupstore history enable` does it.
    package struct History: Sendable, Equatable {
        /// Older ones are purged unless a named subscriber needs them; nil: all are kept.
        package var keep: Duration?

        package init(keep: Duration? = nil) { self.keep = keep }
    }

    package struct Store: Sendable, Equatable {
        package var name: StoreName
        /// Where it may have been until now, absolute paths.
        package var legacy: [FilePath]
        package var onConflict: RelocationRequest.ConflictPolicy
        package var retirement: Transfer.Retirement
        /// Nil: the agent doesn't see to it; what was enabled stays.
        package var history: History?
        /// How long no part of a store that is being copied in may have come before it counts as whole.
        package var settle: Duration
        /// A store of an older version of its model is migrated, when it is relocated or where it is; nil for none.
        package var migration: MigrationRequest?
        /// How a store that arrives keeps its log; nil: as it did.
        package var journalMode: DatabaseHeader.JournalMode?

        package init(
            name: StoreName, legacy: [FilePath] = [], onConflict: RelocationRequest.ConflictPolicy = .refuse,
            retirement: Transfer.Retirement = .delete, settle: Duration = .seconds(1),
            migration: MigrationRequest? = nil, journalMode: DatabaseHeader.JournalMode? = nil
        ) {
            self.name = name
            self.legacy = legacy
            self.onConflict = onConflict
            self.retirement = retirement
            self.settle = settle
            self.migration = migration
            self.journalMode = journalMode
        }
    }

    /// Nil: the place that `AgentSocket` finds.
    package var socket: FilePath?
    /// What users may ask for besides the agent's own and root, who may ask for everything.
    package var allowed: [uid_t: Set<Role>]
    /// How many connections one user may have at a time.
    package var connectionsPerUser: Int
    package var subscriptions = SubscriptionLimits()
    /// How long presenters get to let go of a store.
    package var claimDeadline: Duration
    package var groups: [Group]

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

    /// A thousand subscribers, and some who look at them.
    package static let defaultConnectionsPerUser = 1100

    /// What a store is migrated to that is at `path`, in a group's directory or at a legacy place; nil when nothing is said.
    package func migration(of path: FilePath) -> MigrationRequest? {
        guard let identity = FileStatus(following: path)?.identity else { return nil }
        for group in groups {
            for store in group.stores {
                let places = [group.directory.appending(store.name.database)] + store.legacy
                guard places.contains(where: { FileStatus(following: $0)?.identity == identity }) else {
                    continue
                }
                return store.migration
            }
        }
        return nil
    }

    package func group(_ identifier: String) -> Group? { groups.first { $0.identifier.rawValue == identifier } }
}

/// What is wrong with a configuration, and where.
package struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    package enum Kind: Sendable {
        case invalid
        /// It is as it should be, but this user may not do what it asks for.
        case notPermitted
    }

    package let kind: Kind
    /// The file, or `command line`.
    package let source: String
    /// Counted from 1; nil when the whole file is meant.
    package let line: Int?
    package let message: String
    package let remedy: String

    package init(
        _ kind: Kind = .invalid, source: String, line: Int?, _ message: String, remedy: String
    ) {
        self.kind = kind
        self.source = source
        self.line = line
        self.message = message
        self.remedy = remedy
    }

    package var description: String {
        "\(source)\(line.map { ":\($0)" } ?? ""): \(message)"
    }
}
