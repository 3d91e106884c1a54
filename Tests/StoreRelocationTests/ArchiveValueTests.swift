import FoundationEssentials
import GRDB
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import StoreRelocation

/// Tests of what would be lost with an archived set.
@Suite struct ArchiveValueTests {
    private let rig: TransferRig
    private var container: GroupContainer { rig.container }
    private var name: FilePath.Component { rig.legacy.name.database }
    private var published: StoreLocation { StoreLocation(directory: container.directory, name: rig.legacy.name) }

    init() throws { rig = try TransferRig() }

    private func makeStore(at store: StoreLocation, _ text: String) throws {
        let queue = try DatabaseQueue(path: store.path.string)
        try queue.writeWithoutTransaction {
            try $0.execute(sql: "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('\(text)')")
        }
        try queue.close()
    }

    /// Archives a store, as the relocation with that identifier would have.
    private func archive(_ text: String, _ id: TransferIdentifier = TransferIdentifier()) throws -> TransferIdentifier {
        try makeStore(at: StoreLocation(directory: container.archive(id), name: rig.legacy.name), text)
        try container.write(
            ArchiveNote(id: id, name: name, from: rig.legacy.path, at: Date(), reason: "a test"))
        return id
    }

    private func addReceipt(_ id: TransferIdentifier, _ method: Transfer.Method, at: Date = Date()) throws {
        var receipt = RelocationReceipt(
            id: id, name: name, from: rig.legacy.path, at: at, method: method, bytes: 0, hash: nil, changeCounter: 1,
            storeUUID: nil, retirement: .archive, assumedClosed: false)
        receipt.published = try container.directory.status(name).map { .init($0) }
        try container.write(receipt)
    }

    private func value(_ id: TransferIdentifier) throws -> ArchiveValue {
        let entry = try #require(try container.archivedSet(id))
        return try ArchiveValue(of: ArchivedStore(entry, in: container), in: container)
    }

    @Test(arguments: [
        (Transfer.Method.migrate, "as it was before a migration"), (.replace, "which could not be migrated"),
        (.merge, "as it was before a merge or a rescue"),
    ])
    func undoingAChangeNeedsTheStoreAsItWas(_ method: Transfer.Method, why: String) throws {
        try makeStore(at: published, "new")
        let id = try archive("old")
        try addReceipt(id, method)
        let needed = try value(id)
        #expect(needed.word == "needed_by_undo" && needed.reason.hasSuffix(why), "\(needed.reason)")
        // A later relocation can be undone, this one no longer; but nothing else holds the old rows.
        try addReceipt(TransferIdentifier(), .rename, at: Date().addingTimeInterval(10))
        #expect(try value(id).word == "only_copy")
    }

    @Test(arguments: [Transfer.Method.rename, .reflink, .copy])
    func aStoreThatLivesOnInTheGroupIsNoOnlyCopy(_ method: Transfer.Method) throws {
        try makeStore(at: published, "old")
        let id = try archive("old")
        try addReceipt(id, method)
        let queue = try DatabaseQueue(path: published.path.string)
        try queue.write { try $0.execute(sql: "INSERT INTO note VALUES ('later')") }
        try queue.close()
        #expect(try value(id).word == "redundant")
        try container.directory.removeFile(name)
        #expect(try value(id).word == "only_copy")
    }

    @Test func equalContentElsewhereMakesItRedundant() throws {
        let id = try archive("one")
        #expect(try value(id).word == "only_copy")
        try makeStore(at: rig.legacy, "two")
        #expect(try value(id).word == "only_copy")
        try rig.legacy.directory.removeFile(name)
        try makeStore(at: rig.legacy, "one")
        #expect(try value(id).word == "redundant")
    }

    /// Both may be purged by one command.
    @Test func anotherArchiveWithTheContentDoesNotCount() throws {
        let (first, second) = (try archive("one"), try archive("one"))
        #expect(try value(first).word == "only_copy")
        #expect(try value(second).word == "only_copy")
    }

    @Test func externalDataCountsAsContent() throws {
        let id = try archive("one")
        let folder = rig.legacy.name.support
        try container.archive(id).makeDirectory(folder, mode: 0o755)
        let inside = try container.archive(id).directory(folder)
        try DurableFile.write([1, 2, 3], as: "picture", in: inside, mode: 0o644)
        try makeStore(at: rig.legacy, "one")
        #expect(try value(id).word == "only_copy")
    }

    @Test func aSetWithoutANoteIsKept() throws {
        let id = TransferIdentifier()
        try makeStore(at: StoreLocation(directory: container.archive(id), name: rig.legacy.name), "one")
        #expect(try value(id).word == "only_copy")
    }
}
