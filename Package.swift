// swift-tools-version: 6.1
import Foundation
import PackageDescription

// Continuous integration turns warnings into errors; a newcomer's newer compiler does not break their build.
let strict: [SwiftSetting] =
    ProcessInfo.processInfo.environment["GROUPSTORE_STRICT"] == nil ? [] : [.unsafeFlags(["-warnings-as-errors"])]

// What only script/docs needs is not fetched by those who depend on this package.
let documentation: [Package.Dependency] =
    ProcessInfo.processInfo.environment["GROUPSTORE_DOCS"] == nil
    ? [] : [.package(url: "https://github.com/swiftlang/swift-docc-plugin", from: "1.4.0")]

let argumentParser = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")
let grdb = Target.Dependency.product(name: "GRDB", package: "GRDB.swift")
let grdbSQLite = Target.Dependency.product(name: "GRDBSQLite", package: "GRDB.swift")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let systemPackage = Target.Dependency.product(name: "SystemPackage", package: "swift-system")

let package = Package(
    name: "groupstore",
    products: [
        .executable(name: "groupstore", targets: ["GroupStoreCommand"]),
        .executable(name: "groupstore-relay", targets: ["GroupStoreRelayCommand"]),
        .library(name: "GroupStore", targets: ["GroupStore"]),
        .library(name: "GroupStoreGRDB", targets: ["GroupStoreGRDB"]),
        .library(name: "ManagedObjectModels", targets: ["ManagedObjectModels"]),
        .library(name: "StoreMigration", targets: ["ManagedObjectModels", "MappingModels", "StoreMigration"]),
    ],
    traits: [
        .default(enabledTraits: ["InotifyTools"]),
        .trait(
            name: "InotifyTools",
            description: "Watch directories through libinotifytools (GPL-2). Without it, inotify(7) is called directly."
        ),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.0"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    ] + documentation,
    targets: [
        .systemLibrary(name: "CExpat", providers: [.apt(["libexpat1-dev"])]),
        .systemLibrary(name: "CInotifyTools", providers: [.apt(["libinotifytools0-dev"])]),
        .systemLibrary(name: "CNATS", providers: [.apt(["libnats-dev"])]),
        .systemLibrary(name: "CZlib", providers: [.apt(["zlib1g-dev"])]),
        .systemLibrary(name: "CXXHash", providers: [.apt(["libxxhash-dev"])]),
        .systemLibrary(name: "COpenSSL", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(name: "CSQLite", providers: [.apt(["libsqlite3-dev"])]),
        .systemLibrary(name: "CYAML", providers: [.apt(["libyaml-dev"])]),
        .target(name: "CLinux"),
        .target(
            name: "LinuxSystem",
            dependencies: ["CLinux", systemPackage],
            swiftSettings: strict),
        .target(name: "GroupContainers", dependencies: ["LinuxSystem", systemPackage], swiftSettings: strict),
        .target(
            name: "FileCoordination", dependencies: ["GroupContainers", "LinuxSystem", systemPackage],
            swiftSettings: strict),
        .target(name: "AgentProtocol", swiftSettings: strict),
        .target(
            name: "GroupStore",
            dependencies: [
                "AgentProtocol", "CLinux", "DirectoryWatching", "FileCoordination", "GroupContainers", "LinuxSystem",
                "SQLiteFormat", "StoreFollowing", logging, systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "GroupStoreGRDB",
            dependencies: [
                "FileCoordination", "GroupContainers", "GroupStore", "LinuxSystem", "SQLiteStore", "StoreRelocation",
                grdb,
                grdbSQLite, systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "DirectoryWatching",
            dependencies: ["CLinux", "LinuxSystem", systemPackage],
            swiftSettings: strict),
        .target(
            name: "InotifyToolsWatching",
            dependencies: [
                .target(name: "CInotifyTools", condition: .when(traits: ["InotifyTools"])), "DirectoryWatching",
                "LinuxSystem", systemPackage,
            ],
            swiftSettings: strict),
        .target(name: "PropertyLists", swiftSettings: strict),
        .target(name: "XMLDocuments", dependencies: ["CExpat", "PropertyLists"], swiftSettings: strict),
        .target(name: "StrictYAML", dependencies: ["CYAML"], swiftSettings: strict),
        .target(name: "SQLiteFormat", dependencies: ["CLinux", "LinuxSystem", systemPackage], swiftSettings: strict),
        .target(
            name: "ChangeFeed", dependencies: ["CLinux", "LinuxSystem", "SQLiteFormat", systemPackage],
            swiftSettings: strict),
        .target(
            name: "StoreFollowing",
            dependencies: [
                "AgentProtocol", "ChangeFeed", "DirectoryWatching", "LinuxSystem", "SQLiteFormat", logging,
                systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "SQLiteStore",
            dependencies: [
                "CLinux", "CSQLite", "LinuxSystem", "PropertyLists", "SQLiteFormat", systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "ManagedObjectModels",
            dependencies: ["CZlib", "LinuxSystem", "PropertyLists", "XMLDocuments", systemPackage],
            swiftSettings: strict),
        .target(
            name: "CoreDataStore",
            dependencies: [
                "ManagedObjectModels", "PropertyLists", "SQLiteFormat", "SQLiteStore", "XMLDocuments", systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "PersistentHistory",
            dependencies: [
                "CLinux", "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "SQLiteFormat", "SQLiteStore",
                systemPackage,
            ], swiftSettings: strict),
        .target(
            name: "StoreReplication",
            dependencies: [
                "COpenSSL", "LinuxSystem", "PersistentHistory", "SQLiteFormat", "SQLiteStore",
                systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "MigrationAudit",
            dependencies: [
                "CXXHash", "LinuxSystem", "ManagedObjectModels", "PropertyLists", "SQLiteFormat", "SQLiteStore",
                "XMLDocuments", systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "MappingModels",
            dependencies: [
                "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "PropertyLists", "StrictYAML", "XMLDocuments",
                systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "StoreRelocation",
            dependencies: [
                "CLinux", "CSQLite", "CXXHash", "FileCoordination", "GroupContainers", "LinuxSystem", "SQLiteFormat",
                "SQLiteStore", systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "StoreMigration",
            dependencies: [
                "CLinux", "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "MappingModels", "MigrationAudit",
                "PersistentHistory", "PropertyLists", "SQLiteFormat", "SQLiteStore", "StoreRelocation", "XMLDocuments",
                systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "StoreMerging",
            dependencies: [
                "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "PersistentHistory", "SQLiteFormat",
                "SQLiteStore", "StoreMigration", "StoreRelocation", systemPackage,
            ],
            swiftSettings: strict),
        .target(
            name: "NATSStreams", dependencies: ["AgentProtocol", "CNATS", "LinuxSystem", systemPackage],
            swiftSettings: strict),
        .target(
            name: "GroupStoreAgent",
            dependencies: [
                "AgentProtocol", "CLinux", "DirectoryWatching", "FileCoordination", "GroupContainers", "LinuxSystem",
                "ManagedObjectModels", "PersistentHistory", "SQLiteFormat", "SQLiteStore", "StoreFollowing",
                "StoreMerging", "StoreMigration", "StoreRelocation", "StrictYAML", logging, systemPackage,
            ],
            path: "Agent",
            exclude: ["systemd", "config.example.yaml"],
            swiftSettings: strict),
        .target(
            name: "RelayStatus", dependencies: ["AgentProtocol", "GroupContainers", "LinuxSystem", systemPackage],
            swiftSettings: strict),
        .target(
            name: "CommandSupport", dependencies: ["AgentProtocol", "LinuxSystem", "SQLiteStore", argumentParser],
            swiftSettings: strict),
        .executableTarget(
            name: "GroupStoreCommand",
            dependencies: [
                "AgentProtocol", "CLinux", "CommandSupport", "CoreDataStore", "DirectoryWatching", "FileCoordination",
                "GroupContainers", "GroupStore", "GroupStoreAgent", "InotifyToolsWatching", "LinuxSystem",
                "ManagedObjectModels",
                "MappingModels",
                "PersistentHistory", "RelayStatus", "SQLiteFormat", "SQLiteStore", "StoreFollowing", "StoreMerging",
                "StoreMigration", "StoreRelocation",
                argumentParser, logging, systemPackage,
            ],
            path: "Sources/groupstore",
            swiftSettings: strict),
        .target(
            name: "StoreRelay",
            dependencies: [
                "AgentProtocol", "COpenSSL", "GroupContainers", "GroupStore", "LinuxSystem", "NATSStreams",
                "PersistentHistory", "RelayStatus", "SQLiteFormat", "SQLiteStore", "StoreReplication", systemPackage,
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "GroupStoreRelayCommand",
            dependencies: [
                "AgentProtocol", "CLinux", "CommandSupport", "GroupContainers", "LinuxSystem", "NATSStreams",
                "PersistentHistory", "RelayStatus", "SQLiteFormat", "SQLiteStore", "StoreRelay", "StoreReplication",
                argumentParser, systemPackage,
            ],
            path: "Sources/groupstore-relay", exclude: ["systemd"],
            swiftSettings: strict),
        .executableTarget(
            name: "LegacyWriter",
            dependencies: [grdb],
            path: "Samples/LegacyWriter",
            swiftSettings: strict),
        .executableTarget(
            name: "NotesApp",
            dependencies: ["GroupStore", "GroupStoreGRDB", argumentParser, grdb],
            path: "Samples/NotesApp", swiftSettings: strict),
        .executableTarget(
            name: "NotesWidget", dependencies: ["GroupStore"], path: "Samples/NotesWidget", swiftSettings: strict),
        .executableTarget(
            name: "StoreFollower", dependencies: ["GroupStore"], path: "Samples/StoreFollower", swiftSettings: strict),
        .executableTarget(
            name: "NotesUpgrade", dependencies: ["ManagedObjectModels", "StoreMigration", systemPackage],
            path: "Samples/NotesUpgrade", swiftSettings: strict),
        .executableTarget(
            name: "NotesDocument", dependencies: ["GroupStore"], path: "Samples/NotesDocument",
            // The package's tools are older than the setting that has this name.
            swiftSettings: strict + [.unsafeFlags(["-default-isolation", "MainActor"])]),
        .executableTarget(
            name: "LegacyPresenter",
            dependencies: ["GroupStore", grdbSQLite],
            path: "Samples/LegacyPresenter", swiftSettings: strict),
        .target(
            name: "TestSupport", dependencies: ["CLinux", "LinuxSystem", systemPackage], path: "Tests/TestSupport",
            swiftSettings: strict),
        .executableTarget(
            name: "ClaimWorker", dependencies: ["GroupStore"], path: "Tests/ClaimWorker", swiftSettings: strict),
        .executableTarget(
            name: "LibraryActor",
            dependencies: [
                "GroupStore", "GroupStoreGRDB", "ManagedObjectModels", "StoreMigration", grdb, systemPackage,
            ],
            path: "Tests/Adversary/library/Actor", swiftSettings: strict),
        .executableTarget(
            name: "ReplicationActor",
            dependencies: ["LinuxSystem", "PersistentHistory", "SQLiteFormat", "StoreReplication", systemPackage],
            path: "Tests/Adversary/replica/Actor", swiftSettings: strict),
        .executableTarget(
            name: "Fuzz",
            dependencies: [
                "AgentProtocol", "GroupContainers", "GroupStoreAgent", "LinuxSystem", "ManagedObjectModels",
                "StoreMigration", "TestSupport", systemPackage,
            ],
            path: "Tests/Fuzz", swiftSettings: strict),
        .testTarget(
            name: "LinuxSystemTests", dependencies: ["CLinux", "LinuxSystem", "TestSupport", systemPackage],
            swiftSettings: strict),
        .testTarget(
            name: "GroupContainersTests",
            dependencies: ["GroupContainers", "LinuxSystem", "TestSupport", systemPackage], swiftSettings: strict),
        .testTarget(
            name: "FileCoordinationTests",
            dependencies: ["FileCoordination", "GroupContainers", "LinuxSystem", "TestSupport", systemPackage],
            swiftSettings: strict),
        .testTarget(
            name: "GroupStoreTests",
            dependencies: [
                "AgentProtocol", "GroupContainers", "GroupStore", "LinuxSystem", "TestSupport", systemPackage,
            ], swiftSettings: strict
        ),
        .testTarget(
            name: "GroupStoreGRDBTests",
            dependencies: ["GroupStore", "GroupStoreGRDB", "LinuxSystem", "TestSupport", grdb, systemPackage],
            swiftSettings: strict),
        .testTarget(name: "AgentProtocolTests", dependencies: ["AgentProtocol"], swiftSettings: strict),
        .testTarget(
            name: "DirectoryWatchingTests",
            dependencies: [
                "CLinux", "DirectoryWatching", "InotifyToolsWatching", "LinuxSystem", "TestSupport", systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "PropertyListsTests", dependencies: ["PropertyLists", "TestSupport", "XMLDocuments"],
            swiftSettings: strict),
        .testTarget(name: "XMLDocumentsTests", dependencies: ["XMLDocuments"], swiftSettings: strict),
        .testTarget(name: "StrictYAMLTests", dependencies: ["StrictYAML"], swiftSettings: strict),
        .testTarget(
            name: "SQLiteFormatTests", dependencies: ["SQLiteFormat"], swiftSettings: strict),
        .testTarget(
            name: "SQLiteStoreTests",
            dependencies: [
                "LinuxSystem", "PropertyLists", "SQLiteFormat", "SQLiteStore", "TestSupport", "XMLDocuments", grdb,
                systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "ManagedObjectModelsTests",
            dependencies: [
                "LinuxSystem", "ManagedObjectModels", "PropertyLists", "TestSupport", "XMLDocuments", systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "CoreDataStoreTests",
            dependencies: [
                "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "PropertyLists", "SQLiteFormat", "SQLiteStore",
                "TestSupport", systemPackage,
            ], swiftSettings: strict),
        .testTarget(
            name: "MigrationAuditTests",
            dependencies: ["ManagedObjectModels", "MigrationAudit", "SQLiteStore", "TestSupport", systemPackage],
            swiftSettings: strict),
        .testTarget(
            name: "MappingModelsTests",
            dependencies: [
                "LinuxSystem", "ManagedObjectModels", "MappingModels", "PropertyLists", "TestSupport", systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "StoreMigrationTests",
            dependencies: [
                "CoreDataStore", "GroupContainers", "LinuxSystem", "ManagedObjectModels", "MappingModels",
                "MigrationAudit", "PropertyLists", "SQLiteFormat", "SQLiteStore", "StoreMigration", "TestSupport",
                systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "StoreMergingTests",
            dependencies: [
                "LinuxSystem", "SQLiteFormat", "SQLiteStore", "StoreMerging", "StoreRelocation", "TestSupport",
                systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "PersistentHistoryTests",
            dependencies: [
                "LinuxSystem", "PersistentHistory", "SQLiteFormat", "SQLiteStore", "TestSupport", grdb, systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "StoreReplicationTests",
            dependencies: [
                "LinuxSystem", "PersistentHistory", "SQLiteFormat", "SQLiteStore", "StoreReplication", "TestSupport",
                systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "ChangeFeedTests",
            dependencies: [
                "ChangeFeed", "DirectoryWatching", "InotifyToolsWatching", "LinuxSystem", "SQLiteFormat", "TestSupport",
                systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "StoreFollowingTests",
            dependencies: [
                "AgentProtocol", "DirectoryWatching", "LinuxSystem", "StoreFollowing", "TestSupport", logging,
                systemPackage,
            ], swiftSettings: strict),
        .testTarget(
            name: "StoreRelocationTests",
            dependencies: [
                "GroupContainers", "LinuxSystem", "SQLiteFormat", "SQLiteStore", "StoreRelocation", "TestSupport", grdb,
                systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "NATSStreamsTests",
            dependencies: ["AgentProtocol", "LinuxSystem", "NATSStreams", "TestSupport", systemPackage],
            swiftSettings: strict),
        .testTarget(
            name: "StoreRelayTests",
            dependencies: [
                "AgentProtocol", "GroupContainers", "LinuxSystem", "NATSStreams", "PersistentHistory", "RelayStatus",
                "SQLiteFormat", "SQLiteStore", "StoreRelay", "StoreReplication", "TestSupport", systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "GroupStoreAgentTests",
            dependencies: [
                "AgentProtocol", "CLinux", "DirectoryWatching", "FileCoordination", "GroupContainers", "GroupStore",
                "GroupStoreAgent", "LinuxSystem", "PersistentHistory", "SQLiteFormat", "SQLiteStore", "StoreFollowing",
                "StoreMigration", "StoreRelocation", "TestSupport", logging, systemPackage,
            ],
            swiftSettings: strict),
        .testTarget(
            name: "EndToEndTests",
            // The programs are run, not linked: this builds them first.
            dependencies: [
                "AgentProtocol", "CLinux", "ClaimWorker", "FileCoordination", "Fuzz", "GroupContainers", "GroupStore",
                "GroupStoreCommand", "GroupStoreRelayCommand", "LegacyPresenter", "LegacyWriter", "LibraryActor",
                "LinuxSystem", "NotesApp", "NotesDocument", "NotesUpgrade", "NotesWidget", "ReplicationActor",
                "SQLiteFormat", "SQLiteStore", "StoreFollower",
                "StrictYAML", "TestSupport", systemPackage,
            ],
            path: "Tests/EndToEnd", swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6]
)
