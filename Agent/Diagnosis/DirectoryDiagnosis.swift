import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Whether stores can be relocated from or to a directory, and watched in it.
package struct DirectoryDiagnosis {
    private let path: FilePath

    package init(_ path: FilePath) { self.path = path }

    private var name: String { PrintablePath(path).description }

    /// Leaves nothing in the directory.
    package func findings() -> [Finding] {
        do throws(SystemError) {
            let directory = try Directory(path)
            let fileSystem = try directory.fileSystem()
            return [
                try access(directory, fileSystem), Self.reach(fileSystem, name),
                Self.space(fileSystem, name), lease(directory, fileSystem),
            ].compactMap { $0 }
        } catch {
            return [unreachable(error)]
        }
    }

    private func unreachable(_ error: SystemError) -> Finding {
        switch error.errno {
        case .noSuchFileOrDirectory:
            Finding(
                "directory", .warning, "\(name): not there yet; the agent waits for it",
                remedy: "if it should be there: mkdir -p -m 0700 DIRECTORY")
        case .permissionDenied, .notPermitted:
            Finding("directory", .problem(.notPermitted), "\(error)", remedy: "run this as the directory's owner")
        case .notDirectory:
            Finding("directory", .problem(.configuration), "\(name): not a directory", remedy: "name a directory")
        default:
            Finding("directory", .problem(.inputOutput), "\(error)", remedy: "see dmesg or journalctl -k")
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
                remedy: "run this as the owner, or grant write permission")
        }
        if status.owner != geteuid(), geteuid() != 0 {
            return Finding(
                "directory", .warning, "\(owner); a lease on a store takes its owner, and this is user \(geteuid())",
                remedy: "run the agent as the stores' owner")
        }
        if status.permissions & 0o022 != 0, status.permissions & 0o1000 == 0 {
            return Finding(
                "directory", .warning, "\(owner); others may replace what is in it",
                remedy: "if nobody else needs it: chmod go-w DIRECTORY")
        }
        return Finding("directory", .fine, "\(owner), writable")
    }

    static func reach(_ fileSystem: FileSystem, _ name: String) -> Finding {
        let place = "\(name): on \(fileSystem.name)"
        return switch fileSystem.reach {
        case .local: Finding("file_system", .fine, "\(place), of this machine")
        case .network:
            Finding(
                "file_system", .problem(.configuration),
                "\(place), a network file system: other machines' programs are neither seen nor held off",
                remedy: "keep shared stores on a file system of this machine")
        case .userSpace:
            Finding(
                "file_system", .warning, "\(place), served by a program: leases and inotify may be missing",
                remedy: "close all programs and relocate with --assume-closed; or use a file system of the kernel's")
        case .overlay:
            Finding(
                "file_system", .warning, "\(place): whoever uses one of its layers directly isn't seen",
                remedy: "use a volume for shared stores; or relocate with --assume-closed when nobody has them open")
        }
    }

    static func space(_ fileSystem: FileSystem, _ name: String) -> Finding? {
        guard fileSystem.available < 64 << 20 else { return nil }
        return Finding(
            "free_space", .warning, "\(name): \(fileSystem.available) bytes free",
            remedy: "free space there: a write-ahead log and a copy need some")
    }

    private func lease(_ directory: Directory, _ fileSystem: FileSystem) -> Finding? {
        guard !fileSystem.isReadOnly, faccessat(directory.raw, ".", W_OK | X_OK, AT_EACCESS) == 0 else { return nil }
        do {
            let descriptor = try Self.probe(directory)
            // It may be refused for an instant; then again.
            for _ in 0..<20 {
                if try FileLease(descriptor) != nil {
                    return Finding("lease", .fine, "\(name): a write lease was granted")
                }
                pause(.milliseconds(1))
            }
            return Finding(
                "lease", .problem(.inputOutput), "\(name): a write lease on a new file was refused",
                remedy: "something opens new files at once, a virus scanner perhaps: except this directory")
        } catch {
            return Finding(
                "lease", .problem(.inputOutput),
                "\(name): no leases (\(error)), so it can't be proved that a store is closed",
                remedy: "use a local file system, or relocate with --assume-closed when nobody has the store open")
        }
    }

    /// A file without a name; where there is no such thing, one that loses its name at once.
    private static func probe(_ directory: Directory) throws(SystemError) -> Descriptor {
        do throws(SystemError) {
            return try directory.open(.currentDirectory, flags: gs_o_tmpfile | O_RDWR, mode: 0o600)
        } catch {
            let name: FilePath.Component = ".groupstore-doctor"
            try directory.removeFile(name)
            let descriptor = try directory.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
            try directory.removeFile(name)
            return descriptor
        }
    }
}
