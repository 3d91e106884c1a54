import Glibc
import LinuxSystem
import SystemPackage

/// The place of a store's shadows: a directory in which each program that follows the store by itself has one of its
/// own, under a number. Only the user may enter it.
package struct ShadowPlace {
    /// The directory.
    package let path: FilePath
    /// The number of the path's last components that no symbolic link may stand for.
    private let ownComponents: Int
    /// True if the directory that has these components is a group's, which only its owner makes.
    private let isInGroup: Bool

    /// A place of another kind, in a directory that is the caller's.
    package init(path: FilePath) { self.init(path: path, ownComponents: 0) }

    init(path: FilePath, ownComponents: Int, isInGroup: Bool = false) {
        (self.path, self.ownComponents, self.isInGroup) = (path, ownComponents, isInGroup)
    }

    /// The place in the user's state directory.
    ///
    /// - Parameters:
    ///   - store: The absolute path of the database.
    ///   - stateDirectory: `$XDG_STATE_HOME`, or what stands for it.
    package init(of store: FilePath, stateDirectory: FilePath) {
        self.init(
            path: Self.parent(stateDirectory: stateDirectory).appending(Self.name(of: store)), ownComponents: 1)
    }

    /// The directory of the places of all stores in the user's state directory.
    static func parent(stateDirectory: FilePath) -> FilePath {
        stateDirectory.appending("groupstore").appending(groupName)
    }

    /// Returns a directory's name for a store, which no other store of the same file name has.
    ///
    /// - Parameter store: The absolute path of the database.
    package static func name(of store: FilePath) -> FilePath.Component {
        let name = store.lastComponent.map { $0.bytes.prefix(64) } ?? []
        let digits = String(hash(store.bytes), radix: 16)
        return FilePath.Component(bytes: name + Array("-\(digits)".utf8)) ?? "store"
    }

    /// The directory of all shadows of a group's stores, in the group's `.groupstore`.
    package static let groupName: FilePath.Component = "rows"

    /// The place of the agent's shadow of a group's store.
    ///
    /// - Parameters:
    ///   - name: The store's file name.
    ///   - directory: The group's directory.
    package init(of name: FilePath.Component, inGroup directory: FilePath) {
        self.init(path: Self.parent(inGroup: directory).appending(name), ownComponents: 3, isInGroup: true)
    }

    /// The directory of the places of a group's stores.
    static func parent(inGroup directory: FilePath) -> FilePath {
        directory.appending(".groupstore").appending(groupName)
    }

    /// FNV-1a: it keeps stores of the same name apart, whose shadows also name their file.
    private static func hash(_ bytes: [UInt8]) -> UInt64 {
        bytes.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01B3 }
    }

    /// A shadow's directory, which this process alone uses.
    package final class Slot {
        package let directory: Directory
        private let lock: OpenFileLock

        /// True if no other program has a shadow at the place.
        package var isFirst: Bool { directory.path.lastComponent == "0" }

        fileprivate init(_ directory: Directory, _ lock: consuming OpenFileLock) {
            self.directory = directory
            self.lock = lock
        }

        /// Returns true if the shadow is of the file at that path, and not of one that had the path or the inode number
        /// before. Throws `SystemError`.
        package func isShadow(of path: FilePath) throws(SystemError) -> Bool {
            guard let state = try ShadowState.current(in: directory), let name = path.lastComponent,
                FileStatus(following: path)?.identity == state.identity,
                let pages = try directory.status(ShadowName.pages)
            else { return false }
            // They are written with each step, when the file was there.
            return try Directory(path.removingLastComponent()).birth(name).map { $0 <= pages.modified } ?? true
        }

        /// True if the directory still has its path: it was not moved away, with the store or without it.
        package var isInPlace: Bool { FileStatus(following: directory.path)?.identity == directory.identity }

        /// Removes the shadow. Throws `SystemError`.
        package func removeShadow() throws(SystemError) { try directory.removeShadow() }
    }

    private static let slotCount = 64

    /// Opens the place, but not through a symbolic link: what is behind it may be another store's, or no copy at all.
    private func opened() throws(SystemError) -> Directory {
        let components = path.components.suffix(ownComponents)
        let outer = components.reduce(path) { parent, _ in parent.removingLastComponent() }
        var directory = try Directory(outer.isEmpty ? "." : outer)
        for name in components { directory = try directory.directoryWithoutLink(name) }
        return directory
    }

    /// Opens the place. Returns nil if there is none. Throws `SystemError`, also if this user can't know.
    func existing() throws(SystemError) -> Directory? {
        do throws(SystemError) { return try opened() } catch {
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return nil
        }
    }

    /// True if there is such a place. Throws `SystemError`, also if this user can't know.
    package func exists() throws(SystemError) -> Bool { try existing() != nil }

    /// The shadows that are there, the first one first. Throws `SystemError`.
    func directories() throws(SystemError) -> [Directory] {
        guard let base = try existing() else { return [] }
        return try Self.directories(in: base)
    }

    private static func directories(in base: Directory) throws(SystemError) -> [Directory] {
        var found: [Directory] = []
        for number in 0..<slotCount {
            guard let name = FilePath.Component("\(number)"), let kind = try base.status(name)?.kind,
                kind == .directory || kind == .symbolicLink
            else { continue }
            found.append(try base.directoryWithoutLink(name))
        }
        return found
    }

    /// Takes the directory of the shadow with that epoch, else the first one that nobody uses. Throws `SystemError`.
    package func takeSlot(epoch: UInt64?) throws(SystemError) -> Slot {
        // What can't be removed takes space, and nothing else.
        try? removeUnusable()
        do throws(SystemError) { return try findSlot(epoch: epoch) } catch {
            // `removeAll` may have removed the place meanwhile.
            guard error.errno == .noSuchFileOrDirectory else { throw error }
            return try findSlot(epoch: epoch)
        }
    }

    private func findSlot(epoch: UInt64?) throws(SystemError) -> Slot {
        let base = try makeDirectory()
        if let epoch {
            for number in 0..<Self.slotCount {
                guard let name = FilePath.Component("\(number)"), let directory = try? base.directory(name),
                    let bytes = try? DurableFile.read(ShadowName.state, in: directory, limit: ShadowState.length),
                    ShadowState(bytes)?.epoch == epoch
                else { continue }
                if let slot = try Self.awaitSlot(directory) { return slot }
            }
        }
        for number in 0..<Self.slotCount {
            guard let name = FilePath.Component("\(number)") else { continue }
            if try base.status(name) == nil { try base.makeDirectory(name, mode: 0o700) }
            let directory = try base.directory(name)
            if let slot = try Self.slot(directory) { return slot }
        }
        throw SystemError("lock", .resourceTemporarilyUnavailable, path: path)
    }

    /// Locks a shadow's directory, and notes there who has. Returns nil if another program has.
    private static func slot(_ directory: Directory) throws(SystemError) -> Slot? {
        guard let lock = try OpenFileLock(ShadowName.lock, in: directory) else { return nil }
        try lock.write(note: Array("\(getpid()) \(FileHolder.program(of: getpid()))".utf8))
        return Slot(directory, lock)
    }

    /// Waits for a program that was killed and hasn't ended yet. Returns nil if it goes on.
    private static func awaitSlot(_ directory: Directory) throws(SystemError) -> Slot? {
        let deadline = Deadline(after: .seconds(3))
        while true {
            if let slot = try slot(directory) { return slot }
            if deadline.hasPassed { return nil }
            pause(.milliseconds(10))
        }
    }

    /// Removes each shadow that no program uses and that doesn't count: its program ended before the copy was whole, or
    /// the machine before it was synced. Throws `SystemError`.
    package func removeUnusable() throws(SystemError) {
        for directory in try directories() where try directory.hasUnusableShadow() {
            // Held until the files are gone: nobody makes a shadow meanwhile.
            guard let lock = try OpenFileLock(ShadowName.lock, in: directory) else { continue }
            // Its program may have made it count before it let go.
            if try ShadowState.current(in: directory) == nil { try directory.removeShadow() }
            _ = consume lock
        }
    }

    /// What `removeAll` has done.
    package struct Removal: Sendable {
        /// The number of shadows that stay, because programs use them.
        package fileprivate(set) var usedCount = 0
        /// The size in bytes of the files that were removed.
        package fileprivate(set) var bytes: Int64 = 0
    }

    /// Removes every shadow that no program uses.
    ///
    /// Throws `SystemError`: ENOTEMPTY if another program has put something into a shadow's directory.
    package func removeAll() throws(SystemError) -> Removal {
        var removal = Removal()
        guard let base = try existing() else { return removal }
        // Throws for a link before anything is removed.
        let found = try Self.directories(in: base)
        for directory in found {
            guard let name = directory.path.lastComponent else { continue }
            // Held until its file is gone: nobody makes a shadow meanwhile.
            guard let lock = try OpenFileLock(ShadowName.lock, in: directory) else {
                removal.usedCount += 1
                continue
            }
            removal.bytes += try directory.shadowSize()
            try directory.removeShadow()
            try directory.removeFile(ShadowName.lock)
            _ = consume lock
            try base.removeDirectory(name)
        }
        try base.synchronize()
        if removal.usedCount == 0, let name = path.lastComponent {
            let parent = try Directory(path.removingLastComponent())
            do throws(SystemError) { try parent.removeDirectory(name) } catch {
                // Another program has put something there.
                if error.errno != .directoryNotEmpty { throw error }
            }
            try parent.synchronize()
        }
        return removal
    }

    /// Opens the place, and makes what is missing of it. Throws ENOENT if a group's directory is missing: it may have
    /// been moved away for a while, and could not come back to where another one is.
    private func makeDirectory() throws(SystemError) -> Directory {
        var made = FilePath(root: path.root)
        let existing = isInGroup ? path.components.count - ownComponents : 0
        for (index, component) in path.components.enumerated() {
            made.append(component)
            if index < existing || FileStatus(following: made) != nil { continue }
            let status = made.withPlatformString { mkdir($0, 0o700) }
            guard status == 0 || errno == EEXIST else { throw .last("mkdir", path: made) }
        }
        return try opened()
    }
}

extension Directory {
    /// Returns the directory `name` in this one. Throws ELOOP for a symbolic link.
    fileprivate func directoryWithoutLink(_ name: FilePath.Component) throws(SystemError) -> Directory {
        guard try status(name)?.kind != .symbolicLink else {
            throw SystemError("open", .tooManySymbolicLinkLevels, path: path.appending(name))
        }
        return try directory(name)
    }

    /// The size in bytes of a shadow's files.
    func shadowSize() throws(SystemError) -> Int64 {
        var size: Int64 = 0
        for name in try names() where ShadowName.isOwn(name) { size += try status(name)?.size ?? 0 }
        return size
    }

    /// True if there are files of a shadow that doesn't count, and no program is making it.
    func hasUnusableShadow() throws(SystemError) -> Bool {
        guard try ShadowState.current(in: self) == nil, try !isShadowUsed() else { return false }
        return try names().contains(where: ShadowName.isOwn)
    }

    /// Removes a shadow's own files, but the lock. All of it is a copy of the store or told from one: whoever follows
    /// the store gets a reset.
    func removeShadow() throws(SystemError) {
        for name in try names() where ShadowName.isOwn(name) { try removeFile(name) }
    }
}

/// The names of a shadow's files.
enum ShadowName {
    static let state: FilePath.Component = "state"
    static let pages: FilePath.Component = "pages"
    static let sums: FilePath.Component = "sums"
    static let redo: FilePath.Component = "redo"
    static let store: FilePath.Component = "store"
    static let lock: FilePath.Component = "lock"

    /// True for the files of a shadow that are made anew with it.
    static func isOwn(_ name: FilePath.Component) -> Bool {
        [state, pages, sums, redo, store].contains(name) || firstStep(name) != nil
    }

    /// The log file whose first step has that number.
    static func log(_ step: UInt64) -> FilePath.Component {
        let digits = String(step, radix: 16)
        return FilePath.Component("log-" + String(repeating: "0", count: 16 - digits.count) + digits) ?? "log"
    }

    /// The number of a log file's first step; nil for another file.
    static func firstStep(_ name: FilePath.Component) -> UInt64? {
        let text = name.string
        return text.hasPrefix("log-") ? UInt64(text.dropFirst(4), radix: 16) : nil
    }
}
