import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Checks whether stores can be relocated from or to a directory, and watched in it.
package struct DirectoryDiagnosis {
    private let path: FilePath

    package init(_ path: FilePath) { self.path = path }

    private var name: String { PrintablePath(path).description }

    /// Returns the findings. Leaves nothing in the directory.
    package func findings() -> [Finding] {
        do throws(SystemError) {
            let directory = try Directory(path)
            let fileSystem = try directory.fileSystem()
            return [
                try access(directory, fileSystem), Self.reach(fileSystem, name),
                Self.space(fileSystem, name), lease(directory, fileSystem), watch(),
            ].compactMap { $0 }
        } catch {
            return [unreachable(error)]
        }
    }

    private func unreachable(_ error: SystemError) -> Finding {
        switch error.errno {
        case .noSuchFileOrDirectory:
            Finding(
                "directory", .warning, "\(name): does not exist yet; the agent waits for it",
                remedy: "if it should be there: mkdir -p -m 0700 \(path.shellWord)")
        case .permissionDenied, .notPermitted:
            Finding("directory", .problem(.notPermitted), "\(error)", remedy: admission)
        case .notDirectory:
            Finding("directory", .problem(.configuration), "\(name): not a directory", remedy: "name a directory")
        default:
            Finding("directory", .problem(.inputOutput), "\(error)", remedy: "see dmesg or journalctl -k")
        }
    }

    /// The command that lets this user read the directory, or pass the one that is closed above it.
    private var admission: String {
        let closed = UserAccess(.user(geteuid())).firstClosed(above: path)
        return UserAccess.remedy(granting: closed == nil ? "rx" : "x", to: closed ?? path, for: geteuid())
    }

    /// Returns a finding if inotify can't watch the directory; nil if it can, or if no instance is left, which is a
    /// finding of its own.
    private func watch() -> Finding? {
        let instance = inotify_init1(CInt(bitPattern: UInt32(O_CLOEXEC)))
        guard instance >= 0 else { return nil }
        defer { close(instance) }
        do throws(SystemError) {
            _ = try retrying("inotify_add_watch", path: path) {
                path.withPlatformString { inotify_add_watch(instance, $0, UInt32(IN_CREATE | IN_ONLYDIR)) }
            }
            return nil
        } catch {
            let limit = ResourceLimit(error)
            return Finding(
                "watch", .problem(limit == nil ? .notPermitted : .configuration),
                "\(name): can't be watched: \(limit?.message ?? "\(error)")", remedy: limit?.remedy ?? admission)
        }
    }

    private func access(_ directory: Directory, _ fileSystem: FileSystem) throws(SystemError) -> Finding {
        let status = try directory.status()
        let owner = "\(name): owner \(status.owner), mode 0\(String(status.permissions, radix: 8))"
        if fileSystem.isReadOnly {
            return Finding(
                "directory", .problem(.inputOutput), "\(name): on a read-only file system", remedy: "mount it writable")
        }
        guard faccessat(directory.raw, ".", R_OK | W_OK | X_OK, AT_EACCESS) == 0 else {
            return Finding(
                "directory", .problem(.notPermitted), "\(owner); user \(geteuid()) can't write there",
                remedy: status.owner == geteuid()
                    ? UserAccess.remedy(granting: "rwx", to: path, for: geteuid())
                    : "run this as the owner, or grant write permission")
        }
        if status.owner != geteuid(), geteuid() != 0 {
            return Finding(
                "directory", .warning, "\(owner); only a store's owner can lease it, and this is user \(geteuid())",
                remedy: "run the agent as the stores' owner")
        }
        if status.permissions & 0o022 != 0, status.permissions & 0o1000 == 0 {
            return Finding(
                "directory", .warning, "\(owner); others may replace what is in it",
                remedy: "if nobody else needs it: chmod go-w \(path.shellWord)")
        }
        return Finding("directory", .fine, "\(owner), writable")
    }

    /// The code of a file system on which programs can write stores unseen.
    private static let hiddenWriters = "hidden_writers"

    static func reach(_ fileSystem: FileSystem, _ name: String) -> Finding {
        let prefix = "\(name): on \(fileSystem.name)"
        return switch fileSystem.reach {
        case .local: Finding("file_system", .fine, "\(prefix), a local file system")
        case .network:
            Finding(
                "file_system", .problem(.configuration),
                "\(prefix), a network file system: programs on other machines are neither seen nor kept out",
                remedy: "keep shared stores on a local file system", code: hiddenWriters)
        case .userSpace:
            Finding(
                "file_system", .warning, "\(prefix), served by a program: leases and inotify may be missing",
                remedy: "close all programs and relocate with --assume-closed; or use a kernel file system",
                code: hiddenWriters)
        case .overlay:
            Finding(
                "file_system", .warning, "\(prefix): programs that use one of its layers directly aren't seen",
                remedy: "use a volume for shared stores; or relocate with --assume-closed when nobody has them open",
                code: hiddenWriters)
        }
    }

    static func space(_ fileSystem: FileSystem, _ name: String) -> Finding? {
        guard fileSystem.available < 64 << 20 else { return nil }
        return Finding(
            "free_space", .warning, "\(name): \(ByteCount(fileSystem.available)) free",
            remedy: "free space there: a write-ahead log and a copy need some")
    }

    private func lease(_ directory: Directory, _ fileSystem: FileSystem) -> Finding? {
        guard !fileSystem.isReadOnly, faccessat(directory.raw, ".", W_OK | X_OK, AT_EACCESS) == 0 else { return nil }
        do {
            let descriptor = try Self.probe(directory)
            // It may be refused for an instant, and is then retried.
            for _ in 0..<20 {
                if try FileLease(descriptor) != nil {
                    return Finding("lease", .fine, "\(name): a write lease was granted")
                }
                pause(.milliseconds(1))
            }
            return Finding(
                "lease", .problem(.inputOutput), "\(name): a write lease on a new file was refused",
                remedy: "a program opens new files at once, perhaps a virus scanner: exclude this directory from it")
        } catch {
            return Finding(
                "lease", .problem(.inputOutput),
                "\(name): no leases (\(error)), so nothing can prove that a store is closed",
                remedy: "use a local file system, or relocate with --assume-closed when nobody has the store open")
        }
    }

    /// Opens an unnamed file or, if the file system has none, a file that is unlinked at once.
    private static func probe(_ directory: Directory) throws(SystemError) -> Descriptor {
        do throws(SystemError) {
            return try directory.open(.currentDirectory, flags: gs_o_tmpfile | O_RDWR, mode: 0o600)
        } catch {
            let name: FilePath.Component = ".groupstore-doctor"
            // A killed process leaves an empty file. One with content is somebody else's, and the creation fails.
            if let found = try directory.status(name), found.kind == .regular, found.size == 0 {
                try directory.removeFile(name)
            }
            let descriptor = try directory.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
            try directory.removeFile(name)
            return descriptor
        }
    }
}
