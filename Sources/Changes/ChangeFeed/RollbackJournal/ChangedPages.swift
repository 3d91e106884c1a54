import SQLiteFormat

/// The pages that differ between two states of a store.
final class ChangedPages: PageSource {
    let pageCount: UInt32
    private let pageSize: Int
    private(set) var pages: [UInt32] = []
    private var offsets: [UInt32: Int] = [:]
    private var content: UnsafeMutableRawBufferPointer

    init(pageCount: UInt32, pageSize: Int) {
        self.pageCount = pageCount
        self.pageSize = pageSize
        content = .allocate(byteCount: pageSize * 16, alignment: 8)
    }

    deinit { content.deallocate() }

    func append(_ page: UInt32, _ bytes: UnsafeRawBufferPointer) throws {
        let offset = pages.count * pageSize
        if offset + pageSize > content.count {
            let larger = UnsafeMutableRawBufferPointer.allocate(byteCount: content.count * 2, alignment: 8)
            larger.copyMemory(from: UnsafeRawBufferPointer(content))
            content.deallocate()
            content = larger
        }
        UnsafeMutableRawBufferPointer(rebasing: content[offset..<offset + pageSize]).copyMemory(from: bytes)
        pages.append(page)
        offsets[page] = offset
    }

    func isChanged(_ page: UInt32) -> Bool { offsets[page] != nil }

    func content(of page: UInt32) throws -> UnsafeRawBufferPointer {
        guard let offset = offsets[page] else { throw Unattributable.malformed(page: page) }
        return UnsafeRawBufferPointer(rebasing: content[offset..<offset + pageSize])
    }
}
