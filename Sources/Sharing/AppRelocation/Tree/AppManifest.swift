import Glibc
import LinuxSystem
import SystemPackage

/// The record of the files that were copied and verified. A killed copy goes on from it, and the old files are removed
/// by it.
///
/// It has a line for each file, which is appended after the copy. A kill loses the last lines at most; those files are
/// copied again.
final class AppManifest {
    /// The properties of a file that reveal a later write.
    struct Stamp: Equatable {
        var inode: UInt64
        var size: Int64
        /// Nanoseconds since 1970.
        var modified: Int64
        var changed: Int64

        init(_ status: FileStatus) {
            inode = status.identity.inode
            (size, modified, changed) = (status.size, status.modified, status.changed)
        }

        fileprivate init?(_ fields: ArraySlice<Substring>) {
            let numbers = fields.compactMap { Int64($0) }
            guard numbers.count == 4 else { return nil }
            inode = UInt64(bitPattern: numbers[0])
            (size, modified, changed) = (numbers[1], numbers[2], numbers[3])
        }

        fileprivate var text: String { "\(Int64(bitPattern: inode)) \(size) \(modified) \(changed)" }

        /// True if nobody has written to the file since. A link or a rename changes `changed` only.
        func hasContent(of other: Stamp) -> Bool {
            inode == other.inode && size == other.size && modified == other.modified
        }
    }

    struct Entry: Equatable {
        var source: Stamp
        /// The hash of a file's content, or the target of a symbolic link.
        var content: String
        var copy: Stamp
    }

    private(set) var entries: [FilePath: Entry] = [:]
    /// The copies of stores in which paths were changed, as they were after that.
    private(set) var rewritten: [FilePath: Stamp] = [:]
    private let file: Descriptor
    private let path: FilePath
    private var size: Int64
    private var pending: [UInt8] = []

    static let name: FilePath.Component = "manifest"
    private static let flushSize = 1 << 14

    /// Opens the manifest in a directory, and reads what a killed run has left. With `isNewBoot`, the copies may have
    /// lost content that had not reached the disk, and nothing is taken over.
    init(in directory: Directory, isNewBoot: Bool) throws {
        path = directory.path.appending(Self.name)
        file = try directory.open(Self.name, flags: O_RDWR | O_CREAT, mode: 0o600)
        size = 0
        if isNewBoot { try file.truncate(to: 0, path: path) }
        try read()
    }

    private func read() throws {
        let bytes = try file.read(count: Int(file.status(path: path).size), at: 0, path: path)
        let end = bytes.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
        for line in bytes[..<end].split(separator: 0x0A) {
            let fields = String(decoding: line, as: UTF8.self).split(separator: " ")
            if fields.count == 5, let stamp = Stamp(fields[0..<4]), let path = Self.decoded(fields[4]) {
                rewritten[path] = stamp
                continue
            }
            guard fields.count == 10, let source = Stamp(fields[0..<4]), let copy = Stamp(fields[5..<9]),
                let path = Self.decoded(fields[9])
            else { continue }
            entries[path] = Entry(source: source, content: String(fields[4]), copy: copy)
            rewritten[path] = nil
        }
        size = Int64(end)
    }

    /// Records a copied file.
    func add(_ path: FilePath, _ entry: Entry) throws {
        entries[path] = entry
        rewritten[path] = nil
        pending += "\(entry.source.text) \(entry.content) \(entry.copy.text) \(Self.encoded(path))\n".utf8
        if pending.count >= Self.flushSize { try flush() }
    }

    /// Records the copy of a store in which paths were changed.
    func addRewritten(_ path: FilePath, _ stamp: Stamp) {
        rewritten[path] = stamp
        pending += "\(stamp.text) \(Self.encoded(path))\n".utf8
    }

    /// Writes what was recorded to the file. Syncs nothing.
    func flush() throws {
        try file.write(pending, at: size, path: path)
        size += Int64(pending.count)
        pending = []
    }

    /// Returns the path without the bytes that would end a field.
    static func encoded(_ path: FilePath) -> String {
        path.bytes.map { byte in
            byte > 0x20 && byte < 0x7F && byte != UInt8(ascii: "%")
                ? String(UnicodeScalar(byte)) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }.joined()
    }

    private static func decoded(_ text: Substring) -> FilePath? {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) else { return nil }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return FilePath(bytes: bytes)
    }
}
