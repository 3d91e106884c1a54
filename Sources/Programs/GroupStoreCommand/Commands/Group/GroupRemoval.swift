import CommandSupport
import FileCoordination
import Glibc
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SystemPackage

/// The removal of a group's directory.
///
/// Under the group's lock and a claim on everything in it, the directory is renamed to a name that only its record
/// tells, then looked at again all the way down. If anything has come or changed since it was shown, or is open, it is
/// put back. What was seen is then removed file by file (`FileRemoval`), and put back after an error.
struct GroupRemoval {
    private let group: GroupIdentifier
    private let parent: Directory
    private let name: FilePath.Component
    private let directory: Directory

    /// Opens the directory. Changes nothing.
    init(_ group: GroupIdentifier, _ path: FilePath) throws {
        guard let name = path.lastComponent else { throw SystemError("rmdir", .invalidArgument, path: path) }
        self.group = group
        self.name = name
        parent = try Directory(Self.parent(of: path))
        guard try parent.status(name)?.kind == .directory else {
            throw CommandFailure(
                .inputOutput, code: "not_a_directory", "\(PrintablePath(path)) is a symbolic link",
                remedy: "name its target with --directory, or remove the link: rm \(path.shellWord)")
        }
        directory = try parent.directory(name)
    }

    static func parent(of path: FilePath) -> FilePath {
        let parent = path.removingLastComponent()
        return parent.isEmpty ? "." : parent
    }

    /// Looks at everything in the directory. Changes nothing. Throws `CommandFailure` for an unfinished relocation.
    func look() throws -> GroupInventory {
        let container = GroupContainer(directory: directory)
        guard try container.journals().isEmpty, try container.appJournal() == nil,
            try container.stoppedPrograms() == nil
        else {
            throw CommandFailure(
                .busy, code: "interrupted",
                "a relocation in \(PrintablePath(directory.path)) is under way or was interrupted",
                remedy: "run: groupstore recover \(directory.path.shellWord)")
        }
        return try GroupInventory(directory)
    }

    func items(_ inventory: GroupInventory) -> [GroupInventory.Item] { inventory.items(at: directory.path) }

    func notEmpty(_ inventory: GroupInventory) -> CommandFailure {
        let apps = inventory.entries.compactMap { movedApp($0) }
        let returns = apps.map { "groupstore move-app --undo \($0.shellWord)" }.joined(separator: " && ")
        return CommandFailure(
            .conflict, code: "not_empty", "\(group) is not removed: \(PrintablePath(directory.path)) holds",
            reasons: items(inventory).map { "  \($0)" },
            remedy: (apps.isEmpty ? "move it away first," : "take back what move-app has brought: \(returns);")
                + " or delete it for good: "
                + "\(GroupArgument.removal(of: group, at: directory.path)) --delete-stores")
    }

    /// Returns the place of a program's directory that `move-app` has moved into the group, by its receipt; nil for
    /// anything else.
    private func movedApp(_ entry: GroupInventory.Entry) -> FilePath? {
        guard entry.status.kind == .directory, let resolved = try? Directory(resolving: directory.path) else {
            return nil
        }
        let place = resolved.path.appending(entry.name)
        guard let receipt = try? GroupContainer(directory: directory).appReceipts(of: place).last else { return nil }
        return receipt.move.isFile(receipt.published, entry.status) ? place : nil
    }

    /// Removes the directory, if it still holds what was shown.
    ///
    /// - Parameters:
    ///   - shown: What the user has been shown.
    ///   - deletesContent: True to delete it, even if it has content.
    func run(_ shown: GroupInventory, deletesContent: Bool, assumeClosed: Bool) throws {
        let container = GroupContainer(directory: directory)
        guard let lock = try container.lock() else {
            throw CommandFailure(
                .busy, code: "busy", "\(group) is in use: \(container.lockHolder().firstLine)",
                remedy: "try again when that is done")
        }
        _ = try container.sign(lock)
        let claim = try claim(container)
        defer { claim.release() }
        let closed = ClosedFiles(assumeClosed: assumeClosed)
        let seen = try look()
        try check(seen, since: shown, deletesContent)
        try closed.check(seen.all, in: directory)
        let removal = try begin()
        var files = FileRemoval(directory, aside: removal.aside, closed: closed)
        do {
            try parent.rename(name, to: removal.record.hiddenName, in: parent, .refuse)
            guard try parent.status(removal.record.hiddenName)?.identity == directory.identity else {
                throw Self.changed(directory.path)
            }
            try parent.synchronize()
            let left = try look()
            try check(left, since: seen, deletesContent)
            try closed.check(left.all, in: directory, waitsForAgent: true)
            try empty(left, &files)
            try detach(removal)
        } catch {
            throw putBack(removal, after: error, deleted: files.deleted)
        }
        do {
            try removal.finish(lock)
        } catch {
            let failure = CommandFailure.of(error)
            let rest = parent.path.appending(removal.record.recordsName)
            throw CommandFailure(
                failure.status, code: failure.errorCode, failure.message,
                reasons: ["  \(group) is removed, and its records are left in \(PrintablePath(rest))"],
                remedy: "this removes them: \(GroupArgument.removal(of: group, at: directory.path))", underlying: error)
        }
    }

    /// Claims the whole group: nobody who coordinates may access or present anything in it meanwhile, even by a
    /// descriptor of the directory. Presenters aren't asked to close their stores: a store in use isn't removed.
    private func claim(_ container: GroupContainer) throws -> Claim {
        let item = ClaimedItem(container: container.name, path: FilePath())
        let claim = try Claim([ClaimIntent(item, .write(.forDeleting))], in: container)
        let wait = ClaimWait(Deadline(after: .zero))
        do {
            try claim.joinQueue(wait)
            try claim.acquire(wait)
        } catch is ClaimWait.TimedOut {
            let blockers = claim.blockers()
            claim.release()
            throw CommandFailure(
                .busy, code: "busy", "\(group) is in use: \(blockers.names)",
                remedy: "close its stores there, then run this again")
        }
        return claim
    }

    private func check(_ now: GroupInventory, since earlier: GroupInventory, _ deletesContent: Bool) throws {
        guard deletesContent || !now.hasContent else { throw notEmpty(now) }
        if let changed = now.change(since: earlier) { throw Self.changed(directory.path.pushing(changed.path)) }
    }

    static func changed(_ path: FilePath) -> CommandFailure {
        CommandFailure(
            .busy, code: "changed", "\(PrintablePath(path)) has come or changed meanwhile",
            remedy: "end the programs that use the group, then run this again")
    }

    /// Writes the record.
    private func begin() throws -> InterruptedRemoval {
        let aside = try directory.made(RemovalRecord.directoryName)
        if let stranger = try aside.names().first(where: { !RemovalRecord.isFile($0) }) {
            throw CommandFailure(
                .conflict, code: "obstacle",
                "\(PrintablePath(aside.path.appending(stranger))) isn't of a removal of this group",
                remedy: "move \(aside.path.shellWord) away, then run this again")
        }
        let record = RemovalRecord(of: name, directory.identity)
        try record.write(in: aside)
        try directory.synchronize()
        return InterruptedRemoval(record: record, parent: parent, directory: directory, aside: aside)
    }

    /// Removes everything but the records.
    private func empty(_ inventory: GroupInventory, _ files: inout FileRemoval) throws {
        let isBookkeeping = { (entry: GroupInventory.Entry) in entry.name == GroupContainer.bookkeepingName }
        try files.remove(inventory.entries.filter { !isBookkeeping($0) }, from: directory)
        for bookkeeping in inventory.entries.filter(isBookkeeping) {
            let inside = try directory.directory(bookkeeping.name)
            try files.remove(bookkeeping.children.filter(\.hasContent), from: inside)
        }
    }

    /// Takes the records out of the directory and removes it. The kernel does that only if nothing has come into it.
    private func detach(_ removal: InterruptedRemoval) throws {
        try removal.removeEmptyDirectories(FileRemoval.asideName, in: removal.aside)
        let bookkeeping = GroupContainer.bookkeepingName
        try directory.rename(bookkeeping, to: bookkeeping, in: removal.aside, .refuse)
        try directory.rename(RemovalRecord.directoryName, to: removal.record.recordsName, in: parent, .refuse)
        do throws(SystemError) {
            try parent.removeDirectory(removal.record.hiddenName)
        } catch {
            guard error.errno == .directoryNotEmpty || error.errno == .fileExists else { throw error }
            throw Self.changed(try directory.names().first.map(directory.path.appending) ?? directory.path)
        }
    }

    /// Puts the group back after an error. Returns that error, with where the group is and what of it is gone.
    private func putBack(
        _ removal: InterruptedRemoval, after error: any Error, deleted: [FilePath]
    ) -> CommandFailure {
        let failure = CommandFailure.of(error)
        var reasons = failure.reasons
        if !deleted.isEmpty {
            reasons.append(
                "  \(deleted.count == 1 ? "1 file was" : "\(deleted.count) files were") deleted before: "
                    + deleted.firstOnes(at: directory.path))
        }
        do {
            try removal.putBack()
            if !deleted.isEmpty { reasons.append("  the rest is in \(PrintablePath(directory.path)) again") }
            return CommandFailure(
                failure.status, code: failure.errorCode, failure.message, reasons: reasons, remedy: failure.remedy,
                underlying: error)
        } catch let second {
            reasons.append("  it couldn't be put back whole: \(CommandFailure.of(second).message)")
            reasons.append("  what is left is in \(PrintablePath(removal.path))")
            return CommandFailure(
                failure.status, code: failure.errorCode, failure.message, reasons: reasons,
                remedy: GroupArgument.continuation(of: group, at: directory.path), underlying: error)
        }
    }
}

extension GroupArgument {
    /// The advice for an interrupted removal.
    static func continuation(of group: GroupIdentifier, at path: FilePath) -> String {
        "once the place of \(PrintablePath(path)) is free, this puts it back and finishes: "
            + removal(of: group, at: path)
    }

    static func removal(of group: GroupIdentifier, at path: FilePath) -> String {
        "groupstore group remove \(group) --directory \(path.shellWord)"
    }
}

extension CommandFailure {
    /// Returns any error as a failure.
    fileprivate static func of(_ error: any Error) -> CommandFailure {
        if let error = error as? any ActionableError { return CommandFailure(error) }
        return CommandFailure(.inputOutput, code: "io_error", "\(error)", remedy: "see why: groupstore doctor")
    }
}

extension [FilePath] {
    /// The first paths, as text.
    fileprivate func firstOnes(at path: FilePath) -> String {
        let names = prefix(8).map { "\(PrintablePath(path.pushing($0)))" }
        return names.joined(separator: ", ") + (count > names.count ? ", …" : "")
    }
}

extension String {
    fileprivate var firstLine: String { split(separator: "\n").first.map(String.init) ?? self }
}
