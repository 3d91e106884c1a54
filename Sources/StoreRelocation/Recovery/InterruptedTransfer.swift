import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A transfer that was interrupted, and what recovery does about it, for a person to read.
package struct InterruptedTransfer: Sendable {
    package enum Purpose: String, Sendable {
        case relocate, archive, retire, restore
    }

    package enum Remedy: String, Sendable {
        case finish, undo
    }

    package let id: String
    package let purpose: Purpose
    /// `intended`, `withdrawn` or `committing`.
    package let state: String
    package let from: FilePath
    /// Nil where the set was to go nowhere.
    package let to: FilePath?
    package let remedy: Remedy

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
    /// The group's transfers that were interrupted, nothing changed. One that is under way, in another process, looks the
    /// same: whoever does it holds the group's lock.
    package func interrupted() throws(RelocationFailure) -> [InterruptedTransfer] {
        do {
            let container = try RelocationEndpoints.container(request.group)
            return try container.journals().map { try InterruptedTransfer($0, in: container) }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Brings to its end what was interrupted of one store of the group. What was of others is waited for by nobody who
    /// doesn't need them.
    package func finishInterrupted(of name: StoreName) throws(RelocationFailure) {
        do {
            let container = try RelocationEndpoints.container(request.group)
            let store = StoreLocation(directory: container.directory, name: name)
            let isConcerned = try container.journals().contains {
                $0.concerns(name.database, in: container.directory, of: container)
            }
            guard isConcerned else { return }
            try exclusively(container) { try Recovery(container: container, report: report).run(before: [store]) }
        } catch {
            throw RelocationFailure(error, request)
        }
    }

    /// Brings each to its end. `willDo` is told of it first. Returns what was found. Throws what kept the first one from
    /// its end, when all were tried.
    package func recover(
        _ willDo: (InterruptedTransfer) -> Void
    ) throws(RelocationFailure) -> [InterruptedTransfer] {
        do {
            let container = try RelocationEndpoints.container(request.group)
            guard try !container.journals().isEmpty else { return [] }
            return try exclusively(container) {
                var found: [InterruptedTransfer] = []
                let failures = try Recovery(container: container, report: report).runAll { journal in
                    let transfer = try InterruptedTransfer(journal, in: container)
                    found.append(transfer)
                    willDo(transfer)
                }
                if let first = failures.first { throw first }
                return found
            }
        } catch {
            throw RelocationFailure(error, request)
        }
    }
}
