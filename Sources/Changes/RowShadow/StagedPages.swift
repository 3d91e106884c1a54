import LinuxSystem
import RowChanges
import SystemPackage

/// The later of two states: the pages that differ, in the redo file, over those of the shadow.
///
/// They are written before anything is made of them, so that the later state doesn't change while it is compared, and
/// so that a step that is interrupted can be completed. The file has a head of `headLength` bytes, then for each page
/// its number, in eight bytes, and its content.
final class StagedPages: DatabaseState {
    static let headLength: Int64 = 4096

    private let base: ShadowPages?
    private let file: OwnFile
    let pageSize: Int
    let pageCount: UInt32
    /// The place of each page among those of the file.
    private var places: [UInt32: Int] = [:]
    private var writer: BufferedWriter
    private let page: HeldPage

    /// Begins a state of that size over the shadow. `base` is nil to replace all of it.
    init(over base: ShadowPages?, pageSize: Int, pageCount: UInt32, in file: OwnFile) {
        self.base = base
        self.pageSize = pageSize
        self.pageCount = pageCount
        self.file = file
        page = HeldPage(length: pageSize)
        writer = BufferedWriter(file, at: Self.headLength)
    }

    /// Opens the pages that a completed redo file has.
    init(count: Int, pageSize: Int, pageCount: UInt32, of file: OwnFile) throws {
        base = nil
        self.pageSize = pageSize
        self.pageCount = pageCount
        self.file = file
        page = HeldPage(length: pageSize)
        writer = BufferedWriter(file, at: Self.headLength)
        for place in 0..<count {
            let number = try file.descriptor.read(count: 8, at: offset(place), path: file.path)
            guard number.count == 8 else { throw RowShadowError.damaged(file.path) }
            places[UInt32(truncatingIfNeeded: number.withUnsafeBytes { $0.load(as: UInt64.self) })] = place
        }
    }

    private func offset(_ place: Int) -> Int64 { Self.headLength + Int64(place) * Int64(8 + pageSize) }

    var isEmpty: Bool { places.isEmpty }
    var numbers: some Collection<UInt32> { places.keys }
    var count: Int { places.count }

    /// Adds a page. Each comes once.
    func add(_ number: UInt32, _ bytes: UnsafeRawBufferPointer) throws {
        places[number] = places.count
        try withUnsafeBytes(of: UInt64(number)) { try writer.append($0) }
        try writer.append(bytes)
    }

    /// Writes what was added.
    func finish() throws { try writer.flush() }

    func withPage<Result>(_ number: UInt32, _ body: (UnsafeRawBufferPointer) throws -> Result) throws -> Result {
        guard number >= 1, number <= pageCount else { throw Contradiction.malformed(page: number) }
        guard let place = places[number] else {
            if let base, number <= base.pageCount { return try base.withPage(number, body) }
            // SQLite needn't write a page that a transaction both takes and frees.
            return try withUnsafeTemporaryAllocation(byteCount: pageSize, alignment: 8) {
                $0.initializeMemory(as: UInt8.self, repeating: 0)
                return try body(UnsafeRawBufferPointer($0))
            }
        }
        return try page.with(number, body) { try read(place, into: $0) }
    }

    private func read(_ place: Int, into buffer: UnsafeMutableRawBufferPointer) throws {
        guard try file.descriptor.read(into: buffer, at: offset(place) + 8, path: file.path) == pageSize else {
            throw RowShadowError.damaged(file.path)
        }
    }

    /// Calls `body` with each page in the order of the file.
    func forEach(_ body: (UInt32, UnsafeRawBufferPointer) throws -> Void) throws {
        try withUnsafeTemporaryAllocation(byteCount: pageSize, alignment: 8) { buffer in
            for (number, place) in places.sorted(by: { $0.value < $1.value }) {
                try read(place, into: buffer)
                try body(number, UnsafeRawBufferPointer(buffer))
            }
        }
    }
}
