import Glibc
import SystemPackage

/// A path formatted for people. It is the path itself if that is UTF-8 and `PrintableText` would escape nothing in it.
/// Otherwise each control byte and non-ASCII byte is escaped as `\xNN`.
package struct PrintablePath: CustomStringConvertible, Sendable {
    private let bytes: [UInt8]

    package init(_ path: FilePath) { bytes = path.bytes }
    package init(_ name: FilePath.Component) { bytes = name.bytes }
    package init(bytes: [UInt8]) { self.bytes = bytes }

    package var description: String {
        let plain = String(validating: bytes, as: UTF8.self)
        if let plain, PrintableText.isPlain(plain) { return plain }
        return bytes.map { byte in
            byte < 0x20 || byte >= 0x7F ? "\\x" + Self.hexadecimal(byte) : String(UnicodeScalar(byte))
        }.joined()
    }

    private static func hexadecimal(_ byte: UInt8) -> String {
        let digits = String(byte, radix: 16)
        return digits.count == 1 ? "0" + digits : digits
    }
}

extension FilePath {
    /// The path's bytes, as the kernel sees them.
    package var bytes: [UInt8] {
        withPlatformString { pointer in
            let length = strlen(pointer)
            return pointer.withMemoryRebound(to: UInt8.self, capacity: length) {
                Array(UnsafeBufferPointer(start: $0, count: length))
            }
        }
    }

    /// Returns nil if the bytes contain a NUL, which no path can.
    package init?(bytes: some Sequence<UInt8>) {
        let terminated = bytes.map { CChar(bitPattern: $0) }
        guard !terminated.contains(0) else { return nil }
        self = (terminated + [0]).withUnsafeBufferPointer { buffer in
            buffer.baseAddress.map { FilePath(platformString: $0) } ?? FilePath()
        }
    }

    /// The path as a string, or nil if its bytes are not UTF-8.
    package var utf8: String? { String(validating: bytes, as: UTF8.self) }

    /// Returns the path with `suffix` appended to its name, byte for byte.
    package func appending(suffix: String) -> FilePath {
        FilePath(bytes: bytes + Array(suffix.utf8)) ?? self
    }

    /// Returns the absolute path, without asking the file system.
    package func absolute(in workingDirectory: FilePath) -> FilePath {
        (isAbsolute ? self : workingDirectory.pushing(self)).lexicallyNormalized()
    }
}

extension FilePath {
    /// The path with the directory's own in place of `/proc/self/fd/N`, for messages: a number says nothing once the
    /// directory is closed. The path itself if it doesn't lead through an open directory.
    package var namingItsDirectory: FilePath {
        let parent = removingLastComponent()
        guard starts(with: "/proc/self/fd"), let name = lastComponent, parent.components.count == 4 else { return self }
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = parent.withPlatformString { readlink($0, &buffer, buffer.count - 1) }
        guard count > 0 else { return self }
        return FilePath(platformString: buffer).appending(name)
    }
}

extension FilePath.Component {
    /// The name's bytes, as the kernel sees them.
    package var bytes: [UInt8] { FilePath(root: nil, [self]).bytes }

    /// Returns nil if the bytes are not a single name: if they are empty or contain a slash or a NUL.
    package init?(bytes: some Sequence<UInt8>) {
        let bytes = Array(bytes)
        guard !bytes.isEmpty, !bytes.contains(UInt8(ascii: "/")), let only = FilePath(bytes: bytes)?.lastComponent
        else { return nil }
        self = only
    }

    /// The name as a string, or nil if its bytes are not UTF-8.
    package var utf8: String? { String(validating: bytes, as: UTF8.self) }

    /// Returns the name with `suffix` appended, or nil if that exceeds the 255 bytes that a name may have.
    package func appending(_ suffix: String) -> FilePath.Component? {
        let joined = bytes + Array(suffix.utf8)
        return joined.count > 255 ? nil : FilePath.Component(bytes: joined)
    }
}

extension FilePath {
    /// The path if it is a directory's, else its directory.
    var nearestDirectory: FilePath {
        if FileStatus(following: self)?.kind == .directory { return self }
        let parent = removingLastComponent()
        return parent.isEmpty ? "." : parent
    }

    /// The path as a word of a command line (`ShellText.word`). A leading hyphen is preceded by `./`.
    package var shellWord: String {
        ShellText.word(bytes.first == UInt8(ascii: "-") ? Array("./".utf8) + bytes : bytes)
    }
}

/// Words of a command line for a POSIX shell (bash, dash, ksh, zsh).
package enum ShellText {
    /// Returns the bytes as one word without a character that affects a terminal: plain, in single quotes, or, with
    /// bytes that can't be printed, as the output of `printf`.
    package static func word(_ bytes: [UInt8]) -> String {
        if let text = String(validating: bytes, as: UTF8.self), PrintableText.isPlain(text) {
            let isPlain = !text.isEmpty && text.utf8.allSatisfy { $0 >= 0x80 || Self.isUnquoted($0) }
            return isPlain
                ? text
                : "'"
                    + text.split(separator: "'", omittingEmptySubsequences: false)
                    .joined(separator: "'\\''") + "'"
        }
        // A shell removes the line feeds at the end of a command's output. `$'…'` keeps them, but dash doesn't know it.
        let isOutput = bytes.last != UInt8(ascii: "\n")
        let escaped = bytes.enumerated().map { index, byte in
            if byte == UInt8(ascii: "%") { return isOutput ? "%%" : "%" }
            let isPlain = byte == UInt8(ascii: " ") || Self.isUnquoted(byte)
            // `printf` takes a hyphen at the beginning for an option's.
            if isPlain, index > 0 || byte != UInt8(ascii: "-") { return String(UnicodeScalar(byte)) }
            // Three octal digits: none that follows belongs to the number.
            let digits = String(byte, radix: 8)
            return "\\" + String(repeating: "0", count: 3 - digits.count) + digits
        }.joined()
        return isOutput ? "\"$(printf '\(escaped)')\"" : "$'\(escaped)'"
    }

    private static func isUnquoted(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "/._-+:,@%".utf8.contains(byte)
        }
    }
}
