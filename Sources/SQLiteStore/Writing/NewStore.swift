import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A store that is made beside its place, whole, and gets its name last. What isn't published goes with the last reference.
package final class NewStore {
    package let location: StoreLocation
    private let directory: Directory
    private let temporary: StoreName
    /// Held as long as the store is made, so that what a killed run left can be told from what is being made. On a file
    /// of its own: closing any descriptor of a database drops all of the process's locks on it, and somebody in this
    /// process may have the store open as soon as it has its name.
    private let lock: OpenFileLock
    private var isPublished = false

    /// There is something at the store's place already, or at that of one of its parts.
    package struct Taken: Error {
        package let path: FilePath
    }

    /// Throws `Taken`, `SystemError`. Makes an empty file that nobody else knows.
    package init(at location: StoreLocation) throws {
        self.location = location
        directory = location.directory
        for name in [location.name.database, location.name.support] + location.name.sideFiles
        where try location.directory.status(name) != nil {
            throw Taken(path: location.directory.path.appending(name))
        }
        Self.removeRemains(in: directory)
        var found: (name: StoreName, lockName: FilePath.Component)?
        var held: OpenFileLock?
        // The lock before the file. Another run may take a lock that is just being made for one that was left: there
        // are other names.
        for _ in 0..<10 where held == nil {
            let random = String(UInt64.random(in: .min ... .max), radix: 16)
            guard let name = FilePath.Component(Self.prefix + random).flatMap(StoreName.init),
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

    /// Removes what killed runs left. What can't be removed is in nobody's way.
    private static func removeRemains(in directory: Directory) {
        for component in (try? directory.names()) ?? [] {
            let text = component.string
            guard text.hasPrefix(prefix), text.hasSuffix("-lock"),
                let database = FilePath.Component(String(text.dropLast(5))),
                database.string.dropFirst(prefix.count).allSatisfy(\.isHexDigit), let name = StoreName(database),
                let lock = try? OpenFileLock(component, in: directory)
            else { continue }
            withExtendedLifetime(lock) { _ in remove(name, from: directory) }
        }
    }

    /// Removes the store, and what a migration keeps beside it under the same name and a suffix.
    private static func remove(_ name: StoreName, from directory: Directory) {
        let database = name.database.string
        let lock = lockName(of: name)
        let beside = ((try? directory.names()) ?? []).filter { component in
            component != lock && component.string.hasPrefix(database)
                && component.string.dropFirst(database.count).first.map { !$0.isHexDigit } ?? false
        }
        // The lock last: by it the rest is found.
        for part in beside + [name.support, name.database, lock].compactMap(\.self) { try? directory.removeTree(part) }
    }

    deinit {
        guard !isPublished else { return }
        Self.remove(temporary, from: directory)
    }

    /// Where it is made.
    package var staged: StoreLocation { StoreLocation(directory: directory, name: temporary) }

    /// A path that SQLite can take, whatever bytes the directory's has.
    package var path: FilePath { staged.pathForSQLite }

    /// Syncs it and gives it its name, the support folder first. Nothing may have it open. Throws `Taken`, `SystemError`.
    package func publish(mode: mode_t = 0o644, writeAhead: Bool) throws {
        try complete(mode: mode, writeAhead: writeAhead)
        do {
            if try directory.status(temporary.support) != nil {
                try directory.rename(temporary.support, to: location.name.support, in: directory, .refuse)
            }
            try directory.rename(temporary.database, to: location.name.database, in: directory, .refuse)
        } catch {
            guard error.errno == .fileExists else { throw error }
            throw Taken(path: location.path)
        }
        isPublished = true
        if let lock = Self.lockName(of: temporary) { try? directory.removeTree(lock) }
        try directory.synchronize()
    }

    /// Closed when this returns: nobody has the store open yet.
    private func complete(mode: mode_t, writeAhead: Bool) throws(SystemError) {
        let file = try directory.open(temporary.database, flags: O_RDWR)
        let raw = file.raw
        // The two bytes say whether SQLite uses a write-ahead log (https://sqlite.org/fileformat2.html, §1.3.3).
        try file.write(writeAhead ? [2, 2] : [1, 1], at: 18, path: location.path)
        try retrying("fchmod", path: location.path) { fchmod(raw, mode) }
        try file.synchronize(path: location.path)
    }
}

extension StoreLocation {
    /// A path that leads to the database through the directory that is held open.
    package var pathForSQLite: FilePath {
        let link = FilePath("/proc/self/fd/\(directory.raw)")
        let isThere = link.withPlatformString { access($0, F_OK) } == 0
        return (isThere ? link : directory.path).appending(name.database)
    }
}
