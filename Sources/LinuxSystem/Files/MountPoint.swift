import CLinux
import Glibc
import SystemPackage

extension Directory {
    /// Whether something is mounted at the name itself, a single file too. False where there is no such name, and where
    /// a filter of system calls forbids the question.
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

    /// A mount point at the name or below it; nil where there is none. The directory must be known by its path without
    /// links.
    package func mountPoint(within name: FilePath.Component) throws(SystemError) -> FilePath? {
        if try isMountPoint(name) { return path.appending(name) }
        guard try status(name)?.kind == .directory else { return nil }
        let place = path.appending(name).bytes + [UInt8(ascii: "/")]
        return MountPoints.all().first { $0.starts(with: place) }.flatMap { FilePath(bytes: $0) }
    }
}

/// What is mounted where, as this process sees it (`/proc/self/mountinfo` of proc(5)).
enum MountPoints {
    /// Their paths; none without `/proc`.
    static func all() -> [[UInt8]] {
        guard let file = try? Descriptor(opening: "/proc/self/mountinfo", flags: O_RDONLY) else { return [] }
        var text: [UInt8] = []
        while let part = try? file.read(count: 1 << 16, at: Int64(text.count)), !part.isEmpty { text += part }
        return text.split(separator: UInt8(ascii: "\n")).compactMap { line in
            let fields = line.split(separator: UInt8(ascii: " "), maxSplits: 5)
            return fields.count > 4 ? unescaped(fields[4]) : nil
        }
    }

    /// Blanks and backslashes are written as `\040`.
    static func unescaped(_ field: ArraySlice<UInt8>) -> [UInt8] {
        var found: [UInt8] = []
        var rest = field
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            guard byte == UInt8(ascii: "\\"), digits.count == 3, digits.allSatisfy({ (0x30...0x37).contains($0) })
            else {
                found.append(byte)
                continue
            }
            found.append(digits.reduce(0) { $0 &<< 3 | ($1 & 7) })
            rest = rest.dropFirst(3)
        }
        return found
    }
}
