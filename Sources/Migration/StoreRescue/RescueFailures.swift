import GroupContainers
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

extension RelocationFailure {
    /// The failure with the kind that it has here: rows in conflict are data that a person must decide about.
    var asRefusal: RelocationFailure {
        var failure = self
        if failure.kind == .conflict { failure.kind = .badData }
        failure.remedy = failure.remedy.replacing(
            "--prefer group, --prefer legacy", with: "--prefer store, --prefer branch")
        // A rescue keeps all sides.
        failure.remedy = failure.remedy.replacing(
            ", or keep one of the stores", with: " with --merge-key, then try again")
        return failure
    }

    /// Something contradicts that the logs of a split store follow on its database as it is.
    static func noCommonBase(_ store: FilePath, _ reason: String) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "no_common_base",
            "\(PrintablePath(store)): its database can't be the common base of a join: \(reason)",
            remedy: "join without a base: groupstore rescue \(store.shellWord)")
    }

    /// A damaged branch that no program has open any more. Its files are kept.
    static func keptDamaged(_ damaged: SavedBranches.Saved) -> RelocationFailure {
        RelocationFailure(
            .badData, code: "branch_damaged", damaged.damageSentence ?? "", remedy: damaged.damageRemedy)
    }

    /// Returns the failure without the programs that have a branch, where others have the store open, too: those with a
    /// branch must go on until the others have closed the store, for only they have what they commit meanwhile.
    func sparing(_ branchHolders: [FileHolder], of store: FilePath) -> RelocationFailure {
        let others = holders.filter { holder in !branchHolders.contains { $0.pid == holder.pid } }
        guard code == "in_use", !others.isEmpty else { return self }
        guard others.count < holders.count else { return self }
        var failure = RelocationFailure.inUse(store, others)
        failure.remedy = "close the store in \(others.names), then try again"
        return failure
    }

    /// Returns the failure with a sentence on where the store's branches are: a program that has one open must not be
    /// ended.
    func described(of store: StoreLocation) -> RelocationFailure {
        var failure = self
        // There is no store to choose: each has what the others lack.
        if failure.code == "merge_unsupported" {
            failure.remedy =
                "copy what each program has committed, and join it by other means: "
                + "groupstore rescue --copy-only \(store.path.shellWord)"
        }
        let saved = SavedBranches(GroupContainer(directory: store.directory))
        let archived = (try? saved.unjoined(store.name.database, open: [])) ?? []
        let copies = ((try? saved.copies()) ?? []).filter { $0.name == store.name.database && !$0.isOfName }
        let damaged = ((try? saved.damaged()) ?? []).filter { $0.name == store.name.database }
        for branch in OrphanedBranch.find(store) {
            let record = branch.record
            let copy = copies.last { record.isOfSameFiles(as: $0.branch) }
            let finished = copy.flatMap { try? $0.finished } ?? 0
            if let files = damaged.last(where: { record.isOfSameFiles(as: $0.branch) }),
                (try? files.finished) ?? 0 > finished
            {
                failure.message +=
                    "; the files of \(branch.holders.list) as they are now are kept in "
                    + "\(PrintablePath(files.location.directory.path)): keep it running, for only it has what it "
                    + "commits from now on"
                continue
            }
            guard !archived.contains(where: { record.isOfSameFiles(as: $0.branch) }) else { continue }
            if let copy, (try? branch.hasWritten(since: copy.order)) != false {
                // Another rescue has made it.
                failure.message +=
                    "; what \(branch.holders.list) had committed a while ago is kept in "
                    + "\(PrintablePath(copy.location.directory.path)), and it has written since: keep it running, for "
                    + "only it has that, and try again"
            } else if let copy {
                failure.message +=
                    "; what \(branch.holders.list) has committed until now is kept in "
                    + "\(PrintablePath(copy.location.directory.path)), and the next rescue joins it: keep it running, "
                    + "for only it has what it commits from now on"
            } else {
                failure.message += "; only \(branch.holders.list) has what it has committed: keep it running"
            }
        }
        for copy in archived {
            failure.message +=
                "; what \(copy.branch.holders) had committed is kept in "
                + "\(PrintablePath(copy.location.directory.path)), and the next rescue joins it"
        }
        return failure
    }
}

extension Error {
    /// True if the disk or a quota is full.
    var isNoSpace: Bool {
        if let error = self as? SystemError { return [.noSpace, .diskQuotaExceeded].contains(error.errno) }
        return (self as? StoreError)?.isFull ?? false
    }
}

extension SavedBranches.Saved {
    /// True if a program has the files of which this is a copy open. The store at its name was copied because of the
    /// programs that have lost its log and can write its database.
    func isOpen(_ open: [ArchiveNote.Branch]) -> Bool {
        open.contains { isOfName ? $0.database == branch.database : $0.isOfSameFiles(as: branch) }
    }
}
