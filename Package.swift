// swift-tools-version: 6.1
import Foundation
import PackageDescription

// MARK: - Making targets

// Continuous integration turns warnings into errors; a newcomer's newer compiler does not break their build.
let strict: [SwiftSetting] =
    ProcessInfo.processInfo.environment["GROUPSTORE_STRICT"] == nil ? [] : [.unsafeFlags(["-warnings-as-errors"])]

// What only script/docs needs is not fetched by those who depend on this package.
let documentation: [Package.Dependency] =
    ProcessInfo.processInfo.environment["GROUPSTORE_DOCS"] == nil
    ? [] : [.package(url: "https://github.com/swiftlang/swift-docc-plugin", from: "1.4.0")]

extension Target.Dependency {
    static let argumentParser = product(name: "ArgumentParser", package: "swift-argument-parser")
    static let grdb = product(name: "GRDB", package: "GRDB.swift")
    static let grdbSQLite = product(name: "GRDBSQLite", package: "GRDB.swift")
    static let logging = product(name: "Logging", package: "swift-log")
    static let systemPackage = product(name: "SystemPackage", package: "swift-system")
}

/// Makes the targets whose directories lie in `directory`, each under its own name unless it has a path.
func floor(_ directory: String, _ targets: Target...) -> [Target] {
    for target in targets where target.path == nil { target.path = "\(directory)/\(target.name)" }
    return targets
}

/// Makes a library. Each may use SystemPackage.
func room(_ name: String, _ dependencies: Target.Dependency..., path: String? = nil, exclude: [String] = []) -> Target {
    .target(
        name: name, dependencies: dependencies + [.systemPackage], path: path, exclude: exclude, swiftSettings: strict)
}

func program(
    _ name: String, _ dependencies: Target.Dependency..., path: String? = nil, exclude: [String] = [],
    settings: [SwiftSetting] = []
) -> Target {
    .executableTarget(
        name: name, dependencies: dependencies + [.systemPackage], path: path, exclude: exclude,
        swiftSettings: strict + settings)
}

/// Makes the tests in Tests/`name`, of the target whose name precedes "Tests".
func tests(
    _ name: String, _ dependencies: Target.Dependency..., path: String? = nil, exclude: [String] = []
) -> Target {
    .testTarget(
        name: name, dependencies: dependencies + ["TestSupport", .systemPackage], path: path, exclude: exclude,
        swiftSettings: strict)
}

// MARK: - The floors
// A target imports only targets that stand above it here. script/lint checks it.

let system = floor(
    "Sources/System",
    .systemLibrary(name: "CInotifyTools", providers: [.apt(["libinotifytools0-dev"])]),
    .systemLibrary(name: "CYAML", providers: [.apt(["libyaml-dev"])]),
    .target(name: "CLinux"),
    .target(name: "CXXHash"),
    room("LinuxSystem", "CLinux"),
    room("DirectoryWatching", "CLinux", "LinuxSystem"),
    room(
        "InotifyToolsWatching", .target(name: "CInotifyTools", condition: .when(traits: ["InotifyTools"])),
        "DirectoryWatching", "LinuxSystem"),
    room("MessageDigests"),
    room("PropertyLists"),
    room("StrictYAML", "CYAML"))

let sqlite = floor(
    "Sources/SQLite",
    .systemLibrary(name: "CSQLite", providers: [.apt(["libsqlite3-dev"])]),
    room("SQLiteFormat", "CLinux", "LinuxSystem"),
    room("SQLiteStore", "CLinux", "CSQLite", "LinuxSystem", "PropertyLists", "SQLiteFormat"))

let sharing = floor(
    "Sources/Sharing",
    room("GroupContainers", "LinuxSystem"),
    room("FileCoordination", "GroupContainers", "LinuxSystem"),
    room("AgentProtocol"),
    room(
        "StoreRelocation", "CLinux", "CSQLite", "CXXHash", "FileCoordination", "GroupContainers", "LinuxSystem",
        "SQLiteFormat", "SQLiteStore"),
    room(
        "AppRelocation", "CLinux", "CSQLite", "GroupContainers", "LinuxSystem", "SQLiteFormat", "SQLiteStore",
        "StoreRelocation", "StrictYAML"))

let coreData = floor(
    "Sources/CoreData",
    .systemLibrary(name: "CExpat", providers: [.apt(["libexpat1-dev"])]),
    .systemLibrary(name: "CZlib", providers: [.apt(["zlib1g-dev"])]),
    room("XMLDocuments", "CExpat", "PropertyLists"),
    room("ManagedObjectModels", "CZlib", "LinuxSystem", "MessageDigests", "PropertyLists", "XMLDocuments"),
    room("CoreDataStore", "ManagedObjectModels", "PropertyLists", "SQLiteFormat", "SQLiteStore", "XMLDocuments"))

let changes = floor(
    "Sources/Changes",
    room("RowChanges", "SQLiteFormat"),
    room("StoreHazards", "CLinux", "GroupContainers", "LinuxSystem", "SQLiteFormat"),
    room("ChangeFeed", "CLinux", "DirectoryWatching", "LinuxSystem", "SQLiteFormat"),
    room(
        "RowShadow", "CLinux", "CXXHash", "ChangeFeed", "LinuxSystem", "RowChanges", "SQLiteFormat", "SQLiteStore"),
    room(
        "StoreWatching", "AgentProtocol", "ChangeFeed", "DirectoryWatching", "LinuxSystem", "SQLiteFormat",
        "StoreHazards"),
    room(
        "PersistentHistory", "CLinux", "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "MessageDigests",
        "SQLiteFormat", "SQLiteStore"))

let migration = floor(
    "Sources/Migration",
    room(
        "MigrationAudit", "CXXHash", "LinuxSystem", "ManagedObjectModels", "PropertyLists", "SQLiteFormat",
        "SQLiteStore", "XMLDocuments"),
    room(
        "MappingModels", "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "PropertyLists", "StrictYAML",
        "XMLDocuments"),
    room(
        "StoreMigration", "CLinux", "CoreDataStore", "GroupContainers", "LinuxSystem", "ManagedObjectModels",
        "MappingModels", "MigrationAudit", "PersistentHistory", "PropertyLists", "SQLiteFormat", "SQLiteStore",
        "StoreRelocation", "XMLDocuments"),
    room(
        "StoreMerging", "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "PersistentHistory", "SQLiteFormat",
        "SQLiteStore", "StoreMigration", "StoreRelocation"),
    room(
        "StoreRescue", "FileCoordination", "GroupContainers", "LinuxSystem", "SQLiteFormat", "SQLiteStore",
        "StoreHazards", "StoreMerging", "StoreRelocation"))

let apps = floor(
    "Sources/Apps",
    room(
        "GroupStore", "AgentProtocol", "CLinux", "DirectoryWatching", "FileCoordination", "GroupContainers",
        "LinuxSystem", "SQLiteFormat", "StoreWatching"),
    room(
        "GroupStoreGRDB", "FileCoordination", "GroupContainers", "GroupStore", "LinuxSystem", "SQLiteStore",
        "StoreRelocation", .grdb, .grdbSQLite))

let relay = floor(
    "Sources/Relay",
    .systemLibrary(name: "CNATS", providers: [.apt(["libnats-dev"])]),
    .systemLibrary(name: "COpenSSL", providers: [.apt(["libssl-dev"])]),
    room(
        "StoreReplication", "COpenSSL", "LinuxSystem", "PersistentHistory", "RowShadow", "SQLiteFormat", "SQLiteStore"),
    room("NATSStreams", "AgentProtocol", "CNATS", "LinuxSystem"),
    room("RelayStatus", "AgentProtocol", "GroupContainers", "LinuxSystem"),
    room(
        "StoreRelay", "AgentProtocol", "COpenSSL", "GroupContainers", "GroupStore", "LinuxSystem", "NATSStreams",
        "PersistentHistory", "RelayStatus", "RowShadow", "SQLiteFormat", "SQLiteStore", "StoreReplication"))

let programs = floor(
    "Sources/Programs",
    room("CommandSupport", "AgentProtocol", "LinuxSystem", "SQLiteStore", .argumentParser),
    room(
        "GroupStoreAgent", "AgentProtocol", "AppRelocation", "CLinux", "DirectoryWatching", "FileCoordination",
        "GroupContainers", "LinuxSystem", "ManagedObjectModels", "PersistentHistory", "RowShadow", "SQLiteFormat",
        "SQLiteStore", "StoreHazards", "StoreMerging", "StoreMigration", "StoreRelocation", "StoreWatching",
        "StrictYAML", .logging,
        path: "Agent", exclude: ["systemd", "config.example.yaml"]),
    program(
        "GroupStoreCommand", "AgentProtocol", "AppRelocation", "CLinux", "CommandSupport", "CoreDataStore",
        "DirectoryWatching", "FileCoordination", "GroupContainers", "GroupStore", "GroupStoreAgent",
        "InotifyToolsWatching", "LinuxSystem", "ManagedObjectModels", "MappingModels", "PersistentHistory",
        "RelayStatus", "RowShadow", "SQLiteFormat", "SQLiteStore", "StoreHazards", "StoreMerging", "StoreMigration",
        "StoreRelocation", "StoreRescue", "StoreWatching", .argumentParser, .logging),
    program(
        "GroupStoreRelayCommand", "AgentProtocol", "CLinux", "CommandSupport", "GroupContainers", "LinuxSystem",
        "NATSStreams", "PersistentHistory", "RelayStatus", "SQLiteFormat", "SQLiteStore", "StoreRelay",
        "StoreReplication", .argumentParser, exclude: ["systemd"]))

// MARK: - Samples

let samples = floor(
    "Samples",
    program("LegacyWriter", .grdb),
    program("NotesApp", "GroupStore", "GroupStoreGRDB", .argumentParser, .grdb),
    program("NotesWidget", "GroupStore"),
    program("StoreFollower", "GroupStore"),
    program("NotesUpgrade", "ManagedObjectModels", "StoreMigration"),
    // The package's tools are older than the setting that has this name.
    program("NotesDocument", "GroupStore", settings: [.unsafeFlags(["-default-isolation", "MainActor"])]),
    program("LegacyPresenter", "GroupStore", .grdbSQLite))

// MARK: - Tests

let testPrograms = floor(
    "Tests",
    room("TestSupport", "CLinux", "LinuxSystem"),
    room("EndToEndSupport", "AgentProtocol", "LinuxSystem", "SQLiteFormat", "TestSupport"),
    program("ClaimWorker", "GroupStore"),
    program("DifferenceActor", "LinuxSystem", "RowChanges", "SQLiteFormat", path: "Tests/Adversary/rows/Actor"),
    program(
        "LibraryActor", "GroupStore", "GroupStoreGRDB", "ManagedObjectModels", "StoreMigration", .grdb,
        path: "Tests/Adversary/library/Actor"),
    program(
        "ReplicationActor", "LinuxSystem", "PersistentHistory", "SQLiteFormat", "StoreReplication",
        path: "Tests/Adversary/replica/Actor"),
    program(
        "Fuzz", "AgentProtocol", "GroupContainers", "GroupStoreAgent", "LinuxSystem", "ManagedObjectModels",
        "StoreMigration", "TestSupport"))

let unitTests = floor(
    "Tests",
    tests("LinuxSystemTests", "CLinux", "LinuxSystem"),
    tests("DirectoryWatchingTests", "CLinux", "DirectoryWatching", "InotifyToolsWatching", "LinuxSystem"),
    tests("MessageDigestsTests", "MessageDigests"),
    tests("PropertyListsTests", "PropertyLists", "XMLDocuments"),
    tests("StrictYAMLTests", "StrictYAML"),
    tests("SQLiteFormatTests", "SQLiteFormat"),
    tests("SQLiteStoreTests", "LinuxSystem", "PropertyLists", "SQLiteFormat", "SQLiteStore", "XMLDocuments", .grdb),
    tests("GroupContainersTests", "GroupContainers", "LinuxSystem"),
    tests("FileCoordinationTests", "FileCoordination", "GroupContainers", "LinuxSystem"),
    tests("AgentProtocolTests", "AgentProtocol"),
    tests(
        "StoreRelocationTests", "GroupContainers", "LinuxSystem", "SQLiteFormat", "SQLiteStore", "StoreRelocation",
        .grdb),
    tests(
        "AppRelocationTests", "AppRelocation", "GroupContainers", "LinuxSystem", "StoreRelocation"),
    tests("XMLDocumentsTests", "XMLDocuments"),
    tests("ManagedObjectModelsTests", "LinuxSystem", "ManagedObjectModels", "PropertyLists", "XMLDocuments"),
    tests(
        "CoreDataStoreTests", "CoreDataStore", "LinuxSystem", "ManagedObjectModels", "PropertyLists", "SQLiteFormat",
        "SQLiteStore"),
    tests("RowChangesTests", "RowChanges", "SQLiteFormat", .grdb),
    tests("RowShadowTests", "ChangeFeed", "LinuxSystem", "RowShadow", "SQLiteFormat", "SQLiteStore", .grdb),
    tests("StoreHazardsTests", "LinuxSystem", "SQLiteFormat", "StoreHazards"),
    tests("ChangeFeedTests", "ChangeFeed", "DirectoryWatching", "LinuxSystem", "SQLiteFormat"),
    tests("StoreWatchingTests", "AgentProtocol", "DirectoryWatching", "LinuxSystem", "StoreHazards", "StoreWatching"),
    tests("PersistentHistoryTests", "LinuxSystem", "PersistentHistory", "SQLiteFormat", "SQLiteStore", .grdb),
    tests("MigrationAuditTests", "ManagedObjectModels", "MigrationAudit", "SQLiteStore"),
    tests("MappingModelsTests", "LinuxSystem", "ManagedObjectModels", "MappingModels", "PropertyLists"),
    tests(
        "StoreMigrationTests", "CoreDataStore", "GroupContainers", "LinuxSystem", "ManagedObjectModels",
        "MappingModels", "MigrationAudit", "PropertyLists", "SQLiteFormat", "SQLiteStore", "StoreMigration",
        "StoreRelocation"),
    tests("StoreMergingTests", "LinuxSystem", "SQLiteFormat", "SQLiteStore", "StoreMerging", "StoreRelocation"),
    tests(
        "StoreRescueTests", "FileCoordination", "GroupContainers", "LinuxSystem", "SQLiteFormat", "SQLiteStore",
        "StoreMerging", "StoreRelocation", "StoreRescue"),
    tests("GroupStoreTests", "AgentProtocol", "GroupContainers", "GroupStore", "LinuxSystem"),
    tests("GroupStoreGRDBTests", "GroupStore", "GroupStoreGRDB", "LinuxSystem", .grdb),
    tests(
        "StoreReplicationTests", "LinuxSystem", "PersistentHistory", "SQLiteFormat", "SQLiteStore",
        "StoreReplication"),
    tests("NATSStreamsTests", "AgentProtocol", "LinuxSystem", "NATSStreams"),
    tests(
        "StoreRelayTests", "AgentProtocol", "GroupContainers", "LinuxSystem", "NATSStreams", "PersistentHistory",
        "RelayStatus", "SQLiteFormat", "SQLiteStore", "StoreRelay", "StoreReplication"),
    tests(
        "GroupStoreAgentTests", "AgentProtocol", "AppRelocation", "CLinux", "DirectoryWatching", "FileCoordination",
        "GroupContainers", "GroupStore", "GroupStoreAgent", "LinuxSystem", "PersistentHistory", "RowShadow",
        "SQLiteFormat", "SQLiteStore", "StoreMigration", "StoreRelocation", "StoreWatching", .logging),
    tests(
        "CompatibilityTests", "AgentProtocol", "GroupContainers", "LinuxSystem", "NATSStreams", "PersistentHistory",
        "SQLiteFormat", "SQLiteStore", "StoreRelay", "StoreReplication", "StoreWatching",
        path: "Tests/Compatibility", exclude: ["0.1.0", "record"]),
    tests("GroupStoreCommandTests", "AgentProtocol", "GroupStoreCommand", "LinuxSystem"),
    // They run the programs, which `swift test` builds too. Without a dependency on them they are compiled beside them.
    // Two targets are compiled at the same time.
    tests(
        "EndToEndTests", "AgentProtocol", "CLinux", "EndToEndSupport", "FileCoordination", "GroupContainers",
        "GroupStore", "LinuxSystem", "StoreRelocation", "StrictYAML"),
    tests(
        "RelocationEndToEndTests", "AgentProtocol", "CLinux", "EndToEndSupport", "LinuxSystem", "SQLiteFormat",
        "SQLiteStore", "StoreRelocation"))

// MARK: - The package

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
    targets: system + sqlite + sharing + coreData + changes + migration + apps + relay + programs + samples
        + testPrograms + unitTests,
    swiftLanguageModes: [.v6]
)
