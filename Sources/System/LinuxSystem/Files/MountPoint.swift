import CLinux
import Glibc
import SystemPackage

extension Directory {
    /// True if the name itself is a mount point, possibly of a single file. False if it does not exist, or if a system
    /// call filter denies the check.
    package func isMountPoint(_ name: FilePath.Component) throws(SystemError) -> Bool {
        do throws(SystemError) {
            return try retrying("statx", path: path.appending(name)) {
                name.withPlatformString { gs_is_mount_point(raw, $0) }
            } == 1
        } catch {
            switch error.errno {
            case .noSuchFileOrDirectory, .noFunction, .notPermitted: return false
            default: throw error
            }
        }
    }

    /// True if nobody may rename or remove the file, not even root, as chattr(1) says. Not every file system tells.
    package func isImmutable(_ name: FilePath.Component) -> Bool {
        name.withPlatformString { gs_is_immutable(raw, $0) } == 1
    }

    /// Returns a mount point at the name or below it, or nil if there is none. The directory's path must contain no
    /// links.
    package func mountPoint(within name: FilePath.Component) throws(SystemError) -> FilePath? {
        if try isMountPoint(name) { return path.appending(name) }
        guard try status(name)?.kind == .directory else { return nil }
        let prefix = path.appending(name).bytes + [UInt8(ascii: "/")]
        return try MountPoints.all().first { $0.starts(with: prefix) }.flatMap { FilePath(bytes: $0) }
    }
}

/// The mount points that this process sees (`/proc/self/mountinfo` of proc(5)).
enum MountPoints {
    /// Returns their paths. Throws without `/proc`: a directory that is taken for one without mounts would be moved or
    /// removed with what is mounted in it.
    static func all() throws(SystemError) -> [[UInt8]] {
        let file = try Descriptor(opening: "/proc/self/mountinfo", flags: O_RDONLY)
        var text: [UInt8] = []
        while let part = try? file.read(count: 1 << 16, at: Int64(text.count)), !part.isEmpty { text += part }
        return text.split(separator: UInt8(ascii: "\n")).compactMap { line in
            let fields = line.split(separator: UInt8(ascii: " "), maxSplits: 5)
            return fields.count > 4 ? unescaped(fields[4]) : nil
        }
    }

    /// Decodes octal escapes such as `\040`, which stand for spaces and backslashes.
    static func unescaped(_ field: ArraySlice<UInt8>) -> [UInt8] {
        var found: [UInt8] = []
        var remaining = field
        while let byte = remaining.popFirst() {
            let digits = remaining.prefix(3)
            guard byte == UInt8(ascii: "\\"), digits.count == 3, digits.allSatisfy({ (0x30...0x37).contains($0) })
            else {
                found.append(byte)
                continue
            }
            found.append(digits.reduce(0) { $0 &<< 3 | ($1 & 7) })
            remaining = remaining.dropFirst(3)
        }
        return found
    }
}
