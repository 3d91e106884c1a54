import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// The lock file of one item, `.groupstore/claims/NAME.lock`: who reads or writes the item, who stands in line, who
/// is at work inside it when it is a directory, and which presentations have it open.
///
/// Each of the four is a *region* of byte ranges. A region has a row for each purpose and in each row a byte for each
/// writer. Whoever enters locks all rows but its own, shared; a writer also locks its own byte in its own row,
/// exclusively. So two claims are in each other's way exactly when one of them writes and their purposes differ, in
/// any number of processes, with nothing but the kernel to decide it; and a process that may only read the file can
/// still claim reading.
final class ClaimLock: Sendable {
    enum Region: Int64 {
        /// The turnstile: whoever waits to write stands in it, so that readers who come later don't overtake.
        case line = 0
        case item = 1
        /// What is inside the item: entered by all who claim something there, and written by whoever moves or
        /// deletes the item itself.
        case contents = 2
        /// Shared by presentations for as long as they have the item open, written by whoever asks them to let go: a
        /// presentation that can't be asked is waited for.
        case presented = 3

        private static let bits: Int64 = 60

        fileprivate var range: Range<Int64> {
            rawValue << Self.bits..<(rawValue + 1) << Self.bits
        }
    }

    /// Where a claim stands in every region.
    struct Place {
        private static let rowBits: UInt64 = 44
        private static let byteBits: UInt64 = 16
        private let row: Int64
        private let byte: Int64

        /// Without a purpose the row is a random one of 2^44: nobody else's.
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

    /// Opens the item's lock file, making it where it is missing. Throws `FileCoordinationError` where it is missing
    /// and can't be made, or where writing is asked for and not permitted.
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

    /// False when others are in the way; nothing is held of the region then.
    func enter(_ region: Region, _ place: Place, writes: Bool) throws(SystemError) -> Bool {
        let own = place.ownRow(in: region)
        let others = [region.range.lowerBound..<own.lowerBound, own.upperBound..<region.range.upperBound]
        var isIn = try locks.lock(.shared, others[0])
        if isIn { isIn = try locks.lock(.shared, others[1]) }
        if isIn, writes { isIn = try locks.lock(.exclusive, place.ownByte(in: region)) }
        if !isIn { leave(region) }
        return isIn
    }

    func leave(_ region: Region) { locks.unlock(region.range) }

    /// False when the file lost its name, and so protects nothing.
    func isNamed() throws(SystemError) -> Bool { try directory.status(name)?.identity == identity }

    /// The item's path with every byte but letters, digits, `.`, `_` and `-` as `%XX`; what is longer than a name may
    /// be ends in a hash. `%root` is the container itself.
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
    /// FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv/): the same in every process.
    static func fnv1a(_ bytes: some Sequence<UInt8>) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }
}

extension SystemError {
    fileprivate var isRefusedWriting: Bool {
        errno == .permissionDenied || errno == .readOnlyFileSystem || errno == .notPermitted
    }
}
