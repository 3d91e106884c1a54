import FoundationEssentials
import LinuxSystem
import SystemPackage

/// A path in a record, encoded as a string if its bytes are UTF-8, else as `{"b64": …}`.
package struct StoredPath: Codable, Hashable, Sendable {
    package let path: FilePath

    package init(_ path: FilePath) { self.path = path }

    private enum Key: String, CodingKey {
        case b64
    }

    package init(from decoder: any Decoder) throws {
        let bytes: [UInt8]
        if let text = try? decoder.singleValueContainer().decode(String.self) {
            bytes = Array(text.utf8)
        } else {
            bytes = Array(try decoder.container(keyedBy: Key.self).decode(Data.self, forKey: .b64))
        }
        guard let path = FilePath(bytes: bytes), !path.isEmpty else {
            throw DecodingError.dataCorrupted(.init(codingPath: decoder.codingPath, debugDescription: "not a path"))
        }
        self.path = path
    }

    package func encode(to encoder: any Encoder) throws {
        if let text = path.utf8 {
            var container = encoder.singleValueContainer()
            try container.encode(text)
        } else {
            var container = encoder.container(keyedBy: Key.self)
            try container.encode(Data(path.bytes), forKey: .b64)
        }
    }
}

/// The identifier of one transfer. It appears in the names of the files that the transfer creates, in the journal and
/// in the receipt.
package struct TransferIdentifier: Codable, Hashable, Sendable, CustomStringConvertible {
    package let rawValue: String
    package var description: String { rawValue }

    /// Creates a unique identifier, which sorts after those that were made before: the seconds since 1970, then the
    /// microseconds and 28 random bits as one number of ten digits.
    package init() {
        let time = Date().timeIntervalSince1970
        let part = UInt64((time - time.rounded(.down)) * 1_000_000) << 28 | .random(in: 0..<(1 << 28))
        let digits = String(part, radix: 36)
        rawValue = "\(Int(time))-" + String(repeating: "0", count: 10 - digits.count) + digits
    }

    /// Returns nil unless `init()` could have created it: digits and lower-case letters around one hyphen.
    package init?(_ rawValue: String) {
        let parts = rawValue.split(separator: "-", omittingEmptySubsequences: false)
        let plain = rawValue.utf8.allSatisfy { byte in
            byte == UInt8(ascii: "-") || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
                || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
        }
        guard plain, parts.count == 2, parts.allSatisfy({ !$0.isEmpty }), rawValue.utf8.count <= 40 else { return nil }
        self.rawValue = rawValue
    }

    /// Extracts the identifier from a hidden name that `hiddenName` returned. Returns nil for any other name.
    package init?(hiddenName: FilePath.Component) {
        guard let name = hiddenName.utf8, name.hasPrefix(Self.hiddenPrefix) else { return nil }
        self.init(String(name.dropFirst(Self.hiddenPrefix.count)))
    }

    private static let hiddenPrefix = ".groupstore-"

    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        guard let valid = TransferIdentifier(try container.decode(String.self)) else {
            throw DecodingError.dataCorruptedError(in: container, debugDescription: "not a transfer's identifier")
        }
        self = valid
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(rawValue)
    }

    /// The identifier as a file name. Its characters need no escaping.
    package var component: FilePath.Component { FilePath.Component(rawValue) ?? .currentDirectory }

    /// Returns the name that the database has in its old directory while it is withdrawn.
    package func hiddenName(_ suffix: String = "") -> FilePath.Component {
        FilePath.Component(Self.hiddenPrefix + rawValue + suffix) ?? .currentDirectory
    }
}
