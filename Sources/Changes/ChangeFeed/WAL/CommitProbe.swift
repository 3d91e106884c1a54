import CLinux
import Glibc
import LinuxSystem
import SQLiteFormat

/// Finds the next commit of a WAL if it is of the most frequent kind: it wrote nodes of the same trees as the commit
/// before, and nothing else.
///
/// Whatever changes the tree of a page also writes page 1, which counts the pages and the free ones. So the numbers of
/// the written pages determine the tables, and the wal-index has them. The pages themselves are read after the commit
/// was published, when the page map advances and proves the same.
///
/// It holds no references: after a rest of the program, each cache line between a commit and its line costs time.
struct CommitProbe {
    /// The header of a wal-index, as six words of the machine's byte order.
    private typealias Words = (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64)

    enum Finding {
        /// There is no later commit, or it can't be read yet.
        case nothing
        /// There is a commit that wrote the same trees, or any commit if nobody wants to know the tables.
        case repeated(WALPosition, commitCount: UInt32)
        /// There is another commit.
        case other
    }

    /// The index's descriptor. The store's files keep it open.
    private let index: CInt
    private let generation: Int
    /// The index's header at the last known commit.
    private var known: Words
    /// The trees of the commit before, at most four; none if nobody wants to know the tables.
    private let trees: SIMD4<UInt32>
    private let treeCount: Int

    /// The most frames to read: the commit's, and those of commits shortly before it.
    private static let maxFrames = 16

    /// Creates a probe for the commit after `commit`. Returns nil if the index shows another one by now, or if there
    /// are too many trees.
    ///
    /// - Parameter trees: The trees that commits are expected to write; nil if nobody wants to know the tables.
    init?(_ files: StoreFiles, after commit: WALPosition, trees: [Int]?) {
        guard commit.frame > 0, let index = files.walIndex?.raw,
            trees.map({ !$0.isEmpty && $0.count <= 4 }) ?? true, let words = Self.read(index),
            Self.position(words) == commit
        else { return nil }
        self.index = index
        generation = files.generation
        known = words
        self.trees = Self.packed(trees)
        treeCount = trees?.count ?? 0
    }

    /// True if this is the probe that `init` with the same arguments makes.
    func isValid(_ files: StoreFiles, after commit: WALPosition, trees: [Int]?) -> Bool {
        generation == files.generation && Self.position(known) == commit && treeCount == trees?.count ?? 0
            && self.trees == Self.packed(trees)
    }

    private static func packed(_ trees: [Int]?) -> SIMD4<UInt32> {
        var packed = SIMD4<UInt32>(repeating: .max)
        for (place, tree) in (trees ?? []).prefix(4).enumerated() { packed[place] = UInt32(truncatingIfNeeded: tree) }
        return packed
    }

    /// Looks once whether there is a commit, and continues after it if it wrote the same trees.
    ///
    /// - Parameter map: Describes the last known commit. Not needed if nobody wants to know the tables.
    mutating func next(_ map: TableTracker.TrackedMap?) -> Finding {
        guard let found = Self.read(index) else { return .nothing }
        // A commit changes the count and the checksum.
        if found.1 == known.1, found.2 == known.2, found.3 == known.3, found.4 == known.4 { return .nothing }
        let frame = UInt32(truncatingIfNeeded: found.2)
        let knownFrame = UInt32(truncatingIfNeeded: known.2)
        // The version, the byte order and the page size stay. The salt identifies the WAL.
        guard frame > knownFrame, found.0 == known.0, found.1 >> 32 == known.1 >> 32, found.4 == known.4 else {
            return .other
        }
        if treeCount > 0 {
            // The number of pages stays.
            guard found.2 >> 32 == known.2 >> 32, frame - knownFrame <= Self.maxFrames,
                hasSameTrees(Int(frame - knownFrame), after: knownFrame, map)
            else { return .other }
        }
        known = found
        return .repeated(Self.position(found), commitCount: UInt32(truncatingIfNeeded: found.1))
    }

    /// True if all frames are of nodes of exactly the expected trees.
    private func hasSameTrees(_ count: Int, after frame: UInt32, _ map: TableTracker.TrackedMap?) -> Bool {
        var pages = SIMD16<UInt32>.zero
        let length = count * MemoryLayout<UInt32>.size
        guard let map, let offset = WriteAheadIndex.offset(ofPagesAfter: frame, count: count),
            pread(index, &pages, length, offset) == length
        else { return false }
        var written = SIMD4<UInt32>.zero
        for place in 0..<count {
            guard let tree = map.pageMap.treeOfTable(pages[place]) else { return false }
            let places = trees .== SIMD4(repeating: tree)
            guard any(places) else { return false }
            written.replace(with: 1, where: places)
        }
        return written.wrappedSum() == UInt32(treeCount)
    }

    /// Reads the header. Returns nil if the index is being written, or was never.
    private static func read(_ index: CInt) -> Words? {
        var copies: (Words, Words) = ((0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0))
        let length = MemoryLayout.size(ofValue: copies)
        guard pread(index, &copies, length, 0) == length, copies.0 == copies.1 else { return nil }
        let isInitialized = copies.0.1 >> 32 & 0xFF != 0
        return isInitialized ? copies.0 : nil
    }

    private static func position(_ words: Words) -> WALPosition {
        WALPosition(
            salt: words.4, frame: UInt32(truncatingIfNeeded: words.2),
            checksum: FrameChecksum(UInt32(truncatingIfNeeded: words.3), UInt32(truncatingIfNeeded: words.3 >> 32)))
    }
}
