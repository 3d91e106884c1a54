import CLinux
import Glibc
import SystemPackage

/// A regular file that a process has open, as `/proc/PID/fd` shows it (proc(5)).
package struct HeldFile: Equatable, Sendable {
    /// The number of the process's descriptor.
    package let descriptor: Int32
    package let identity: FileIdentity
    /// The file's names; 0 if it has been unlinked.
    package let links: UInt64
    /// The name by which the process opened the file, or to which it was renamed since. It is a path in the mount
    /// namespace of the process, and can be one where nothing is any more.
    package let path: FilePath
    /// True if the descriptor allows writing.
    package let canWrite: Bool

    package init(descriptor: Int32, identity: FileIdentity, links: UInt64 = 1, path: FilePath, canWrite: Bool = true) {
        (self.descriptor, self.identity, self.links) = (descriptor, identity, links)
        (self.path, self.canWrite) = (path, canWrite)
    }
}

extension HeldFile {
    /// Returns the file's creation time in nanoseconds since 1970; nil if the file system doesn't record it, and if the
    /// process no longer has the file open. No lock of this process is dropped, since a descriptor with O_PATH is none
    /// of the file's (open(2)).
    package func birth(of pid: Int32) -> Int64? {
        let path = FilePath("/proc/\(pid)/fd/\(descriptor)")
        guard let file = try? Descriptor(opening: path, flags: gs_o_path) else { return nil }
        return file.birth
    }

    /// Returns the regular files that a process has open, or those of them that are in `files`. Returns none for a
    /// process that has ended or that this one may not inspect.
    package static func of(_ pid: Int32, only files: Set<FileIdentity>? = nil) -> [HeldFile] {
        guard let directory = try? Directory(FilePath("/proc/\(pid)/fd")), let names = try? directory.names() else {
            return []
        }
        return names.compactMap { name in
            guard let status = status(name, in: directory), status.kind == .regular,
                files?.contains(status.identity) != false
            else { return nil }
            return HeldFile(name: name, status, in: directory)
        }
    }

    /// Returns true if one of the process's descriptors leads to such a file, of whatever kind. It costs a system call
    /// a descriptor, and another one if `condition` looks at the path.
    package static func hasFile(_ pid: Int32, where condition: (FileStatus, Link) -> Bool) -> Bool {
        // Without a path for each descriptor: a look goes through those of all processes.
        guard let stream = opendir("/proc/\(pid)/fd") else { return false }
        defer { closedir(stream) }
        while let entry = readdir(stream) {
            guard entry.pointee.d_name.0 != CChar(bitPattern: UInt8(ascii: ".")) else { continue }
            var found = stat()
            let isWanted = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 256) { number in
                    fstatat(dirfd(stream), number, &found, 0) == 0
                        && condition(
                            FileStatus(found), Link(name: number, directory: dirfd(stream), isDead: found.st_nlink == 0)
                        )
                }
            }
            if isWanted { return true }
        }
        return false
    }

    /// Returns true if the process's working directory, or its root, is such a directory.
    package static func hasDirectory(_ pid: Int32, where condition: (FileStatus, Link) -> Bool) -> Bool {
        let process = Glibc.open("/proc/\(pid)", gs_o_path | O_DIRECTORY | O_CLOEXEC)
        guard process >= 0 else { return false }
        defer { close(process) }
        return ["cwd", "root"].contains { name in
            var found = stat()
            return name.withCString { name in
                fstatat(process, name, &found, 0) == 0
                    && condition(
                        FileStatus(found), Link(name: name, directory: process, isDead: found.st_nlink == 0))
            }
        }
    }

    /// The kernel appends this to a name that is gone, also of a file that has another name.
    fileprivate static let mark = Array(" (deleted)".utf8)

    /// The path by which a descriptor's file was opened or to which it was renamed. It is read when it is asked for.
    package struct Link {
        fileprivate let name: UnsafePointer<CChar>
        fileprivate let directory: CInt
        fileprivate let isDead: Bool

        /// The last component.
        package var lastName: [UInt8] {
            withTarget(limit: Int(PATH_MAX) + 16) { target in
                var path = target[...]
                if isDead, path.suffix(HeldFile.mark.count).elementsEqual(HeldFile.mark) {
                    path = path.dropLast(HeldFile.mark.count)
                }
                return Array(path[(path.lastIndex(of: UInt8(ascii: "/")).map { $0 + 1 } ?? path.startIndex)...])
            }
        }

        package func begins(with prefix: [UInt8]) -> Bool {
            withTarget(limit: prefix.count) { $0.elementsEqual(prefix) }
        }

        /// Calls `body` with the target's first bytes, or with none if it can't be read: readlinkat(2) cuts it off.
        private func withTarget<Result>(limit: Int, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
            withUnsafeTemporaryAllocation(byteCount: limit, alignment: 1) { buffer in
                let pointer = buffer.assumingMemoryBound(to: CChar.self).baseAddress
                let count = pointer.map { readlinkat(directory, name, $0, buffer.count) } ?? 0
                return body(UnsafeRawBufferPointer(rebasing: buffer[..<max(0, count)]))
            }
        }
    }

    private init?(name: FilePath.Component, _ status: FileStatus, in directory: Directory) {
        guard let number = Int32(name.string) else { return nil }
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX) + 16)
        let length = name.withPlatformString { readlinkat(directory.raw, $0, &buffer, buffer.count - 1) }
        guard length > 0 else { return nil }
        // A file whose name ends so is still there.
        let text = buffer[..<length].map { UInt8(bitPattern: $0) }
        var path = FilePath(platformString: buffer)
        if text.count > Self.mark.count, text.suffix(Self.mark.count).elementsEqual(Self.mark),
            FileStatus(following: path)?.identity != status.identity
        {
            buffer[length - Self.mark.count] = 0
            path = FilePath(platformString: buffer)
        }
        self.init(
            descriptor: number, identity: status.identity, links: status.links, path: path,
            canWrite: Self.isWritable(name, in: directory))
    }

    private static func status(_ name: FilePath.Component, in directory: Directory) -> FileStatus? {
        var found = stat()
        guard name.withPlatformString({ fstatat(directory.raw, $0, &found, 0) }) == 0 else { return nil }
        return FileStatus(found)
    }

    /// Returns true if the descriptor allows writing: the mode of its link says how the file was opened.
    private static func isWritable(_ name: FilePath.Component, in directory: Directory) -> Bool {
        var link = stat()
        return name.withPlatformString { fstatat(directory.raw, $0, &link, AT_SYMLINK_NOFOLLOW) } == 0
            && link.st_mode & S_IWUSR != 0
    }

    /// Returns true if another process's descriptor is a copy of this one, as a child inherits it.
    package func isShared(by pid: Int32, with other: HeldFile, of otherPID: Int32) -> Bool {
        // Without kcmp(2), by the number: a child's copies have the same.
        let answer = gs_share_description(pid, descriptor, otherPID, other.descriptor)
        return answer < 0 ? descriptor == other.descriptor : answer == 1
    }
}

/// The record locks of fcntl(2) that processes hold, from `/proc/locks` (proc(5)).
package struct RecordLocks: Sendable {
    private struct Holder: Hashable {
        let pid: Int32
        let inode: UInt64
    }

    private let holders: Set<Holder>

    /// Reads the locks. Returns nil if the kernel doesn't tell.
    package init?() {
        guard let text = ProcFile.text("/proc/locks", limit: 1 << 22) else { return nil }
        self.init(text)
    }

    package init(_ text: String) {
        // As bytes, which cost less than characters.
        let lines = Array(text.utf8).split(separator: UInt8(ascii: "\n"))
        holders = Set(
            lines.compactMap { line in
                // `1: POSIX  ADVISORY  READ 708 08:01:2097168 128 128`; `->` marks a process that waits.
                let fields = line.split(separator: UInt8(ascii: " "), maxSplits: 6)
                guard fields.count > 5, fields[1].elementsEqual("POSIX".utf8),
                    let inode = fields[5].split(separator: UInt8(ascii: ":")).last,
                    let pid = Int32(String(decoding: fields[4], as: UTF8.self)),
                    let number = UInt64(String(decoding: inode, as: UTF8.self))
                else { return nil }
                return Holder(pid: pid, inode: number)
            })
    }

    /// Returns true if the process has a lock on a file with this inode number. The device isn't compared: on some file
    /// systems the kernel writes another than stat(2).
    package func has(_ pid: Int32, on file: FileIdentity) -> Bool {
        holders.contains(Holder(pid: pid, inode: file.inode))
    }
}
