import Glibc
import SystemPackage

/// A pattern of paths relative to a directory, as in glob(7): `*`, `?` and `[…]` don't match a slash. With a slash at
/// the end, it matches everything below the directories of that name.
package struct PathPattern: Sendable, Equatable, Codable {
    package let text: String
    private let isDirectory: Bool

    /// Returns nil for a pattern that is absolute, empty or leads outside.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard !text.isEmpty, !text.hasPrefix("/"), !parts.dropLast().contains(""), !parts.contains(".."),
            !parts.contains(".")
        else { return nil }
        (self.text, isDirectory) = (text, text.hasSuffix("/"))
    }

    package init(from decoder: any Decoder) throws {
        let text = try decoder.singleValueContainer().decode(String.self)
        guard let pattern = PathPattern(text) else {
            throw DecodingError.dataCorrupted(.init(codingPath: decoder.codingPath, debugDescription: "not a pattern"))
        }
        self = pattern
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(text)
    }

    package func matches(_ path: FilePath) -> Bool {
        guard isDirectory else { return Self.matches(text, path) }
        var parent = path.removingLastComponent()
        while !parent.isEmpty {
            if Self.matches(String(text.dropLast()), parent) { return true }
            parent.removeLastComponent()
        }
        return false
    }

    private static func matches(_ pattern: String, _ path: FilePath) -> Bool {
        path.withPlatformString { fnmatch(pattern, $0, FNM_PATHNAME | FNM_NOESCAPE) == 0 }
    }
}
