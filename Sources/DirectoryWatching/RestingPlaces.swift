import CInotifyTools
import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// A watched directory of whose files a few are heard of when they are written, and no others.
final class RestingPlace {
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

extension WatchedPlaces {
    /// From now on only those files raise events when they are written, of those that are there. All else that happens in the
    /// directory is told as before. Nil, and nothing is changed, when it isn't watched.
    func beginRest(of path: FilePath, hearing names: [FilePath.Component]) throws(SystemError) -> RestingPlace? {
        guard let (watch, identity, mask) = target(of: path),
            let directory = try? Descriptor(opening: path, flags: gs_o_path | O_DIRECTORY),
            try directory.status().identity == identity
        else { return nil }
        let place = RestingPlace(path, directory, watch, mask)
        do throws(SystemError) {
            // First, so that no write falls between.
            for name in names { try hear(name, in: place) }
            try tools.change(watch, of: place.directory, mask: mask & ~UInt32(IN_MODIFY), path: path)
        } catch {
            try endRest(of: place)
            throw error
        }
        return place
    }

    private func hear(_ name: FilePath.Component, in place: RestingPlace) throws(SystemError) {
        guard let file = try? Descriptor(opening: place.path.appending(name), flags: gs_o_path | O_NOFOLLOW) else {
            return
        }
        let watch = try tools.watch(again: file, mask: UInt32(IN_MODIFY), path: place.path.appending(name))
        // One that has other names is heard of already.
        guard !files.hears(watch), restingFiles[watch] == nil else { return }
        restingFiles[watch] = (place.watch, name.bytes)
        place.files.append(watch)
    }

    /// All writes are told again.
    func endRest(of place: RestingPlace) throws(SystemError) {
        try tools.change(place.watch, of: place.directory, mask: place.mask, path: place.path)
        for watch in place.files { tools.end(watch) }
    }
}
