import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A description of an interrupted transfer, and of what recovery does with it.
package struct InterruptedTransfer: Sendable {
    package enum Purpose: String, Sendable {
        case relocate, archive, retire, restore
        /// A whole directory.
        case moveApp = "move-app"
    }

    package enum Remedy: String, Sendable {
        case finish, undo
    }

    package let id: String
    package let purpose: Purpose
    /// `intended`, `withdrawn` or `committing`; of a directory, also `renaming` or `copying`, but never `intended`.
    package let state: String
    package let from: FilePath
    /// Nil if the set has no destination.
    package let to: FilePath?
    package let remedy: Remedy

    package init(
        id: TransferIdentifier, _ purpose: Purpose, state: String, from: FilePath, to: FilePath, _ remedy: Remedy
    ) {
        self.id = id.rawValue
        (self.purpose, self.state, self.from, self.to, self.remedy) = (purpose, state, from, to, remedy)
    }

    init(_ journal: TransferJournal, in container: GroupContainer) throws {
        let transfer = journal.transfer
        id = transfer.id.rawValue
        from = transfer.directory.path.pushing(transfer.name.path)
        switch transfer.purpose {
        case .publish(let name): (purpose, to) = (.relocate, container.directory.path.pushing(name.path))
        case .archive: (purpose, to) = (.archive, container.archivePath(transfer.id))
        case .discard: (purpose, to) = (.retire, nil)
        case .restore(let directory, let name, _): (purpose, to) = (.restore, directory.path.pushing(name.path))
        }
        switch journal.state {
        case .intended: state = "intended"
        case .withdrawn: state = "withdrawn"
        case .committing: state = "committing"
        }
        remedy = try Recovery(container: container, report: { _ in }).willFinish(journal) ? .finish : .undo
    }
}

extension Relocation {
    /// Returns the group's interrupted transfers without changing anything. A transfer in progress in another process
    /// looks the same; that process holds the group's lock.
    package func interrupted() throws(RelocationFailure) -> [InterruptedTransfer] {
        do {
            let container = try RelocationEndpoints.container(request.group)
            return try container.journals().map { try InterruptedTransfer($0, in: container) }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Finishes or undoes the interrupted transfers of one store of the group. Ignores those of other stores.
    package func finishInterrupted(of name: StoreName) throws(RelocationFailure) {
        do {
            let container = try RelocationEndpoints.container(request.group)
            let store = StoreLocation(directory: container.directory, name: name)
            let isAffected = try container.journals().contains {
                $0.affects(name.database, in: container.directory, of: container)
            }
            guard isAffected else { return }
            try withGroupLock(container) { try Recovery(container: container, report: report).run(before: [store]) }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Finishes or undoes all interrupted transfers. Calls `willProcess` before each, and returns all of them. If some
    /// fail, tries the others too, then throws the first error.
    package func recover(
        _ willProcess: (InterruptedTransfer) -> Void
    ) throws(RelocationFailure) -> [InterruptedTransfer] {
        do {
            let container = try RelocationEndpoints.container(request.group)
            guard try !container.journals().isEmpty else { return [] }
            return try withGroupLock(container) {
                var found: [InterruptedTransfer] = []
                let failures = try Recovery(container: container, report: report).runAll { journal in
                    let transfer = try InterruptedTransfer(journal, in: container)
                    found.append(transfer)
                    willProcess(transfer)
                }
                if let first = failures.first { throw first }
                return found
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }
}
