import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The folder of external data that goes with a store by its name (`.NAME_SUPPORT`): its files are as much the store as its
/// rows, and what only they hold is nowhere else.
extension StoreLocation {
    /// Whether each file of the store's folder is in the other store's too, byte for byte.
    func hasExternalDataWithin(_ other: StoreLocation) throws -> Bool {
        try directory.hasFiles(of: name.support, within: other.directory, as: other.name.support)
    }

    /// Whether the database's file is the other one's, byte for byte.
    func hasBytes(of other: StoreLocation) throws -> Bool {
        try directory.hasBytes(of: name.database, in: other.directory, as: other.name.database)
    }

    /// Puts this store on the disk, and of its external data what the other one has too.
    func synchronize(whatIsIn other: StoreLocation) throws {
        for name in [name.database, name.wal, name.journal] where try directory.status(name)?.kind == .regular {
            try directory.open(name, flags: O_RDONLY).synchronize(path: directory.path.appending(name))
        }
        try other.directory.synchronizeFiles(of: other.name.support, within: directory, as: name.support)
        try directory.synchronize()
    }

    /// Another database in the directory whose external data goes by the same name: it differs from this one in the
    /// extension alone.
    func sharerOfExternalData() throws -> FilePath.Component? {
        try directory.names().first { other in
            guard other != name.database, StoreName(other)?.support == name.support,
                try directory.status(other)?.kind == .regular
            else { return false }
            let file = try directory.open(other, flags: O_RDONLY)
            return DatabaseHeader(try file.read(count: 100, at: 0)) != nil
        }
    }

    /// Throws `RelocationFailure` when to take away what goes by the folder's name would take it from another store.
    func checkExternalDataIsItsOwn() throws {
        guard try directory.status(name.support) != nil, let other = try sharerOfExternalData() else { return }
        throw RelocationFailure(
            .badData, code: "shared_support",
            "\(PrintablePath(directory.path.appending(name.support))) is the external data of \(PrintablePath(other)), too",
            remedy: "give one of the two stores another name before the dot, with a folder of its own")
    }

    /// Throws `RelocationFailure` where something is mounted at one of the store's names, or below its folder: a move would
    /// take it along or fail in the middle, and a copy would empty it. Without `andFolder` the folder stays where it is.
    func checkNothingIsMounted(andFolder: Bool = true) throws {
        let folder = andFolder ? [name.support] : []
        for name in [name.database] + name.sideFiles + folder {
            guard let mounted = try directory.mountPoint(within: name) else { continue }
            throw RelocationFailure(
                .unusablePlace, code: "mount_point", "\(PrintablePath(mounted)) is a mount point",
                remedy: "something is mounted there: unmount it, or mount the store's whole directory instead")
        }
    }
}

extension Directory {
    /// Puts the other directory's counterpart of each file under a name on the disk.
    fileprivate func synchronizeFiles(
        of name: FilePath.Component, within other: Directory, as otherName: FilePath.Component
    ) throws {
        guard let kind = try status(name)?.kind, try other.status(otherName)?.kind == kind else { return }
        switch kind {
        case .directory:
            let inside = try directory(name)
            let otherInside = try other.directory(otherName)
            for each in try inside.names() { try inside.synchronizeFiles(of: each, within: otherInside, as: each) }
            try otherInside.synchronize()
        case .regular:
            try other.open(otherName, flags: O_RDONLY).synchronize(path: other.path.appending(otherName))
        case .symbolicLink, .other: break
        }
    }

    /// Whether each file under a name is under the other directory's too. A directory without files loses nothing.
    fileprivate func hasFiles(
        of name: FilePath.Component, within other: Directory?, as otherName: FilePath.Component
    ) throws -> Bool {
        guard let status = try status(name) else { return true }
        let counterpart = try other?.status(otherName)
        switch status.kind {
        case .directory:
            let inside = try directory(name)
            let otherInside = counterpart?.kind == .directory ? try other?.directory(otherName) : nil
            return try inside.names().allSatisfy { try inside.hasFiles(of: $0, within: otherInside, as: $0) }
        case .regular:
            guard let other, counterpart?.kind == .regular else { return false }
            return try hasBytes(of: name, in: other, as: otherName)
        case .symbolicLink, .other: return false
        }
    }

    fileprivate func hasBytes(
        of name: FilePath.Component, in other: Directory, as otherName: FilePath.Component
    ) throws -> Bool {
        let one = try open(name, flags: O_RDONLY)
        let two = try other.open(otherName, flags: O_RDONLY)
        let (path, otherPath) = (self.path.appending(name), other.path.appending(otherName))
        guard try one.status(path: path).size == two.status(path: otherPath).size else { return false }
        let size = 1 << 20
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 2 * size, alignment: 4096)
        defer { buffer.deallocate() }
        let (first, second) = (buffer[..<size], buffer[size...])
        var offset: Int64 = 0
        while true {
            let count = try one.read(into: UnsafeMutableRawBufferPointer(rebasing: first), at: offset, path: path)
            let same = try two.read(into: UnsafeMutableRawBufferPointer(rebasing: second), at: offset, path: otherPath)
            guard count == same, first.prefix(count).elementsEqual(second.prefix(count)) else { return false }
            if count < size { return true }
            offset += Int64(count)
        }
    }
}
