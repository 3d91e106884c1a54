import Glibc
import LinuxSystem
import SQLiteFormat

/// What is recorded of a shadow: where its copy and its log are. The file has it in eight-byte words, the lowest byte
/// first, and a checksum.
struct ShadowState: Equatable {
    static let length = 8 * words
    private static let words = 15
    private static let magic: UInt64 = 0x3153_5753_4F52_5347

    /// A random number that tells this shadow from any that was made before or after it.
    var epoch: UInt64
    /// The number of times that the copy was written. It tells if the redo file is of the next one.
    var serial: UInt64 = 0
    /// The number of the last step; 0 before the first.
    var step: UInt64 = 0
    /// The number of the last row.
    var row: UInt64 = 0
    var pageSize: Int
    var pageCount: UInt32
    /// The number of the first step of the log file that is written.
    var logFile: UInt64 = 1
    /// The offset of the next step there.
    var logEnd: Int64 = 0
    /// The machine's start during which this was written.
    var boot = BootIdentifier.current
    /// True if everything that was written before this is on the disk.
    var isSynced = false
    /// The store's file.
    var identity: FileIdentity

    var bytes: [UInt8] {
        var words: [UInt64] = [
            Self.magic, epoch, step, row, UInt64(pageSize), UInt64(pageCount), logFile, UInt64(logEnd), boot.first,
            boot.second, isSynced ? 1 : 0, identity.device, identity.inode, serial,
        ]
        words.append(Self.checksum(words))
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.length)
        for word in words { withUnsafeBytes(of: word.littleEndian) { bytes.append(contentsOf: $0) } }
        return bytes
    }

    init(epoch: UInt64, pageSize: Int, pageCount: UInt32, identity: FileIdentity) {
        self.epoch = epoch
        self.pageSize = pageSize
        self.pageCount = pageCount
        self.identity = identity
    }

    /// Parses a state. Returns nil if the bytes aren't one.
    init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.length else { return nil }
        let words = bytes.withUnsafeBytes { buffer in
            (0..<Self.words).map { UInt64(littleEndian: buffer.loadUnaligned(fromByteOffset: 8 * $0, as: UInt64.self)) }
        }
        guard words[0] == Self.magic, words[14] == Self.checksum(Array(words[..<14])), words[4] <= 65536,
            let pageCount = UInt32(exactly: words[5]), let logEnd = Int64(exactly: words[7])
        else { return nil }
        (epoch, step, row, self.pageCount, self.logEnd) = (words[1], words[2], words[3], pageCount, logEnd)
        (pageSize, logFile) = (Int(words[4]), words[6])
        boot = BootIdentifier(first: words[8], second: words[9])
        isSynced = words[10] == 1
        identity = FileIdentity(device: words[11], inode: words[12])
        serial = words[13]
    }

    /// Reads the state of the shadow in a directory. Returns nil if there is none that counts. Throws `SystemError`.
    static func current(in directory: Directory) throws(SystemError) -> ShadowState? {
        let bytes = try DurableFile.read(ShadowName.state, in: directory, limit: length)
        return bytes.flatMap { ShadowState($0) }.flatMap { $0.boot == .current || $0.isSynced ? $0 : nil }
    }

    /// FNV-1a over words (http://www.isthe.com/chongo/tech/comp/fnv/): it tells a torn write, not an attack.
    static func checksum(_ words: [UInt64]) -> UInt64 {
        words.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ $1) &* 0x0000_0100_0000_01B3 }
    }
}

/// The identifier that the kernel gives to each start of the machine.
struct BootIdentifier: Equatable {
    let first: UInt64
    let second: UInt64

    /// The present one; zeros if the kernel doesn't tell.
    static let current: BootIdentifier = {
        guard let file = try? Descriptor(opening: "/proc/sys/kernel/random/boot_id", flags: O_RDONLY),
            let bytes = try? file.read(count: 64, at: 0)
        else { return BootIdentifier(first: 0, second: 0) }
        let digits = bytes.filter { $0 != 0x2D && $0 != 0x0A }
        let text = String(decoding: digits, as: UTF8.self)
        return BootIdentifier(
            first: UInt64(text.prefix(16), radix: 16) ?? 0, second: UInt64(text.dropFirst(16), radix: 16) ?? 0)
    }()
}
