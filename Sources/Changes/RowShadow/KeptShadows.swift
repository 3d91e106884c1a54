import LinuxSystem
import SystemPackage

/// The shadows of one store that are on the disk. They are found without a lock, a write, or a look at the store's
/// content.
package struct KeptShadows: Sendable, Equatable {
    /// The directory that has them.
    package let place: FilePath
    /// The absolute path of the store; nil if it isn't recorded.
    package let store: FilePath?
    /// The number of them.
    package let count: Int
    /// The number of those that count for nothing: they weren't completed, and the next program removes them.
    package let unusableCount: Int
    /// The size in bytes of all their files.
    package let size: Int64
    /// The time of the last write, in seconds since 1970.
    package let lastUse: Double
    /// True if a program uses one of them.
    package let isUsed: Bool
    /// True if nothing has the store's name: it was removed, or moved away.
    package let isOrphaned: Bool
    /// Why the place can't be read; the other values are then unknown.
    package let error: SystemError?

    /// The command that removes them.
    package var removal: String {
        store.map { "groupstore rows disable \($0.shellWord)" } ?? "rm -r \(place.shellWord)"
    }

    /// Returns those in the user's state directory. Throws `SystemError`.
    package static func all(stateDirectory: FilePath) throws(SystemError) -> [KeptShadows] {
        try all(in: ShadowPlace(path: ShadowPlace.parent(stateDirectory: stateDirectory)), ofGroup: nil)
    }

    /// Returns those of an agent in a group's directory. Throws `SystemError`, also if this user may not know.
    package static func all(inGroup directory: FilePath) throws(SystemError) -> [KeptShadows] {
        try all(in: ShadowPlace(path: ShadowPlace.parent(inGroup: directory), ownComponents: 2), ofGroup: directory)
    }

    private static func all(in parent: ShadowPlace, ofGroup group: FilePath?) throws(SystemError) -> [KeptShadows] {
        let names: [FilePath.Component]
        do throws(SystemError) { names = try parent.existing()?.names() ?? [] } catch {
            if error.isPermission { throw error }
            return [KeptShadows(parent, of: nil, error)]
        }
        var found: [KeptShadows] = []
        for name in names.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) }) {
            let place = ShadowPlace(path: parent.path.appending(name), ownComponents: 1)
            guard FileStatus(following: place.path)?.kind == .directory else { continue }
            let store = group?.appending(name)
            do throws(SystemError) {
                if let shadows = try KeptShadows(place, of: store) { found.append(shadows) }
            } catch {
                found.append(KeptShadows(place, of: store, error))
            }
        }
        return found
    }

    /// A place that can't be read.
    private init(_ place: ShadowPlace, of store: FilePath?, _ error: SystemError) {
        (self.place, self.store, self.error) = (place.path, store, error)
        (count, unusableCount, size, lastUse, isUsed, isOrphaned) = (0, 0, 0, 0, false, false)
    }

    /// Returns nil if the place has no file of a shadow.
    private init?(_ place: ShadowPlace, of known: FilePath?) throws(SystemError) {
        var store = known
        var (count, unusableCount, size, lastWrite) = (0, 0, Int64(0), Int64(0))
        var isUsed = false
        for directory in try place.directories() {
            let files = try directory.names().filter(ShadowName.isOwn)
            if files.isEmpty { continue }
            count += 1
            for name in files {
                guard let status = try directory.status(name) else { continue }
                size += status.size
                lastWrite = max(lastWrite, status.modified)
            }
            if try directory.isShadowUsed() { isUsed = true }
            if try directory.hasUnusableShadow() { unusableCount += 1 }
            if store == nil { store = try directory.recordedStore() }
        }
        guard count > 0 else { return nil }
        (self.place, self.store, self.size) = (place.path, store, size)
        (self.count, self.unusableCount) = (count, unusableCount)
        lastUse = Double(lastWrite) / 1e9
        self.isUsed = isUsed
        isOrphaned = store.map(Self.isAbsent) ?? false
        error = nil
    }

    /// True if nothing has that name. False if this user can't know.
    private static func isAbsent(_ path: FilePath) -> Bool {
        guard let name = path.lastComponent else { return false }
        do throws(SystemError) { return try Directory(path.removingLastComponent()).status(name) == nil } catch {
            return [.noSuchFileOrDirectory, .notDirectory].contains(error.errno)
        }
    }
}

extension Directory {
    /// True if a program uses the shadow that is here.
    func isShadowUsed() throws(SystemError) -> Bool {
        guard try status(ShadowName.lock) != nil else { return false }
        return !OpenFileLock.isFree(ShadowName.lock, in: self)
    }

    /// The path of the store whose shadow is here, if it is recorded.
    fileprivate func recordedStore() throws(SystemError) -> FilePath? {
        guard let bytes = try DurableFile.read(ShadowName.store, in: self, limit: 1 << 16),
            let path = FilePath(bytes: bytes), path.isAbsolute
        else { return nil }
        return path
    }

    /// Records the path of the store whose shadow is here, unless it is recorded.
    func record(store: FilePath) throws(SystemError) {
        if try DurableFile.read(ShadowName.store, in: self, limit: 1 << 16) == store.bytes { return }
        let file = try OwnFile(ShadowName.store, in: self)
        try file.descriptor.truncate(to: 0, path: file.path)
        try file.descriptor.write(store.bytes, at: 0, path: file.path)
    }
}
