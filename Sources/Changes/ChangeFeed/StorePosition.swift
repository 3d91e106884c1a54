import LinuxSystem
import SQLiteFormat

/// The state of a store's content as of the last finding of a `StoreObserver`: what a token keeps, so that a later
/// process can tell whether the store was written since.
package struct StorePosition: Equatable, Sendable {
    /// The database file.
    let identity: FileIdentity
    /// The last commit in the WAL; `none` if there is none.
    let commit: WALPosition
    let changeCounter: UInt32?
    /// The database's stamp. Nil if it isn't known, or if a later write could have left it unchanged and the WAL has no
    /// commit.
    let stamp: StoreFiles.Stamp?
    /// The last frame of the WAL that the database had as of the stamp.
    var checkpointedFrame: UInt32 = 0

    /// The difference between two positions of one path.
    package enum Difference: Sendable {
        /// No transaction was committed in between.
        case none
        /// A transaction may have been committed in between.
        case changed
        /// Another file has the path now.
        case replaced
    }

    package func difference(to later: StorePosition) -> Difference {
        guard identity == later.identity else { return .replaced }
        guard commit == later.commit else { return .changed }
        // Commits and checkpoints never leave the WAL with the same last commit and other content in front of it. But
        // what is behind it may be another file's: `cp` leaves the WAL of a killed program.
        let isCheckpointed = commit.frame > 0 && later.checkpointedFrame > checkpointedFrame
        if isCheckpointed { return .none }
        let isCounted = commit.frame > 0 || changeCounter == later.changeCounter
        return isCounted && stamp?.isIdentical(to: later.stamp) == true ? .none : .changed
    }
}

// MARK: - Text

extension StorePosition: CustomStringConvertible {
    /// The numbers in hexadecimal, separated by periods; `-` for one that isn't known.
    package var description: String {
        var bytes: [UInt8] = []
        write(to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Appends the description's bytes. Each change has them, so they are assembled outside the heap.
    package func write(to bytes: inout [UInt8]) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: HexadecimalText.length(of: 11)) { buffer in
            var text = HexadecimalText(buffer)
            text.append(identity.device)
            text.append(identity.inode)
            text.append(commit.salt)
            text.append(UInt64(commit.frame))
            text.append(UInt64(commit.checksum.first))
            text.append(UInt64(commit.checksum.second))
            text.append(changeCounter.map(UInt64.init))
            text.append(stamp.map { UInt64(bitPattern: $0.size) })
            text.append(stamp.map { UInt64(bitPattern: $0.modified) })
            text.append(stamp.map { UInt64(bitPattern: $0.changed) })
            if checkpointedFrame > 0 { text.append(UInt64(checkpointedFrame)) }
            bytes.append(contentsOf: text.bytes)
        }
    }

    /// Parses a description. Returns nil for any other text.
    package init?(_ text: some StringProtocol) {
        let fields = text.split(separator: ".", omittingEmptySubsequences: false)
        guard fields.count == 10 || fields.count == 11 else { return nil }
        var numbers: [UInt64?] = []
        for field in fields {
            guard field == "-" || UInt64(field, radix: 16) != nil else { return nil }
            numbers.append(UInt64(field, radix: 16))
        }
        guard let device = numbers[0], let inode = numbers[1], let salt = numbers[2],
            let frame = numbers[3].flatMap(UInt32.init(exactly:)),
            let first = numbers[4].flatMap(UInt32.init(exactly:)),
            let second = numbers[5].flatMap(UInt32.init(exactly:))
        else { return nil }
        identity = FileIdentity(device: device, inode: inode)
        commit = WALPosition(salt: salt, frame: frame, checksum: FrameChecksum(first, second))
        changeCounter = numbers[6].flatMap(UInt32.init(exactly:))
        if let size = numbers[7], let modified = numbers[8], let changed = numbers[9] {
            stamp = StoreFiles.Stamp(
                size: Int64(bitPattern: size), modified: Int64(bitPattern: modified),
                changed: Int64(bitPattern: changed))
        } else {
            stamp = nil
        }
        guard fields.count == 11 else { return }
        guard let frame = numbers[10].flatMap(UInt32.init(exactly:)), frame > 0 else { return nil }
        checkpointedFrame = frame
    }
}

/// Numbers in hexadecimal, separated by periods, in a buffer that has room for them.
private struct HexadecimalText {
    private let buffer: UnsafeMutableBufferPointer<UInt8>
    private var count = 0
    private var isEmpty = true

    /// The most bytes that so many numbers take.
    static func length(of numbers: Int) -> Int { 17 * numbers }

    init(_ buffer: UnsafeMutableBufferPointer<UInt8>) { self.buffer = buffer }

    var bytes: UnsafeBufferPointer<UInt8> { UnsafeBufferPointer(rebasing: buffer[..<count]) }

    /// Appends a number; `-` if there is none. One copy of the code is faster than ten after a rest.
    @inline(never) mutating func append(_ number: UInt64?) {
        if !isEmpty { append(UInt8(ascii: ".")) }
        isEmpty = false
        guard let number else { return append(UInt8(ascii: "-")) }
        var shift = max(0, (63 - number.leadingZeroBitCount) / 4 * 4)
        while shift >= 0 {
            let digit = UInt8(truncatingIfNeeded: number >> UInt64(shift) & 15)
            append(digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10)
            shift -= 4
        }
    }

    private mutating func append(_ byte: UInt8) {
        buffer[count] = byte
        count += 1
    }
}

extension StoreObserver {
    /// The position of the last finding; nil if there is no readable store. A commit that was not found yet is never
    /// part of it.
    package var position: StorePosition? {
        guard let files, !isUnreadable else { return nil }
        guard baseline.commit.frame > 0 else {
            return StorePosition(
                identity: files.identity, commit: baseline.commit, changeCounter: baseline.changeCounter,
                stamp: rollbackStamps.settled ?? idle.settledStamp ?? openWALStamp(files))
        }
        // A store in rollback mode may have a WAL left.
        let alone = rollbackStamps.settled ?? (files.walIndex == nil ? idle.stamp : nil)
        let database =
            alone.map { ($0, backfilledFrame(files)) } ?? unloggedWrites.known(in: baseline.commit)
        return StorePosition(
            identity: files.identity, commit: baseline.commit, changeCounter: baseline.changeCounter,
            stamp: database?.0, checkpointedFrame: database?.1 ?? 0)
    }

    /// Returns the last frame of the published commit's WAL that the database has, as the index says; 0 without one. A
    /// later position must not show a checkpoint that was done before this one.
    private func backfilledFrame(_ files: StoreFiles) -> UInt32 {
        guard let index = try? files.readIndex(), index.salt == baseline.commit.salt else { return 0 }
        return index.backfilledFrame
    }

    /// Returns the database's stamp while the store has an index and the WAL no commit: checkpoints alone write the
    /// database then.
    private func openWALStamp(_ files: StoreFiles) -> StoreFiles.Stamp? {
        guard files.walIndex != nil, let state = try? databaseState(files), let stamp = state.stamp.whenSettled,
            // A copy over the store is published before a token has it.
            unloggedWrites.isPublished(state),
            (try? files.isIndexCurrent()) == true
        else { return nil }
        // A commit since would be found here, and its checkpoint would have changed the stamp.
        if let index = state.index { return baseline.isBefore(index) ? nil : stamp }
        // An index that reports nothing may be one that is being written.
        return (try? files.isWALInUse()) == false ? stamp : nil
    }
}
