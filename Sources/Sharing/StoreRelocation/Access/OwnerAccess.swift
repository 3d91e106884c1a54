import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// The access that a file's owner needs at a new place. Root can move a file to where its owner can't reach it, or
/// can't make a journal beside it.
package struct OwnerAccess {
    /// A directory that keeps the owner out.
    package struct Obstacle: Equatable, Sendable {
        package let owner: uid_t
        package let closed: FilePath
        /// The directory that the owner has to write to, or to reach.
        package let target: FilePath
        /// The group's records, if the owner can't write to them either: the command that lets the owner in.
        let recordsCommand: String?

        /// The sentence's end after the owner: "can't write to …".
        package var words: String {
            closed == target
                ? "can't write to \(PrintablePath(closed))"
                : "can't reach \(PrintablePath(closed)), and so not \(PrintablePath(target))"
        }

        package var remedy: String {
            let rights = UserAccess.remedy(granting: closed == target ? "rwx" : "x", to: closed, for: owner)
            guard let recordsCommand else { return rights }
            let isRecords = closed.lastComponent == GroupContainer.bookkeepingName
            return isRecords ? "allow it (package acl): \(recordsCommand)" : "\(rights) && \(recordsCommand)"
        }
    }

    private let owner: uid_t
    private let target: Directory
    private let access: UserAccess

    package init(of owner: uid_t, to target: Directory) throws(SystemError) {
        (self.owner, self.target) = (owner, target)
        // A service's supplementary groups aren't in the user database. A directory that a group may write to is shared
        // through it, and the owner may be in it.
        let shared = try target.status().group
        access = UserAccess(.user(owner, also: shared == 0 ? [] : [shared]))
    }

    /// Returns what keeps the owner from writing to the directory, or, for a directory `name` in it, from reaching
    /// that. Nil also if the owner can't reach the present place from here: then the owner sees both places in another
    /// mount namespace.
    package func obstacle(from present: FilePath, reaching name: FilePath.Component? = nil) -> Obstacle? {
        if name == nil {
            // Made before the directory admitted the owner: nothing is inherited later.
            let records = try? GroupContainer(directory: target).existingBookkeeping()
            let closed = records.flatMap { access.mayWrite(to: $0) ? nil : $0 }
            for directory in [target, closed].compactMap(\.self) where !access.mayWrite(to: directory) {
                return Obstacle(
                    owner: owner, closed: directory.path, target: directory.path,
                    recordsCommand: closed.map { Self.command(admitting: owner, to: $0) })
            }
        }
        let place = name.map(target.path.appending) ?? target.path
        guard access.firstClosed(above: present) == nil, let closed = access.firstClosed(above: place) else {
            return nil
        }
        return Obstacle(owner: owner, closed: closed, target: place, recordsCommand: nil)
    }

    /// Returns the command that lets the owner use the group's records. Names what is shared and nothing else: archived
    /// stores and copies of rows have their own owners.
    private static func command(admitting owner: uid_t, to records: Directory) -> String {
        let directories = ["receipts", "app-receipts", "postponed", "staging", "archive", "claims", "claims/holders"]
        let places = directories.map { records.path.pushing(FilePath($0)) }
        let shared = ([records.path] + places.filter { FileStatus(following: $0)?.kind == .directory })
            .map { "\($0.shellWord)" }
        let claims = records.path.appending("claims")
        var locks = ["\(records.path.appending("lock").shellWord)"]
        let hasClaims = (try? records.directory("claims").names().contains { $0.extension == "lock" }) == true
        if hasClaims { locks.append("\(claims.shellWord)/*.lock") }
        // An entry for a file's owner changes nothing: the mode counts.
        let own = ([records.path] + places).filter { path in
            guard let status = FileStatus(following: path), status.kind == .directory else { return false }
            return status.owner == owner && status.permissions & 0o700 != 0o700
        }
        let modes = own.isEmpty ? "" : "chmod u+rwx \(own.map { "\($0.shellWord)" }.joined(separator: " ")) && "
        return modes + "setfacl -m u:\(owner):rwx,d:u:\(owner):rwx \(shared.joined(separator: " ")) && "
            + "setfacl -m u:\(owner):rw \(locks.joined(separator: " "))"
    }
}

extension RelocationFailure {
    /// The refusal of a move that would keep the owner out. `subject` is what the owner owns: "the store".
    package static func lockedOut(_ obstacle: OwnerAccess.Obstacle, _ subject: String) -> RelocationFailure {
        RelocationFailure(
            .notPermitted, code: "owner_locked_out",
            "user \(obstacle.owner), who owns \(subject), \(obstacle.words)", remedy: obstacle.remedy)
    }
}
