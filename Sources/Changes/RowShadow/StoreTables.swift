import ChangeFeed
import LinuxSystem
import RowChanges
import SQLiteFormat
import SystemPackage

/// The tables of a store, read from its pages without a lock.
package enum StoreTables {
    /// Returns true if a store keeps a history of its own, Core Data's or groupstore's; nil if that can't be read now.
    ///
    /// Throws `RowShadowError.unreadable` and `SystemError`.
    package static func keepHistory(ofStoreAt path: FilePath) throws -> Bool? {
        try names(ofStoreAt: path).map { $0.contains("GS_HISTORY") || $0.isSuperset(of: ["ACHANGE", "ATRANSACTION"]) }
    }

    /// Returns the names of a store's tables; none if there is no store. Returns nil if it can't be read now.
    ///
    /// Throws `RowShadowError.unreadable` and `SystemError`.
    static func names(ofStoreAt path: FilePath) throws -> Set<String>? {
        guard let file = path.lastComponent, let name = StoreName(file) else { return [] }
        let hasExactTimes = FileTimes.areExact(in: path.removingLastComponent())
        for attempt in 0..<50 {
            if attempt > 0 { pause(.milliseconds(2)) }
            guard let files = try StoreFiles.current(path.removingLastComponent(), name, unless: nil) else { return [] }
            do {
                guard let view = try StoreView(files, path: path, hasExactTimes: hasExactTimes) else { continue }
                let names = try names(in: ViewedPages(view))
                if try view.isConfirmed() { return names }
            } catch is Disturbed {} catch is Contradiction {}
        }
        return nil
    }

    private static func names(in state: ViewedPages) throws -> Set<String> {
        guard state.pageCount > 0 else { return [] }
        guard let format = try state.withPage(1, { PageFormat($0) }) else { throw Contradiction.malformed(page: 1) }
        var names: Set<String> = []
        for entry in try TreeMap.schema(of: state, format) where entry.type == "table" { names.insert(entry.name) }
        return names
    }
}

/// The pages of a view, one by one.
private final class ViewedPages: DatabaseState {
    private let view: StoreView
    private let page: HeldPage
    var pageCount: UInt32 { view.pageCount }

    init(_ view: StoreView) {
        self.view = view
        page = HeldPage(length: view.pageSize)
    }

    func withPage<Result>(_ number: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Result) throws -> Result {
        guard number >= 1, number <= pageCount else { throw Contradiction.malformed(page: number) }
        return try page.with(number, body) { try view.read(number, into: $0) }
    }
}
