import Glibc
import GroupContainers
import LinuxSystem
import SQLiteFormat
import StoreHazards
import SystemPackage

/// A file of a store, open or openable: at a name, or under `/proc/PID/fd`.
struct BranchFile: Equatable, Sendable {
    let path: FilePath
    let identity: FileIdentity

    init(path: FilePath, identity: FileIdentity) { (self.path, self.identity) = (path, identity) }

    init(_ file: HeldFile, of pid: Int32) { self.init(path: file.path(of: pid), identity: file.identity) }

    /// The process has ended or closed the file: nothing is left of it. Or another file has its name, or none.
    struct Lost: Error {}

    /// True for a file of a process, which need not have a name.
    var isHeld: Bool { path.starts(with: "/proc") }

    /// Opens the file. Throws `Lost` for a process that has ended: it has no file, and its number may be another's by
    /// now.
    func open() throws -> Descriptor {
        do {
            let descriptor = try Descriptor(opening: path, flags: O_RDONLY)
            guard try descriptor.status(path: path).identity == identity else { throw Lost() }
            return descriptor
        } catch let error as SystemError where [.noSuchFileOrDirectory, .noSuchProcess].contains(error.errno) {
            throw Lost()
        }
    }

    /// True if the process has ended or closed the file.
    var isLost: Bool {
        do {
            _ = try open()
            return false
        } catch {
            return true
        }
    }

    /// Copies the file, which is open, to a new one that only this user may read.
    ///
    /// - Parameter limit: The number of bytes to copy at most.
    func copy(
        _ source: borrowing Descriptor, as name: FilePath.Component, in directory: Directory, limit: Int64 = .max
    ) throws {
        let target = try directory.open(name, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        var copy = FileCopy(from: path, to: directory.path.appending(name))
        copy.maximumSize = limit
        _ = try copy.run(from: source, to: target)
    }

    /// The last commit that an index reports; nil if the file is no index, or is gone.
    var lastCommit: WriteAheadIndex? {
        // It is written in place, without a lock that readers see.
        for _ in 0..<10 {
            if let found = try? WriteAheadIndex(open()) { return found }
            pause(.milliseconds(1))
        }
        return nil
    }

    /// What identifies the file in a record, also after another one has got its inode.
    var recorded: ArchiveNote.Branch.File {
        // A process that has ended is found out when its files are copied.
        let birth = (try? Descriptor(opening: path, flags: O_RDONLY).birth) ?? nil
        return ArchiveNote.Branch.File(identity: identity, birth: birth)
    }
}

/// An index of a log, with the programs that use it.
package struct BranchIndex: Sendable, CustomStringConvertible {
    let file: BranchFile
    var holders: [FileHolder]

    package var description: String {
        holders.isEmpty ? "the index at the store's name" : "the index of \(holders.list)"
    }
}
