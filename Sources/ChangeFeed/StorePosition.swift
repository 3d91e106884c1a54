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
    /// The database's stamp, where the WAL has no commit. Nil if a later write could have left it unchanged.
    let stamp: StoreFiles.Stamp?

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
        // Commits and checkpoints never leave the WAL with the same last commit and other content in front of it.
        if commit.frame > 0, commit == later.commit { return .none }
        guard commit == later.commit, changeCounter == later.changeCounter, let stamp,
            // A file that was restored with its times has another time of change.
            stamp == later.stamp, stamp.changed == later.stamp?.changed
        else {
            return .changed
        }
        return .none
    }
}

// MARK: - Text

extension StorePosition: CustomStringConvertible {
    /// The numbers in hexadecimal, separated by periods. Each change has it, so it is made byte by byte.
    package var description: String {
        let content = [
            identity.device, identity.inode, commit.salt, UInt64(commit.frame), UInt64(commit.checksum.first),
            UInt64(commit.checksum.second), changeCounter.map(UInt64.init),
        ]
        let file = [stamp?.size, stamp?.modified, stamp?.changed].map { $0.map(UInt64.init(bitPattern:)) }
        return String(unsafeUninitializedCapacity: 17 * (content.count + file.count)) { bytes in
            var count = 0
            for number in content + file {
                if count > 0 {
                    bytes[count] = UInt8(ascii: ".")
                    count += 1
                }
                guard let number else { continue }
                for place in (0..<max(1, (67 - number.leadingZeroBitCount) / 4)).reversed() {
                    bytes[count] = Self.digits[Int(number >> (4 * UInt64(place)) & 15)]
                    count += 1
                }
            }
            return count
        }
    }

    private static let digits = Array("0123456789abcdef".utf8)

    /// Parses a description. Returns nil for any other text.
    package init?(_ text: some StringProtocol) {
        let fields = text.split(separator: ".", omittingEmptySubsequences: false)
        guard fields.count == 10 else { return nil }
        var numbers: [UInt64?] = []
        for field in fields {
            guard field.isEmpty || UInt64(field, radix: 16) != nil else { return nil }
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
    }
}

extension StoreObserver {
    /// The position of the last finding; nil if there is no readable store. A commit that was not found yet is never
    /// part of it.
    package var position: StorePosition? {
        guard let files, !isUnreadable else { return nil }
        return StorePosition(
            identity: files.identity, commit: baseline.commit, changeCounter: baseline.changeCounter,
            stamp: baseline.commit.frame > 0 ? nil : settledStamp ?? settledIdleStamp ?? openWALStamp(files))
    }

    /// Returns the database's stamp while the WAL is open and has no commit: checkpoints alone write the database then.
    private func openWALStamp(_ files: StoreFiles) -> StoreFiles.Stamp? {
        guard files.walIndex != nil, let stamp = try? files.stamp().whenSettled,
            // A commit since would be found here, and its checkpoint would have changed the stamp.
            let index = try? files.readIndex(), !baseline.isBefore(index), (try? files.isIndexCurrent()) == true
        else { return nil }
        return stamp
    }
}
