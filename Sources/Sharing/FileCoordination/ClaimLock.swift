import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// The lock file of one item, `.groupstore/claims/NAME.lock`. It locks the queue, the item, the item's contents if it
/// is a directory, and the presentations that have it open.
///
/// Each of the four is a *region* of byte ranges. A region has one row per purpose, and each row one byte per writer. A
/// claim locks all rows but its own, shared; a writer also locks its own byte in its own row, exclusively. Two claims
/// thus conflict exactly when one of them writes and their purposes differ. The kernel alone decides this, for any
/// number of processes. A process that may only read the file can still claim reading.
final class ClaimLock: Sendable {
    enum Region: Int64 {
        /// The queue. Waiting writers hold it, so that later readers don't overtake them.
        case queue = 0
        case item = 1
        /// The contents of the item. Claims on items inside it lock it shared; a claim that moves or deletes the item
        /// itself locks it exclusively.
        case contents = 2
        /// Locked shared by a presentation while it has the item open, and exclusively by a claim that asks presenters
        /// to relinquish. The claim thus waits even for a presentation that it can't ask.
        case presented = 3

        private static let bits: Int64 = 60

        fileprivate var range: Range<Int64> {
            rawValue << Self.bits..<(rawValue + 1) << Self.bits
        }
    }

    /// A claim's position in every region.
    struct Slot {
        private static let rowBits: UInt64 = 44
        private static let byteBits: UInt64 = 16
        private let row: Int64
        private let byte: Int64

        /// Without a purpose, the row is a random one of 2^44 that no other claim shares.
        init(purpose: String?) {
            let number = purpose.map { Hash.fnv1a($0.utf8) } ?? UInt64.random(in: 0...UInt64.max)
            row = Int64(number & (1 << Self.rowBits - 1)) << Self.byteBits
            byte = Int64.random(in: 0..<1 << Self.byteBits)
        }

        fileprivate func ownRow(in region: Region) -> Range<Int64> {
            let start = region.range.lowerBound + row
            return start..<start + 1 << Self.byteBits
        }

        fileprivate func ownByte(in region: Region) -> Range<Int64> {
            let start = region.range.lowerBound + row + byte
            return start..<start + 1
        }
    }

    private let locks: RangeLocks
    private let directory: Directory
    private let name: FilePath.Component
    var identity: FileIdentity { locks.identity }

    /// Opens the item's lock file and creates it if missing. Throws `FileCoordinationError` if the file is missing and
    /// can't be created, or if `writes` is true and the process may not write.
    init(_ item: FilePath, in container: GroupContainer, writes: Bool) throws {
        name = Self.name(of: item)
        (directory, locks) = try Self.open(name, item, in: container, writes: writes)
    }

    private static func open(
        _ name: FilePath.Component, _ item: FilePath, in container: GroupContainer, writes: Bool
    ) throws -> (Directory, RangeLocks) {
        do throws(SystemError) {
            let directory = try container.claims()
            let mode = try GroupContainer.fileMode(in: directory)
            let descriptor = try directory.openOwn(name, flags: O_RDWR | O_CREAT, mode: mode)
            return (directory, try RangeLocks(descriptor))
        } catch {
            guard error.isRefusedWriting else { throw error }
            guard !writes, let directory = try container.existingClaims(),
                let descriptor = try? directory.openOwn(name, flags: O_RDONLY)
            else { throw FileCoordinationError.notWritable(container.directory.path, item, writes: writes) }
            return (directory, try RangeLocks(descriptor))
        }
    }

    /// Tries to lock the region. Returns false and holds nothing of it if another claim conflicts.
    func acquire(_ region: Region, slot: Slot, writes: Bool) throws(SystemError) -> Bool {
        let own = slot.ownRow(in: region)
        let others = [region.range.lowerBound..<own.lowerBound, own.upperBound..<region.range.upperBound]
        var isLocked = try locks.lock(.shared, others[0])
        if isLocked { isLocked = try locks.lock(.shared, others[1]) }
        if isLocked, writes { isLocked = try locks.lock(.exclusive, slot.ownByte(in: region)) }
        if !isLocked { release(region) }
        return isLocked
    }

    func release(_ region: Region) { locks.unlock(region.range) }

    /// Returns false if the file was removed or replaced: its locks then protect nothing.
    func isLinked() throws(SystemError) -> Bool { try directory.status(name)?.identity == identity }

    /// Returns the name of an item's lock file: the item's path with every byte except letters, digits, `.`, `_` and
    /// `-` as `%XX`. A path that is too long for a name is cut and ends with a hash. `%root` is the container itself.
    static func name(of item: FilePath) -> FilePath.Component {
        let plain = item.bytes.map { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"):
                String(UnicodeScalar(byte))
            default: "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
            }
        }.joined()
        let text =
            plain.utf8.count <= 240
            ? plain : String(plain.prefix(220)) + "%" + String(Hash.fnv1a(item.bytes), radix: 36)
        return FilePath.Component((text.isEmpty ? "%root" : text) + ".lock") ?? .currentDirectory
    }
}

enum Hash {
    /// Returns the 64-bit FNV-1a hash (http://www.isthe.com/chongo/tech/comp/fnv/). Unlike `Hasher`'s, it is the same
    /// in every process.
    static func fnv1a(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }
}

extension SystemError {
    fileprivate var isRefusedWriting: Bool {
        errno == .permissionDenied || errno == .readOnlyFileSystem || errno == .notPermitted
    }
}
