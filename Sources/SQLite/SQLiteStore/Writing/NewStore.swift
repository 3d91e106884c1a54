import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A new store that is built beside its destination and renamed to it when complete. An unpublished one is removed with
/// the last reference.
package final class NewStore {
    package let location: StoreLocation
    private let directory: Directory
    private let temporary: StoreName
    /// A lock held while the store is built. It tells a store under construction from the leftovers of a killed run. It
    /// is on a file of its own, because closing any descriptor of a database drops all of the process's locks on it,
    /// and somebody in this process may open the store as soon as it has its name.
    private let lock: OpenFileLock
    private var isPublished = false

    /// The store's name, or that of one of its parts, exists already.
    package struct AlreadyExists: ActionableError {
        package let path: FilePath

        package var errorCode: String { "exists" }
        package var message: String { "\(PrintablePath(path)): this exists already" }
        package var remedy: String {
            "name another path, or move it away: mv \(path.shellWord) \(path.appending(suffix: ".old").shellWord)"
        }
        package var errorPath: FilePath? { path }
    }

    /// Creates an empty file under a temporary name. Throws `AlreadyExists` or `SystemError`.
    package init(at location: StoreLocation) throws {
        self.location = location
        directory = location.directory
        for name in [location.name.database, location.name.support] + location.name.sideFiles
        where try location.directory.status(name) != nil {
            throw AlreadyExists(path: location.directory.path.appending(name))
        }
        Self.removeLeftovers(in: directory)
        var found: (name: StoreName, lockName: FilePath.Component)?
        var held: OpenFileLock?
        // The lock comes before the file. Another run may mistake a lock that is just being created for a leftover and
        // remove it, so another name is tried.
        for _ in 0..<10 where held == nil {
            let random = String(UInt64.random(in: .min ... .max), radix: 16)
            guard let name = FilePath.Component(Self.prefix + random).flatMap(StoreName.existing),
                let lockName = Self.lockName(of: name)
            else { continue }
            found = (name, lockName)
            held = try OpenFileLock(lockName, in: directory)
        }
        guard let (name, lockName) = found, let lock = held.take() else {
            throw SystemError("fcntl F_OFD_SETLK", .resourceTemporarilyUnavailable, path: directory.path)
        }
        temporary = name
        self.lock = lock
        do {
            _ = try directory.open(name.database, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        } catch {
            try? directory.removeTree(lockName)
            throw error
        }
    }

    private static let prefix = ".groupstore-new-"

    private static func lockName(of name: StoreName) -> FilePath.Component? { name.database.appending("-lock") }

    /// Removes the leftovers of killed runs. Those that can't be removed do no harm.
    private static func removeLeftovers(in directory: Directory) {
        for component in (try? directory.names()) ?? [] {
            let text = component.string
            guard text.hasPrefix(prefix), text.hasSuffix("-lock"),
                let database = FilePath.Component(String(text.dropLast(5))),
                database.string.dropFirst(prefix.count).allSatisfy(\.isHexDigit),
                let name = StoreName.existing(database),
                let lock = try? OpenFileLock(component, in: directory)
            else { continue }
            withExtendedLifetime(lock) { _ in remove(name, from: directory) }
        }
    }

    /// Removes the store, and files that a migration keeps beside it under its name with a suffix.
    private static func remove(_ name: StoreName, from directory: Directory) {
        let database = name.database.string
        let lock = lockName(of: name)
        let beside = ((try? directory.names()) ?? []).filter { component in
            component != lock && component.string.hasPrefix(database)
                && component.string.dropFirst(database.count).first.map { !$0.isHexDigit } ?? false
        }
        // The lock goes last, because the others are found by it.
        for part in beside + [name.support, name.database, lock].compactMap(\.self) { try? directory.removeTree(part) }
    }

    deinit {
        guard !isPublished else { return }
        Self.remove(temporary, from: directory)
    }

    /// The location under construction.
    package var staged: StoreLocation { StoreLocation(directory: directory, name: temporary) }

    /// A path that SQLite accepts, whatever bytes the directory's path contains.
    package var path: FilePath { staged.pathForSQLite }

    /// Syncs the store and renames it, the support folder first. Nobody may have it open. Throws `AlreadyExists` or
    /// `SystemError`.
    package func publish(mode: mode_t = 0o644, writeAhead: Bool) throws {
        try complete(mode: mode, writeAhead: writeAhead)
        do {
            if try directory.status(temporary.support) != nil {
                try directory.rename(temporary.support, to: location.name.support, in: directory, .refuse)
            }
            try directory.rename(temporary.database, to: location.name.database, in: directory, .refuse)
        } catch {
            guard error.errno == .fileExists else { throw error }
            throw AlreadyExists(path: location.path)
        }
        isPublished = true
        if let lock = Self.lockName(of: temporary) { try? directory.removeTree(lock) }
        try directory.synchronize()
    }

    /// The descriptor is closed on return, before anybody has the store open.
    private func complete(mode: mode_t, writeAhead: Bool) throws(SystemError) {
        let file = try directory.open(temporary.database, flags: O_RDWR)
        let raw = file.raw
        // The two bytes that select a write-ahead log (https://sqlite.org/fileformat2.html, §1.3.3).
        try file.write(writeAhead ? [2, 2] : [1, 1], at: 18, path: location.path)
        try retrying("fchmod", path: location.path) { fchmod(raw, mode) }
        try file.synchronize(path: location.path)
    }
}

extension StoreLocation {
    /// A path that leads to the database through the open directory.
    package var pathForSQLite: FilePath {
        let link = FilePath("/proc/self/fd/\(directory.raw)")
        let isThere = link.withPlatformString { access($0, F_OK) } == 0
        return (isThere ? link : directory.path).appending(name.database)
    }
}
