import Glibc
import LinuxSystem
import SystemPackage

/// The content of a directory tree, byte for byte, for comparison with a later state.
package struct DirectorySnapshot: Equatable, CustomStringConvertible {
    package enum Entry: Equatable {
        case directory(mode: mode_t)
        case file(mode: mode_t, bytes: [UInt8])
        case link(to: [UInt8])
        case other
    }

    /// The entries by path relative to the directory.
    package private(set) var entries: [[UInt8]: Entry] = [:]

    /// Takes a snapshot. `.groupstore` is left out by default, because it is not a program's data.
    package init(_ path: FilePath, withBookkeeping: Bool = false) throws {
        try add(Directory(path), prefix: [], withBookkeeping)
    }

    private mutating func add(_ directory: Directory, prefix: [UInt8], _ withBookkeeping: Bool) throws {
        for name in try directory.names() {
            if name == ".groupstore", !withBookkeeping { continue }
            guard let status = try directory.status(name) else { continue }
            let path = prefix + name.bytes
            switch status.kind {
            case .directory:
                entries[path] = .directory(mode: status.permissions)
                try add(directory.directory(name), prefix: path + [UInt8(ascii: "/")], withBookkeeping)
            case .regular:
                entries[path] = .file(
                    mode: status.permissions, bytes: try Self.bytes(of: directory.path.appending(name)))
            case .symbolicLink:
                entries[path] = .link(to: Self.target(of: directory.path.appending(name)))
            default: entries[path] = .other
            }
        }
    }

    private static func bytes(of path: FilePath) throws -> [UInt8] {
        let file = try Descriptor(opening: path, flags: O_RDONLY)
        return try file.read(count: Int(file.status().size), at: 0, path: path)
    }

    private static func target(of path: FilePath) -> [UInt8] {
        var buffer = [CChar](repeating: 0, count: 4096)
        let count = path.withPlatformString { readlink($0, &buffer, buffer.count) }
        return buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }
    }

    /// The names, for the message of a failed expectation.
    package var description: String {
        entries.keys.map { String(decoding: $0, as: UTF8.self) }.sorted().joined(separator: ", ")
    }
}
