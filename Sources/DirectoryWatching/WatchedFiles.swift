import CLinux
import Glibc
import LinuxSystem
import SystemPackage

/// Files that are watched by themselves, since they have names outside of their directory.
struct WatchedFiles {
    private struct File: Equatable {
        let directory: FilePath
        let name: FilePath.Component
    }

    /// By the watch of their inode, which two of them may have in common.
    private var files: [CInt: [File]] = [:]

    /// Watches what the name stands for now, and no longer what it stood for.
    mutating func watch(
        _ name: FilePath.Component, in directory: FilePath, isWanted: Bool, _ tools: InotifyTools
    ) throws(SystemError) {
        let wanted = File(directory: directory, name: name)
        for (watch, names) in files where names.contains(wanted) {
            let others = names.filter { $0 != wanted }
            files[watch] = others.isEmpty ? nil : others
            if others.isEmpty { tools.remove(watch) }
        }
        guard isWanted else { return }
        let path = directory.appending(name)
        let file = try Descriptor(opening: path, flags: gs_o_path | O_NOFOLLOW)
        files[try tools.watch(opened: file, mask: UInt32(IN_MODIFY), path: path), default: []].append(wanted)
    }

    /// Watches none of them any more. Some watches may have ended without a word, the library must not be asked.
    mutating func endAll(_ tools: InotifyTools) {
        for watch in files.keys { tools.end(watch) }
        files = [:]
    }

    func hears(_ watch: CInt) -> Bool { files[watch] != nil }

    /// The event as their directories would have had it; nil when it is of no such file.
    mutating func notices(of event: InotifyTools.Event) -> [Notice]? {
        guard let names = files[event.watch] else { return nil }
        guard event.mask & UInt32(IN_IGNORED) == 0 else {
            files[event.watch] = nil
            return nil
        }
        return names.map { .event(DirectoryEvent(directory: $0.directory, name: $0.name, kinds: .modified)) }
    }
}
