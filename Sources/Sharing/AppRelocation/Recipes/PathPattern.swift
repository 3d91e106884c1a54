import Glibc
import SystemPackage

/// A pattern of paths relative to a directory, as in glob(7): `*`, `?` and `[…]` don't match a slash. With a slash at
/// the end, it matches everything below the directories of that name.
package struct PathPattern: Sendable, Equatable, Codable {
    package let text: String
    private let isDirectory: Bool

    /// Returns nil for a pattern that is absolute, empty, leads outside or can't match anything.
    package init?(_ text: String) {
        guard Self.fault(in: text) == nil else { return nil }
        (self.text, isDirectory) = (text, text.hasSuffix("/"))
    }

    /// Returns the reason why a text is no pattern, as the end of a sentence; nil if it is one.
    package static func fault(in text: String) -> String? {
        guard isInside(text) else { return "is not a pattern of paths in the directory" }
        let components = text.utf8.split(separator: UInt8(ascii: "/")).map(Array.init)
        return components.allSatisfy(hasUsableBrackets)
            ? nil : "has a bracket that isn't closed within its name, or that matches no character"
    }

    /// True for the text of a relative path that stays in its directory.
    package static func isInside(_ text: String) -> Bool {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        return !text.isEmpty && !text.hasPrefix("/") && !parts.dropLast().contains("") && !parts.contains("..")
            && !parts.contains(".") && !text.utf8.contains(0)
    }

    /// True if each bracket expression of a name ends in it, and matches at least one character.
    private static func hasUsableBrackets(_ name: [UInt8]) -> Bool {
        var rest = name[...]
        while let start = rest.firstIndex(of: UInt8(ascii: "[")) {
            guard let end = endOfBrackets(rest[start...]) else { return false }
            let expression = String(decoding: rest[start..<end], as: UTF8.self)
            let isUsable = (1...UInt8.max).contains { byte in
                FilePath(bytes: [byte]).map { matches(expression, $0) } ?? false
            }
            guard isUsable else { return false }
            rest = rest[end...]
        }
        return true
    }

    /// Returns the index behind the bracket expression at the beginning; nil if it has no end (glob(7), regex(7)).
    private static func endOfBrackets(_ bytes: ArraySlice<UInt8>) -> Int? {
        var index = bytes.startIndex + 1
        func byte(_ offset: Int) -> UInt8? { offset < bytes.endIndex ? bytes[offset] : nil }
        if let first = byte(index), [UInt8(ascii: "!"), UInt8(ascii: "^")].contains(first) { index += 1 }
        // The first one stands for itself.
        if byte(index) == UInt8(ascii: "]") { index += 1 }
        while let next = byte(index) {
            if next == UInt8(ascii: "]") { return index + 1 }
            if next == UInt8(ascii: "["), let kind = byte(index + 1),
                [UInt8(ascii: ":"), UInt8(ascii: "."), UInt8(ascii: "=")].contains(kind)
            {
                // [[:alpha:]] and the like.
                let end = bytes[(index + 2)...].indices.first {
                    bytes[$0] == kind && byte($0 + 1) == UInt8(ascii: "]")
                }
                if let end {
                    index = end + 2
                    continue
                }
            }
            index += 1
        }
        return nil
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
