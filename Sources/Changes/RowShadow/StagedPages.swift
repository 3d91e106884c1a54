import LinuxSystem
import RowChanges
import SystemPackage

/// The later of two states: the pages that differ, over those of the shadow.
///
/// They are taken before anything is made of them, so that the later state doesn't change while it is compared. Many
/// pages lie in the redo file, from which a step that is interrupted is completed. That file has a head of
/// `headLength` bytes, then for each page its number, in eight bytes, and its content.
final class StagedPages: DatabaseState {
    static let headLength: Int64 = 4096
    /// The bytes from which on pages lie in the file.
    private static let memoryLimit = 1 << 20

    private let base: ShadowPages?
    private let file: OwnFile
    let pageSize: Int
    let pageCount: UInt32
    /// The place of each page among those that were added.
    // All is added before anything is read: no access needs a check.
    @exclusivity(unchecked) private var places: [UInt32: Int] = [:]
    /// The page that was read last, and its place: rows of one page are read one after another.
    @exclusivity(unchecked) private var last: (number: UInt32, place: Int) = (0, 0)
    /// The pages as the file has them, while there are few.
    @exclusivity(unchecked) private var memory: [UInt8] = []
    /// Nil while the pages are in memory.
    @exclusivity(unchecked) private var writer: BufferedWriter?
    private let willSpill: () throws -> Void
    private let page: PageCache

    /// Begins a state of that size over the shadow. `base` is nil to replace all of it.
    ///
    /// - Parameter willSpill: Called before the file is written. It must have no pages that are still needed then.
    init(
        over base: ShadowPages?, pageSize: Int, pageCount: UInt32, in file: OwnFile,
        willSpill: @escaping () throws -> Void
    ) {
        self.base = base
        self.pageSize = pageSize
        self.pageCount = pageCount
        self.file = file
        self.willSpill = willSpill
        page = PageCache(pageSize: pageSize, capacity: 1)
    }

    /// Opens the pages that a completed redo file has.
    convenience init(count: Int, pageSize: Int, pageCount: UInt32, of file: OwnFile) throws {
        self.init(over: nil, pageSize: pageSize, pageCount: pageCount, in: file, willSpill: {})
        writer = BufferedWriter(file, at: offset(count))
        for place in 0..<count {
            let number = try file.descriptor.read(count: 8, at: offset(place), path: file.path)
            guard number.count == 8 else { throw RowShadowError.damaged(file.path) }
            places[UInt32(truncatingIfNeeded: number.withUnsafeBytes { $0.load(as: UInt64.self) })] = place
        }
    }

    private var stride: Int { 8 + pageSize }
    private func offset(_ place: Int) -> Int64 { Self.headLength + Int64(place) * Int64(stride) }

    var isEmpty: Bool { places.isEmpty }
    var numbers: [UInt32] { Array(places.keys) }
    var count: Int { places.count }
    /// True if the pages are in the redo file.
    var isSpilled: Bool { writer != nil }

    func contains(_ number: UInt32) -> Bool { places[number] != nil }

    /// Adds a page. Each comes once.
    func add(_ number: UInt32, _ bytes: UnsafeRawBufferPointer) throws {
        if memory.count + stride > Self.memoryLimit { try spill() }
        places[number] = places.count
        try withUnsafeBytes(of: UInt64(number)) { try append($0) }
        try append(bytes)
    }

    private func append(_ bytes: UnsafeRawBufferPointer) throws {
        if let writer { try writer.append(bytes) } else { memory.append(contentsOf: bytes) }
    }

    /// Writes the pages to the redo file.
    func spill() throws {
        guard writer == nil else { return }
        try willSpill()
        let writer = BufferedWriter(file, at: Self.headLength)
        try memory.withUnsafeBytes { try writer.append($0) }
        memory = []
        self.writer = writer
    }

    /// Writes what was added, if there is much.
    func finish() throws { try writer?.flush() }

    func withBytes(of number: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        guard number >= 1, number <= pageCount else { throw Contradiction.malformed(page: number) }
        guard let place = number == last.number ? last.place : places[number] else {
            if let base, number <= base.pageCount { return try base.withBytes(of: number, body) }
            // SQLite needn't write a page that a transaction both takes and frees.
            return try withUnsafeTemporaryAllocation(byteCount: pageSize, alignment: 8) {
                $0.initializeMemory(as: UInt8.self, repeating: 0)
                try body(UnsafeRawBufferPointer($0))
            }
        }
        last = (number, place)
        guard isSpilled else { return try withHeldPage(place, body) }
        try page.with(number, body) { try read(place, into: $0) }
    }

    private func withHeldPage(_ place: Int, _ body: (UnsafeRawBufferPointer) throws -> Void) throws {
        let start = place * stride + 8
        try memory.withUnsafeBytes { try body(UnsafeRawBufferPointer(rebasing: $0[start..<start + pageSize])) }
    }

    private func read(_ place: Int, into buffer: UnsafeMutableRawBufferPointer) throws {
        guard try file.descriptor.read(into: buffer, at: offset(place) + 8, path: file.path) == pageSize else {
            throw RowShadowError.damaged(file.path)
        }
    }

    /// Calls `body` with each page in the order in which they were added.
    func forEach(_ body: (UInt32, UnsafeRawBufferPointer) throws -> Void) throws {
        try withUnsafeTemporaryAllocation(byteCount: isSpilled ? pageSize : 0, alignment: 8) { buffer in
            for (number, place) in places.sorted(by: { $0.value < $1.value }) {
                guard isSpilled else {
                    try withHeldPage(place) { try body(number, $0) }
                    continue
                }
                try read(place, into: buffer)
                try body(number, UnsafeRawBufferPointer(buffer))
            }
        }
    }
}
