import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// A watched directory of whose files a few are heard of when they are written, and no others.
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
    /// Nil when it isn't watched.
    func restingPlace(_ path: FilePath) -> SuspendedDirectory? {
        guard let (watch, identity, mask) = target(of: path),
            let directory = try? Descriptor(opening: path, flags: gs_o_path | O_DIRECTORY),
            (try? directory.status())?.identity == identity
        else { return nil }
        return SuspendedDirectory(path, directory, watch, mask)
    }

    /// From now on only those files raise events when they are written, of those that are there. All else that happens
    /// in the directory is told as before. `endRest` is to follow, though it fails.
    func beginRest(of place: SuspendedDirectory, hearing names: [FilePath.Component]) throws(SystemError) {
        // First, so that no write falls between.
        for name in names { try hear(name, in: place) }
        try tools.change(place.watch, of: place.directory, mask: place.mask & ~UInt32(IN_MODIFY), path: place.path)
    }

    private func hear(_ name: FilePath.Component, in place: SuspendedDirectory) throws(SystemError) {
        guard let file = try? Descriptor(opening: place.path.appending(name), flags: gs_o_path | O_NOFOLLOW) else {
            return
        }
        let watch = try tools.watch(again: file, mask: UInt32(IN_MODIFY), path: place.path.appending(name))
        // One that has other names is heard of already.
        guard !files.hears(watch), restingFiles[watch] == nil else { return }
        restingFiles[watch] = (place.watch, name.bytes)
        place.files.append(watch)
    }

    /// All writes are told again. Where that fails, since this user may not read the directory any more, nothing that
    /// leads to it is watched.
    func endRest(of place: SuspendedDirectory) -> [Notice] {
        defer { for watch in place.files { tools.end(watch) } }
        do throws(SystemError) {
            try tools.change(place.watch, of: place.directory, mask: place.mask, path: place.path)
            return []
        } catch {
            let paths = Set(watches[place.watch]?.targets.keys.map { $0 } ?? []).union([place.path])
            return paths.sorted { $0.string < $1.string }.map { path in
                remove(path)
                return .unwatchable(path, error)
            }
        }
    }
}
