import Glibc
import SystemPackage

extension Directory {
    /// Calls `body` for each name in the directory but "." and "..", with the kind and the inode that the directory
    /// records. It asks no file for its status, so it takes a third of a microsecond a file.
    ///
    /// The kind is nil where the file system doesn't record it. The name is valid during the call only, and a
    /// zero byte follows it. Throws `SystemError`, and what `body` throws.
    package func forEachEntry(
        _ body: (_ name: UnsafeBufferPointer<UInt8>, _ kind: FileStatus.Kind?, _ inode: UInt64) throws -> Void
    ) throws {
        var failure: (any Error)?
        try readEntries { name, kind, inode in
            do {
                try body(name, Self.kind(kind), inode)
                return true
            } catch {
                failure = error
                return false
            }
        }
        if let failure { throw failure }
    }

    /// Returns the names in the directory in no particular order, without "." and "..".
    package func names() throws(SystemError) -> [FilePath.Component] {
        var found: [FilePath.Component] = []
        try readEntries { name, _, _ in
            if let component = FilePath.Component(bytes: name) { found.append(component) }
            return true
        }
        return found
    }

    /// Calls `body` for each entry until it returns false.
    private func readEntries(
        _ body: (_ name: UnsafeBufferPointer<UInt8>, _ type: UInt8, _ inode: UInt64) -> Bool
    ) throws(SystemError) {
        let copy = try open(.currentDirectory, flags: O_RDONLY | O_DIRECTORY).release()
        var interruptions = Interruptions()
        var opened = fdopendir(copy)
        while opened == nil, errno == EINTR, interruptions.allowsAnother(at: .now) { opened = fdopendir(copy) }
        guard let stream = opened else {
            let error = SystemError.last("opendir", path: path)
            Glibc.close(copy)
            throw error
        }
        defer { closedir(stream) }
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                if errno != 0 { throw .last("readdir", path: path) }
                return
            }
            let (type, inode) = (entry.pointee.d_type, UInt64(entry.pointee.d_ino))
            let isLast = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: UInt8.self, capacity: 256) { bytes in
                    var length = 0
                    while length < 256, bytes[length] != 0 { length += 1 }
                    let isDots = bytes[0] == UInt8(ascii: ".") && (length == 1 || (length == 2 && bytes[1] == bytes[0]))
                    return !isDots && !body(UnsafeBufferPointer(start: bytes, count: length), type, inode)
                }
            }
            if isLast { return }
        }
    }

    private static func kind(_ type: UInt8) -> FileStatus.Kind? {
        switch Int(type) {
        case DT_UNKNOWN: nil
        case DT_REG: .regular
        case DT_DIR: .directory
        case DT_LNK: .symbolicLink
        default: .other
        }
    }
}
