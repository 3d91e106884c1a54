import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Files that are watched individually, because they have names outside of their directory, or none.
struct WatchedFiles {
    private struct File: Equatable {
        let directory: FilePath
        let name: FilePath.Component
    }

    /// The files by the watch of their inode, which two names may share.
    private var files: [CInt: [File]] = [:]

    /// Watches the file that has the name now, and stops watching the one that had it before.
    mutating func watch(
        _ name: FilePath.Component, in directory: FilePath, enabled: Bool, _ instance: any InotifyInstance
    ) throws(SystemError) {
        let file = File(directory: directory, name: name)
        remove(file, instance)
        guard enabled else { return }
        let path = directory.appending(name)
        let descriptor = try Descriptor(opening: path, flags: gs_o_path | O_NOFOLLOW)
        files[try instance.watch(descriptor, mask: UInt32(IN_MODIFY), path: path), default: []].append(file)
    }

    /// Watches an open file, also for closes after writing.
    mutating func watch(
        _ descriptor: borrowing Descriptor, as name: FilePath.Component, in directory: FilePath,
        _ instance: any InotifyInstance
    ) throws(SystemError) {
        let file = File(directory: directory, name: name)
        remove(file, instance)
        let mask = UInt32(IN_MODIFY) | UInt32(IN_CLOSE_WRITE)
        let watch = try instance.watch(descriptor, mask: mask, path: directory.appending(name))
        files[watch, default: []].append(file)
    }

    private mutating func remove(_ file: File, _ instance: any InotifyInstance) {
        for (watch, names) in files where names.contains(file) {
            let others = names.filter { $0 != file }
            files[watch] = others.isEmpty ? nil : others
            if others.isEmpty { instance.remove(watch) }
        }
    }

    /// Stops watching all files. The kernel may have ended some watches without a notice, so this must not go through
    /// the library.
    mutating func endAll(_ instance: any InotifyInstance) {
        for watch in files.keys { instance.remove(watch) }
        files = [:]
    }

    func contains(_ watch: CInt) -> Bool { files[watch] != nil }

    /// Returns the event as their directories would have reported it, or nil if it belongs to none of these files.
    mutating func notices(of event: InotifyEvent) -> [Notice]? {
        guard let names = files[event.watch] else { return nil }
        guard event.mask & UInt32(IN_IGNORED) == 0 else {
            files[event.watch] = nil
            return nil
        }
        let kinds = DirectoryEvent.Kinds(rawValue: event.mask).intersection([.modified, .closedAfterWriting])
        return names.map { .event(DirectoryEvent(directory: $0.directory, name: $0.name, kinds: kinds)) }
    }
}
