import LinuxSystem
import SystemPackage

/// A command line argument: text, or a path whose bytes need not be UTF-8.
package struct Word: Sendable, ExpressibleByStringInterpolation, CustomStringConvertible {
    package let bytes: [UInt8]

    package init(bytes: [UInt8]) { self.bytes = bytes }
    package init(_ path: FilePath) { bytes = path.bytes }
    package init(stringLiteral text: String) { bytes = Array(text.utf8) }

    package var description: String { String(decoding: bytes, as: UTF8.self) }

    /// Returns the concatenated bytes of two words, such as `GROUP_ID/` and a file name.
    package static func + (left: Word, right: Word) -> Word { Word(bytes: left.bytes + right.bytes) }
}

extension Word {
    package init(_ name: FilePath.Component) { bytes = name.bytes }
    package init(_ text: String) { bytes = Array(text.utf8) }
}
