import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// A watched directory whose modify events are suspended, except for a few files.
final class SuspendedDirectory {
    fileprivate let path: FilePath
    fileprivate let directory: Descriptor
    fileprivate let watch: CInt
    fileprivate let mask: UInt32
    fileprivate var files: [CInt] = []

    fileprivate init(_ path: FilePath, _ directory: consuming Descriptor, _ watch: CInt, _ mask: UInt32) {
        self.path = path
        self.directory = directory
        self.watch = watch
        self.mask = mask
    }
}

extension WatchedPaths {
    /// Returns nil if the directory isn't watched.
    func suspendedDirectory(at path: FilePath) -> SuspendedDirectory? {
        guard let (watch, identity, mask) = target(of: path),
            let directory = try? Descriptor(opening: path, flags: gs_o_path | O_DIRECTORY),
            (try? directory.status())?.identity == identity
        else { return nil }
        return SuspendedDirectory(path, directory, watch, mask)
    }

    /// Limits write events to the existing ones of those files. All other events are reported as before. Call
    /// `resumeModifyEvents(in:)` afterwards, even if this fails.
    func suspendModifyEvents(in suspended: SuspendedDirectory, except names: [FilePath.Component]) throws(SystemError) {
        // The files come first, so that no write is missed in between.
        for name in names { try watchFile(name, whileSuspended: suspended) }
        try instance.change(
            suspended.watch, of: suspended.directory, mask: suspended.mask & ~UInt32(IN_MODIFY), path: suspended.path)
    }

    private func watchFile(_ name: FilePath.Component, whileSuspended suspended: SuspendedDirectory) throws(SystemError)
    {
        guard let file = try? Descriptor(opening: suspended.path.appending(name), flags: gs_o_path | O_NOFOLLOW) else {
            return
        }
        let watch = try instance.watch(file, mask: UInt32(IN_MODIFY), path: suspended.path.appending(name))
        // A file with other hard links is watched already.
        guard !files.contains(watch), suspendedFiles[watch] == nil else { return }
        suspendedFiles[watch] = (suspended.watch, name.bytes)
        suspended.files.append(watch)
    }

    /// Resumes all write events. If that fails because this user may no longer read the directory, its paths are no
    /// longer watched.
    func resumeModifyEvents(in suspended: SuspendedDirectory) -> [Notice] {
        defer { for watch in suspended.files { instance.remove(watch) } }
        do throws(SystemError) {
            try instance.change(suspended.watch, of: suspended.directory, mask: suspended.mask, path: suspended.path)
            return []
        } catch {
            let paths = Set(watches[suspended.watch]?.targets.keys.map { $0 } ?? []).union([suspended.path])
            return paths.sorted { $0.string < $1.string }.map { path in
                remove(path)
                return .unwatchable(path, error)
            }
        }
    }
}
