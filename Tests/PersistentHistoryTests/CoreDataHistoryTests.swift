import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import Testing

@testable import PersistentHistory

/// Tests histories that Core Data wrote, in `$GROUPSTORE_REAL_STORES`.
struct CoreDataHistoryTests {
    private static let directory = getenv("GROUPSTORE_REAL_STORES").map { FilePath(String(cString: $0)) }

    private static func stores() throws -> [StoreLocation] {
        var found: [StoreLocation] = []
        var pending = directory.map { [$0] } ?? []
        while let next = pending.popLast() {
            let directory = try Directory(next)
            for name in try directory.names() {
                let path = next.appending(name)
                if FileStatus(following: path)?.kind == .directory { pending.append(path) }
                guard FileStatus(following: path)?.kind == .regular, let store = StoreName(name) else { continue }
                let file = try Descriptor(opening: path, flags: O_RDONLY)
                if try file.read(count: 16, at: 0) == Array("SQLite format 3\0".utf8) {
                    found.append(StoreLocation(directory: directory, name: store))
                }
            }
        }
        return found
    }

    @Test(.enabled(if: directory != nil, "GROUPSTORE_REAL_STORES is not set"))
    func readsEveryStoresHistory() throws {
        var changeCount = 0
        for location in try Self.stores() {
            try StoreReader.read(location) { reader in
                guard let history = try CoreDataHistory(reader) else { return }
                let store = StoreHistory(history)
                let page = try store.changes(after: store.start(), limit: 100_000)
                #expect(try Int64(page.changes.count) == reader.integer("SELECT count(*) FROM ACHANGE"))
                #expect(try page.token == store.current())
                #expect(try store.changes(after: page.token, limit: 1).changes.isEmpty)
                for change in page.changes {
                    #expect(change.entity?.isEmpty == false && change.table.hasPrefix("Z"), "\(location.path)")
                    #expect(change.time > 978_307_200 && change.transaction != nil)
                    if change.operation == .update { #expect(change.columns?.isEmpty == false, "\(location.path)") }
                }
                changeCount += page.changes.count
            }
        }
        #expect(changeCount > 0)
        print("Core Data's history: \(changeCount) changes read")
    }

    @Test func leavesAStoreWithCoreDatasHistoryUnchanged() throws {
        let store = try Fixture(
            """
            CREATE TABLE ATRANSACTION (Z_PK INTEGER PRIMARY KEY, ZTIMESTAMP FLOAT);
            CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, ZCHANGETYPE INTEGER);
            """)
        let schema = try store.schema()
        #expect(try store.enable().kind == .coreData)
        #expect(try HistoryInstallation(store.location).disable().kind == .coreData)
        #expect(try store.schema() == schema)
    }
}
