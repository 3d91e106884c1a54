import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// The folder of external data that belongs to a store by its name (`.NAME_SUPPORT`). Its files are as much part of the
/// store as the rows: nothing else holds their content.
extension StoreLocation {
    /// Returns true if the other store's folder contains each file of this store's folder, byte for byte.
    package func hasExternalDataWithin(_ other: StoreLocation) throws -> Bool {
        try directory.hasFiles(of: name.support, within: other.directory, as: other.name.support)
    }

    /// Returns true if the two database files are equal byte for byte.
    ///
    /// - Parameter ignoringMode: True to leave out the two bytes of a SQLite header that select the journal mode.
    func hasBytes(of other: StoreLocation, ignoringMode: Bool = false) throws -> Bool {
        try directory.hasBytes(
            of: name.database, in: other.directory, as: other.name.database, ignoringMode: ignoringMode)
    }

    /// Syncs this store to disk, and those of its external files that the other store has too.
    func synchronize(sharedWith other: StoreLocation) throws {
        for name in [name.database, name.wal, name.journal] where try directory.status(name)?.kind == .regular {
            try directory.open(name, flags: O_RDONLY).synchronize(path: directory.path.appending(name))
        }
        try other.directory.synchronizeFiles(of: other.name.support, within: directory, as: name.support)
        try directory.synchronize()
    }

    /// Returns another database in the directory that uses the same folder of external data: its name differs in the
    /// extension alone.
    func sharerOfExternalData() throws -> FilePath.Component? {
        try directory.names().first { other in
            guard other != name.database, StoreName.existing(other)?.support == name.support,
                try directory.status(other)?.kind == .regular
            else { return false }
            let file = try directory.open(other, flags: O_RDONLY)
            return DatabaseHeader(try file.read(count: 100, at: 0)) != nil
        }
    }

    /// Throws `RelocationFailure` if the store's folder belongs to another store too, so that moving it would take it
    /// from that store.
    func checkExternalDataIsUnshared() throws {
        guard try directory.status(name.support) != nil, let other = try sharerOfExternalData() else { return }
        throw RelocationFailure(
            .badData, code: "shared_support",
            "\(PrintablePath(directory.path.appending(name.support))) is also the external data of \(PrintablePath(other))",
            remedy: "give one of the two stores another name before the dot, and a folder of its own")
    }

    /// Throws `RelocationFailure` if something is mounted at one of the store's names or below its folder: a rename
    /// would take the mount along or fail midway, and a copy would empty it. Pass false for `includingFolder` if the
    /// folder stays in place.
    func checkNothingIsMounted(includingFolder: Bool = true) throws {
        let folder = includingFolder ? [name.support] : []
        for name in [name.database] + name.sideFiles + folder {
            guard let mounted = try directory.mountPoint(within: name) else { continue }
            throw RelocationFailure(
                .unusablePlace, code: "mount_point", "\(PrintablePath(mounted)) is a mount point",
                remedy: "something is mounted there: unmount it, or mount the store's whole directory instead")
        }
    }
}

/// The files of a folder of external data that another folder lacks.
struct ExternalDataComparison: Equatable {
    let excluded: Set<FileIdentity>
    /// The number of files.
    var files = 0
    /// The names of files that have no counterpart.
    var missing: [FilePath.Component] = []
    /// The path of a file that has a different or an excluded counterpart, or is no file.
    var different: FilePath?

    var isComplete: Bool { missing.isEmpty && different == nil }
}

extension Directory {
    /// Compares a folder of external data with that of a store that may have been written to since.
    ///
    /// - Parameter excluded: Files that are no counterpart of any.
    func compareExternalData(
        _ name: FilePath.Component, with other: StoreLocation, excluding excluded: Set<FileIdentity>
    ) throws -> ExternalDataComparison {
        var found = ExternalDataComparison(excluded: excluded)
        try compareFiles(of: name, within: other.directory, as: other.name.support, &found)
        return found
    }

    /// Compares each file under a name with the other directory's.
    fileprivate func compareFiles(
        of name: FilePath.Component, within other: Directory?, as otherName: FilePath.Component,
        _ found: inout ExternalDataComparison
    ) throws {
        guard let status = try status(name) else { return }
        let counterpart = try other?.status(otherName)
        switch status.kind {
        case .directory:
            let inside = try directory(name)
            let otherInside = counterpart?.kind == .directory ? try other?.directory(otherName) : nil
            for child in try inside.names() {
                try inside.compareFiles(of: child, within: otherInside, as: child, &found)
            }
        case .regular:
            found.files += 1
            guard let other, let counterpart else { return found.missing.append(name) }
            guard counterpart.kind == .regular, !found.excluded.contains(counterpart.identity),
                try hasBytes(of: name, in: other, as: otherName)
            else {
                found.different = path.appending(name)
                return
            }
        case .symbolicLink, .other: found.different = path.appending(name)
        }
    }

    /// Syncs the other directory's counterpart of each file under a name.
    fileprivate func synchronizeFiles(
        of name: FilePath.Component, within other: Directory, as otherName: FilePath.Component
    ) throws {
        guard let kind = try status(name)?.kind, try other.status(otherName)?.kind == kind else { return }
        switch kind {
        case .directory:
            let inside = try directory(name)
            let otherInside = try other.directory(otherName)
            for child in try inside.names() { try inside.synchronizeFiles(of: child, within: otherInside, as: child) }
            try otherInside.synchronize()
        case .regular:
            try other.open(otherName, flags: O_RDONLY).synchronize(path: other.path.appending(otherName))
        case .symbolicLink, .other: break
        }
    }

    /// Returns true if the other directory contains each file under a name too. A directory without files always
    /// matches.
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
        of name: FilePath.Component, in other: Directory, as otherName: FilePath.Component,
        ignoringMode: Bool = false
    ) throws -> Bool {
        let first = try open(name, flags: O_RDONLY)
        let second = try other.open(otherName, flags: O_RDONLY)
        let (path, otherPath) = (self.path.appending(name), other.path.appending(otherName))
        guard try first.status(path: path).size == second.status(path: otherPath).size else { return false }
        let size = 1 << 20
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 2 * size, alignment: 4096)
        defer { buffer.deallocate() }
        let (firstHalf, secondHalf) = (buffer[..<size], buffer[size...])
        var offset: Int64 = 0
        while true {
            let count = try first.read(into: UnsafeMutableRawBufferPointer(rebasing: firstHalf), at: offset, path: path)
            let otherCount = try second.read(
                into: UnsafeMutableRawBufferPointer(rebasing: secondHalf), at: offset, path: otherPath)
            if ignoringMode, offset == 0,
                [firstHalf, secondHalf].allSatisfy({ DatabaseHeader(Array($0.prefix(DatabaseHeader.length))) != nil })
            {
                for half in [firstHalf, secondHalf] {
                    (buffer[half.startIndex + 18], buffer[half.startIndex + 19]) = (1, 1)
                }
            }
            guard count == otherCount, firstHalf.prefix(count).elementsEqual(secondHalf.prefix(count)) else {
                return false
            }
            if count < size { return true }
            offset += Int64(count)
        }
    }
}
