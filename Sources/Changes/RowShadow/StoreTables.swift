import ChangeFeed
import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// The tables of a store, read from its pages without a lock.
package enum StoreTables {
    /// Returns the statements of a store's tables by their names. Returns nil if there is no store, if it is an empty
    /// file, as while another one is copied over it, and if it can't be read now: that says nothing about its tables.
    ///
    /// Throws `RowShadowError.unreadable` and `SystemError`.
    package static func statements(ofStoreAt path: FilePath) throws -> [String: String]? {
        guard let file = path.lastComponent, let name = StoreName(file) else { return nil }
        let hasExactTimes = FileTimes.areExact(in: path.removingLastComponent())
        for attempt in 0..<50 {
            if attempt > 0 { pause(.milliseconds(2)) }
            guard let files = try StoreFiles.current(path.removingLastComponent(), name, unless: nil) else {
                return nil
            }
            do {
                guard let view = try StoreView(files, path: path, hasExactTimes: hasExactTimes) else { continue }
                guard view.pageCount > 0 else { return nil }
                let statements = try statements(in: ViewedPages(view))
                if try view.isConfirmed() { return statements }
            } catch is Disturbed {} catch is Contradiction {}
        }
        return nil
    }

    private static func statements(in state: ViewedPages) throws -> [String: String] {
        guard let format = try state.withPage(1, { PageFormat($0) }) else { throw Contradiction.malformed(page: 1) }
        let tables = try TreeMap.schema(of: state, format).filter { $0.type == "table" }
        return Dictionary(tables.map { ($0.name, $0.sql) }, uniquingKeysWith: { first, _ in first })
    }
}

/// The pages of a view, one by one.
private final class ViewedPages: DatabaseState {
    private let view: StoreView
    private let page: PageCache
    var pageCount: UInt32 { view.pageCount }

    init(_ view: StoreView) {
        self.view = view
        page = PageCache(pageSize: view.pageSize, capacity: 1)
    }

    func withBytes(of number: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        guard number >= 1, number <= pageCount else { throw Contradiction.malformed(page: number) }
        try page.with(number, body) { try view.read(number, into: $0) }
    }
}
