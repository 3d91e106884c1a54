/// One committed state of a database, page by page.
///
/// A class, and without a generic requirement: other modules have the states, and what isn't specialized for them would
/// cost more than the comparison itself.
package protocol DatabaseState: AnyObject {
    /// The database's size in pages; 0 for an empty file.
    var pageCount: UInt32 { get }
    /// Calls `body` once with the bytes of a page, from 1 to `pageCount`. Every page is as long as the others.
    func withBytes(of page: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Void) throws
}

extension DatabaseState {
    /// Returns what `body` makes of the bytes of a page.
    @inline(__always)
    package func withPage<Result>(
        _ page: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
        var result: Result?
        try withBytes(of: page) { result = try body($0) }
        guard let result else { throw Contradiction.malformed(page: page) }
        return result
    }
}

/// The state before a database's first page is written.
final class NoDatabase: DatabaseState {
    var pageCount: UInt32 { 0 }
    func withBytes(of page: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        throw Contradiction.malformed(page: page)
    }
}

/// Why a difference can't be proven. The map that was to be advanced is invalid afterwards.
package enum Contradiction: Error, Equatable {
    /// A page isn't what the link to it says, or lies outside the database.
    case malformed(page: UInt32)
    /// Two links lead to a page.
    case linkedTwice(page: UInt32)
    /// A page that no link leads to any more belongs to a table.
    case unreached(page: UInt32)
    /// The page size, or the space that is reserved on each page, has changed.
    case formatChanged
}
