import LinuxSystem
import ManagedObjectModels
import PropertyLists
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import CoreDataStore

struct StoreCreationTests {
    private func emptyStore(of model: ManagedObjectModel, in directory: TemporaryDirectory) throws -> StoreLocation {
        let name = try #require(StoreName("New.sqlite"))
        let location = StoreLocation(directory: try Directory(directory.path), name: name)
        let new = try NewStore(at: location)
        do {
            let writer = try StoreWriter(new.path)
            try writer.prepareEmptyStore()
            try writer.createStore(StoreLayout(model))
            try writer.checkIntegrity()
        }
        try new.publish(writeAhead: true)
        return location
    }

    /// A model built in code has no identifier; one from Xcode may have an empty one.
    @Test func recordsTheVersionIdentifiers() throws {
        for identifiers in [[], [""], ["2", "1"]] {
            let model = try ManagedObjectModel(
                entities: [EntityDescription(name: "Note")], versionIdentifiers: Set(identifiers))
            let values = try PropertyListValue(binary: StoreProperties(for: model).bytes).dictionary
            #expect(values?["NSStoreModelVersionIdentifiers"] == .array(identifiers.sorted().map { .string($0) }))
        }
    }

    @Test func recordsTheModelInANewStore() throws {
        let directory = try TemporaryDirectory()
        var note = EntityDescription(name: "Note")
        var title = AttributeDescription(name: "title", type: .string)
        title.defaultValue = .string("Ä title")
        var price = AttributeDescription(name: "price", type: .decimal)
        price.defaultValue = .decimal("-12.50")
        var count = AttributeDescription(name: "count", type: .integer64)
        count.defaultValue = .integer(-7)
        count.userInfo = ["key": "value"]
        note.attributes = [count, price, title]
        note.uniquenessConstraints = [["title"]]
        note.indexes = [
            FetchIndexDescription(name: "byCount", elements: [.init(property: "count", isAscending: false)])
        ]
        note.renamingIdentifier = "Memo"
        let model = try ManagedObjectModel(entities: [note], versionIdentifiers: ["7"])
        let location = try emptyStore(of: model, in: directory)
        let found = try #require(try StoreModel.read(location))
        let cached = try #require(found.cachedModel)
        #expect(cached.entities.map(\.attributes) == model.entities.map(\.attributes))
        #expect(cached.entities.map(\.indexes) == model.entities.map(\.indexes))
        #expect(cached.entities.map(\.renamingIdentifier) == ["Memo"])
        #expect(cached.versionIdentifiers == ["7"])
        #expect(found.metadata.modelChecksum == model.versionChecksum)
        #expect(found.metadata.hashesDigest == model.versionHashesDigest)
        #expect(found.metadata.uuid?.count == 36)
        #expect(try StoreReader.read(location) { $0.header?.journalMode } == .writeAhead)
    }

    @Test func refusesToOverwriteAStore() throws {
        let directory = try TemporaryDirectory()
        let model = try ManagedObjectModel(entities: [EntityDescription(name: "Note")])
        let location = try emptyStore(of: model, in: directory)
        #expect(throws: NewStore.AlreadyExists.self) { try NewStore(at: location) }
        #expect(try location.directory.names() == ["New.sqlite"])
    }

    /// Closing a descriptor of a database drops all of the process's locks on it. So none is closed after the
    /// publication.
    @Test func keepsTheLocksOfAProgramThatOpensTheStoreAtOnce() throws {
        let directory = try TemporaryDirectory()
        let parent = try Directory(directory.path)
        let model = try ManagedObjectModel(entities: [EntityDescription(name: "Note")])
        let name = try #require(StoreName("New.sqlite"))
        var new: NewStore? = try NewStore(at: StoreLocation(directory: parent, name: name))
        try StoreLayout(model).makeStore(at: #require(new).path)
        try new?.publish(writeAhead: false)
        #expect(try parent.names() == ["New.sqlite"])
        let writer = try StoreWriter(directory.path.appending("New.sqlite"))
        try writer.execute("BEGIN IMMEDIATE")
        new = nil
        #expect(!OpenFileLock.isFree("New.sqlite", in: parent))
        try writer.execute("ROLLBACK")
    }

    /// A killed run leaves a lock file that no process holds.
    @Test func removesTheFilesOfAKilledRun() throws {
        let directory = try TemporaryDirectory()
        let parent = try Directory(directory.path)
        let name = try #require(StoreName("New.sqlite"))
        let unfinished = try NewStore(at: StoreLocation(directory: parent, name: name))
        let leftovers = [".groupstore-new-1f", ".groupstore-new-1f-journal", ".groupstore-new-1f-lock"]
        for file in leftovers { try DurableFile.write([], as: #require(.init(file)), in: parent, mode: 0o600) }
        _ = try NewStore(at: StoreLocation(directory: parent, name: #require(StoreName("Other.sqlite"))))
        // The files of a store in creation stay.
        #expect(try Set(parent.names().map(\.string)).isDisjoint(with: leftovers))
        #expect(try parent.status(unfinished.staged.name.database) != nil)
    }

    @Test func removesAnUnpublishedStore() throws {
        let directory = try TemporaryDirectory()
        let name = try #require(StoreName("New.sqlite"))
        let parent = try Directory(directory.path)
        do { _ = try NewStore(at: StoreLocation(directory: parent, name: name)) }
        #expect(try parent.names().isEmpty)
    }
}

@Suite(.enabled(if: RealStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
struct RealStoreCreationTests {
    /// A store created from a real store's model has the same tables, indexes, constraints and triggers, statement for
    /// statement. A store that Core Data migrated may have them in another order, or old ones.
    @Test func createsStoresLikeRealOnes() throws {
        var count = 0
        for path in try RealStores.all() {
            let real = try RealStores.location(path)
            let model = try #require(try StoreModel.read(real)?.cachedModel)
            let directory = try TemporaryDirectory()
            let writer = try StoreWriter(directory.path.appending("New.sqlite"), creating: true)
            try writer.prepareEmptyStore()
            try writer.createStore(StoreLayout(model))
            let query =
                "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND tbl_name NOT IN "
                + "('ACHANGE', 'ATRANSACTION', 'ATRANSACTIONSTRING')"
            var ours: Set<String> = []
            let rows = try writer.prepare(query)
            while try rows.step() { ours.insert(rows.text(0) ?? "") }
            let theirs = try StoreReader.read(real) { reader in
                var found: Set<String> = []
                let rows = try reader.prepare(query)
                while try rows.step() { found.insert(rows.text(0) ?? "") }
                return found
            }
            if ours == theirs { count += 1 }
            let content = try #require(ModelCache.content(of: model))
            #expect(try ModelCache.model(content, of: path).withoutArchivedDefaults == model.withoutArchivedDefaults)
        }
        #expect(count >= 20, "\(count) stores have the same statements")
    }
}

extension ManagedObjectModel {
    /// The entities without defaults of which only the class is known: those can't be archived again.
    fileprivate var withoutArchivedDefaults: [EntityDescription] {
        entities.map { entity in
            var entity = entity
            entity.attributes = entity.attributes.map { attribute in
                var attribute = attribute
                if case .archived? = attribute.defaultValue { attribute.defaultValue = nil }
                return attribute
            }
            return entity
        }
    }
}
