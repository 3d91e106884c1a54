// swift-tools-version: 6.1
import Foundation
import PackageDescription

// Continuous integration turns warnings into errors; a newcomer's newer compiler does not break their build.
let strict: [SwiftSetting] =
    ProcessInfo.processInfo.environment["GROUPSTORE_STRICT"] == nil ? [] : [.unsafeFlags(["-warnings-as-errors"])]

let package = Package(
    name: "groupstore",
    products: [
        .executable(name: "groupstore", targets: ["GroupStoreCommand"]),
        .library(name: "GroupStore", targets: ["GroupStore"]),
        .library(name: "GroupStoreGRDB", targets: ["GroupStoreGRDB"]),
        .library(name: "ManagedObjectModel", targets: ["ManagedObjectModel"]),
        .library(name: "StoreMigration", targets: ["ManagedObjectModel", "StoreMigration", "StorePreparation"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.0"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.0"),
    ],
    targets: [
        .systemLibrary(name: "CInotifyTools", providers: [.apt(["libinotifytools0-dev"])]),
        .systemLibrary(name: "CZlib", providers: [.apt(["zlib1g-dev"])]),
        .systemLibrary(name: "CXXHash", providers: [.apt(["libxxhash-dev"])]),
        .systemLibrary(name: "CSQLite", providers: [.apt(["libsqlite3-dev"])]),
        .target(name: "CLinux"),
        .target(
            name: "LinuxSystem",
            dependencies: ["CLinux", .product(name: "SystemPackage", package: "swift-system")],
            swiftSettings: strict),
        .target(name: "GroupContainer", dependencies: ["LinuxSystem"], swiftSettings: strict),
        .target(name: "FileCoordination", dependencies: ["GroupContainer"], swiftSettings: strict),
        .target(name: "AgentProtocol", swiftSettings: strict),
        .target(
            name: "GroupStore", dependencies: ["AgentProtocol", "FileCoordination", "GroupContainer"],
            swiftSettings: strict),
        .target(
            name: "GroupStoreGRDB", dependencies: ["GroupStore", .product(name: "GRDB", package: "GRDB.swift")],
            swiftSettings: strict),
        .target(
            name: "DirectoryWatching", dependencies: ["LinuxSystem", "CInotifyTools"], swiftSettings: strict),
        .target(
            name: "PersistentStore",
            dependencies: [
                "CSQLite", "LinuxSystem",
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "GRDBSQLite", package: "GRDB.swift"),
            ],
            swiftSettings: strict),
        .target(
            name: "ManagedObjectModel",
            dependencies: [
                "CZlib", "LinuxSystem", .product(name: "SystemPackage", package: "swift-system"),
            ],
            swiftSettings: strict),
        .target(
            name: "CoreDataStore", dependencies: ["ManagedObjectModel", "PersistentStore"], swiftSettings: strict),
        .target(
            name: "PersistentHistory",
            dependencies: [
                "CLinux", "CoreDataStore", "LinuxSystem", "ManagedObjectModel", "PersistentStore",
                .product(name: "GRDB", package: "GRDB.swift"),
            ], swiftSettings: strict),
        .target(
            name: "MigrationAudit", dependencies: ["ManagedObjectModel", "PersistentStore"], swiftSettings: strict),
        .target(
            name: "StoreMigration",
            dependencies: [
                "CLinux", "CoreDataStore", "LinuxSystem", "ManagedObjectModel", "MigrationAudit", "PersistentStore",
                .product(name: "Yams", package: "Yams"),
            ],
            swiftSettings: strict),
        .target(name: "ChangeFeed", dependencies: ["CLinux", "PersistentStore"], swiftSettings: strict),
        .target(
            name: "StoreRelocation",
            dependencies: ["CLinux", "CXXHash", "FileCoordination", "GroupContainer", "PersistentStore"],
            swiftSettings: strict),
        .target(
            name: "StorePreparation",
            dependencies: [
                "CoreDataStore", "LinuxSystem", "ManagedObjectModel", "PersistentHistory", "PersistentStore",
                "StoreMigration", "StoreRelocation",
            ],
            swiftSettings: strict),
        .target(
            name: "GroupStoreAgent",
            dependencies: [
                "AgentProtocol", "ChangeFeed", "CoreDataStore", "DirectoryWatching", "FileCoordination",
                "GroupContainer", "ManagedObjectModel", "PersistentHistory", "StoreMigration", "StorePreparation",
                "StoreRelocation",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Yams", package: "Yams"),
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "GroupStoreCommand",
            dependencies: [
                "CoreDataStore", "GroupStore", "GroupStoreAgent", "ManagedObjectModel", "PersistentHistory",
                "StoreMigration", "StorePreparation", "StoreRelocation",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Agent",
            exclude: ["groupstore.service", "config.example.yaml"],
            swiftSettings: strict),
        .executableTarget(
            name: "LegacyWriter",
            dependencies: [.product(name: "GRDB", package: "GRDB.swift")],
            path: "Samples/LegacyWriter",
            swiftSettings: strict),
        .executableTarget(
            name: "NotesApp",
            dependencies: [
                "GroupStoreGRDB", .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "Samples/NotesApp", swiftSettings: strict),
        .executableTarget(
            name: "NotesWidget", dependencies: ["GroupStore"], path: "Samples/NotesWidget", swiftSettings: strict),
        .executableTarget(
            name: "NotesUpgrade", dependencies: ["ManagedObjectModel", "StorePreparation"],
            path: "Samples/NotesUpgrade", swiftSettings: strict),
        .executableTarget(
            name: "NotesDocument", dependencies: ["GroupStore"], path: "Samples/NotesDocument",
            // The package's tools are older than the setting that has this name.
            swiftSettings: strict + [.unsafeFlags(["-default-isolation", "MainActor"])]),
        .executableTarget(
            name: "LegacyPresenter",
            dependencies: ["GroupStore", .product(name: "GRDBSQLite", package: "GRDB.swift")],
            path: "Samples/LegacyPresenter", swiftSettings: strict),
        .target(
            name: "TestSupport", dependencies: ["LinuxSystem"], path: "Tests/TestSupport", swiftSettings: strict),
        .executableTarget(
            name: "ClaimWorker", dependencies: ["GroupStore"], path: "Tests/ClaimWorker", swiftSettings: strict),
        .executableTarget(
            name: "LibraryActor",
            dependencies: [
                "GroupStore", "GroupStoreGRDB", "ManagedObjectModel", "StorePreparation",
                .product(name: "GRDB", package: "GRDB.swift"),
            ],
            path: "Tests/Adversary/library/Actor", swiftSettings: strict),
        .executableTarget(
            name: "Fuzz",
            dependencies: ["AgentProtocol", "GroupContainer", "GroupStoreAgent", "LinuxSystem", "TestSupport"],
            path: "Tests/Fuzz", swiftSettings: strict),
        .testTarget(
            name: "LinuxSystemTests", dependencies: ["CLinux", "LinuxSystem", "TestSupport"], swiftSettings: strict),
        .testTarget(
            name: "GroupContainerTests", dependencies: ["GroupContainer", "TestSupport"], swiftSettings: strict),
        .testTarget(
            name: "FileCoordinationTests", dependencies: ["FileCoordination", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "GroupStoreTests", dependencies: ["GroupStore", "AgentProtocol", "TestSupport"], swiftSettings: strict
        ),
        .testTarget(
            name: "GroupStoreGRDBTests",
            dependencies: ["GroupStoreGRDB", "TestSupport", .product(name: "GRDB", package: "GRDB.swift")],
            swiftSettings: strict),
        .testTarget(name: "AgentProtocolTests", dependencies: ["AgentProtocol"], swiftSettings: strict),
        .testTarget(
            name: "DirectoryWatchingTests", dependencies: ["DirectoryWatching", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "PersistentStoreTests",
            dependencies: ["PersistentStore", "TestSupport", .product(name: "GRDB", package: "GRDB.swift")],
            swiftSettings: strict),
        .testTarget(
            name: "ManagedObjectModelTests", dependencies: ["ManagedObjectModel", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "CoreDataStoreTests", dependencies: ["CoreDataStore", "TestSupport"], swiftSettings: strict),
        .testTarget(
            name: "MigrationAuditTests",
            dependencies: ["ManagedObjectModel", "MigrationAudit", "PersistentStore", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "StoreMigrationTests",
            dependencies: [
                "CoreDataStore", "LinuxSystem", "ManagedObjectModel", "PersistentStore", "StoreMigration",
                "TestSupport",
            ],
            swiftSettings: strict),
        .testTarget(
            name: "StorePreparationTests",
            dependencies: [
                "CoreDataStore", "GroupContainer", "LinuxSystem", "ManagedObjectModel", "PersistentStore",
                "StoreMigration", "StorePreparation", "TestSupport",
            ],
            swiftSettings: strict),
        .testTarget(
            name: "PersistentHistoryTests",
            dependencies: ["PersistentHistory", "TestSupport", .product(name: "GRDB", package: "GRDB.swift")],
            swiftSettings: strict),
        .testTarget(
            name: "ChangeFeedTests", dependencies: ["ChangeFeed", "DirectoryWatching", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "StoreRelocationTests",
            dependencies: ["StoreRelocation", "TestSupport", .product(name: "GRDB", package: "GRDB.swift")],
            swiftSettings: strict),
        .testTarget(
            name: "GroupStoreAgentTests", dependencies: ["GroupStore", "GroupStoreAgent", "TestSupport"],
            swiftSettings: strict),
        .testTarget(
            name: "EndToEndTests",
            // The programs are run, not linked: this builds them first.
            dependencies: [
                "AgentProtocol", "CLinux", "ClaimWorker", "Fuzz", "GroupStore", "GroupStoreCommand", "LegacyPresenter",
                "LegacyWriter", "NotesApp", "NotesDocument", "NotesUpgrade", "NotesWidget", "PersistentStore",
                "TestSupport",
                .product(name: "Yams", package: "Yams"),
            ],
            path: "Tests/EndToEnd", swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6]
)
