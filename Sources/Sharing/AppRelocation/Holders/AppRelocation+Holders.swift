import Glibc
import GroupContainers
import LinuxSystem
import SQLiteStore
import StoreRelocation
import SystemPackage

// What is stopped for a move, and started again after it, whatever its end.
extension AppRelocation {
    /// The least time that a service has to stop or start, if the wait for others is shorter. By default, systemd kills
    /// a service that isn't stopped, or not started, after 90 s, and one that is being stopped starts after that.
    private static let (leastStop, leastStart) = (Duration.seconds(5), Duration.seconds(200))

    private var startLimit: Duration { max(request.deadline, Self.leastStart) }

    /// Returns what holds a directory, and what would be stopped so that it can move. Changes nothing. Throws
    /// `RelocationFailure` if something can't be stopped and started again.
    func holders(
        _ places: AppPlaces, _ root: FileIdentity
    ) throws -> (holders: [FileHolder], programs: [ManagedProgram]) {
        let survey = try AppSurvey(places.sourceParent.directory(places.sourceName), .names)
        let holders = AppHolders.find(device: root.device, survey, under: places.source)
        guard request.stopsHolders, !holders.isEmpty else { return (holders, []) }
        let name = "\(PrintablePath(places.source))"
        return (holders, try HolderPlan(holders, of: name, request.managers).programs)
    }

    /// Stops what holds the directory, after it is recorded what is to be started again.
    func stopHolders(_ move: AppMove, _ places: AppPlaces, _ container: GroupContainer) throws {
        guard request.stopsHolders else { return }
        var programs = try holders(places, move.root).programs
        guard !programs.isEmpty else { return }
        try checkStores(move, places)
        // An earlier run of this move, which was killed, may have stopped others.
        var former = try container.stoppedPrograms()
        if let found = former, found.writer != geteuid() {
            // Its writer's rights are what its programs are started with: this process's may be more or fewer.
            try startStopped(container)
            former = nil
            programs = try holders(places, move.root).programs
        }
        var record = former ?? StoppedPrograms(source: places.source, destination: places.destination, [])
        record.programs = programs.filter { !record.programs.contains($0) } + record.programs
        // The note leads to the record.
        if move.undoes == nil { try AppUndoNote.write(move, in: places.sourceParent) }
        try step(.noted)
        do {
            try container.write(record)
        } catch {
            if move.undoes == nil { try? AppUndoNote.remove(move, in: places.sourceParent) }
            throw error
        }
        try step(.recorded)
        report(.stopping(programs))
        do throws(RelocationFailure) {
            try control(programs, max(request.deadline, Self.leastStop)).stop()
        } catch {
            throw isCancelled() ? .cancelled(places.source) : error
        }
        try step(.stopped)
        if isCancelled() { throw RelocationFailure.cancelled(places.source) }
        try check(move, places)
    }

    /// Throws `RelocationFailure` if the recipe's checks or the stores' rules forbid the move, as far as that can be
    /// seen while programs have the stores open.
    private func checkStores(_ move: AppMove, _ places: AppPlaces) throws {
        guard move.undoes == nil else { return }
        let directory = try places.sourceParent.directory(places.sourceName)
        try request.recipe?.checkTables(in: directory, at: places.source)
        guard let rewrites = move.rewrites else { return }
        let stores = try AppSurvey(directory, .files, leaving: move.leavePatterns).stores
        do {
            _ = try AppRewriting.preview(rewrites, in: directory, stores)
        } catch StoreError.busy {}
    }

    private func control(_ programs: [ManagedProgram], _ limit: Duration) -> ProgramControl {
        ProgramControl(programs: programs, managers: request.managers, limit: limit, isCancelled: isCancelled)
    }

    /// Throws `RelocationFailure` if something has come to one of the places while programs were stopped.
    private func check(_ move: AppMove, _ places: AppPlaces) throws {
        switch AppPlan(try places.facts(isUndo: move.undoes != nil)) {
        case .move(_, move.replacesLink): break
        case .move, .alreadyMoved:
            throw RelocationFailure.app(
                .busy, "changing", "\(PrintablePath(places.destination)) has changed while programs were stopped",
                "run this again")
        case .refuse(let refusal): throw try failure(refusal, places, isUndo: move.undoes != nil)
        }
    }

    /// Performs a move, and starts what it or a killed one has stopped, also if it fails.
    func startingAgain<Result>(_ container: GroupContainer, _ body: () throws -> Result) throws -> Result {
        let result: Result
        do {
            result = try body()
        } catch let error as Abandonment {
            throw error
        } catch {
            do {
                try startStopped(container)
            } catch let second as RelocationFailure {
                var failure = RelocationFailure(
                    error, RelocationRequest(source: request.source, group: request.destination))
                (failure.message, failure.remedy) = ("\(failure.message); \(second.message)", second.remedy)
                throw failure
            }
            throw error
        }
        do {
            try startStopped(container)
        } catch var failure as RelocationFailure {
            if let summary = result as? AppMoveSummary {
                failure.message += "; the directory is \(PrintablePath(summary.to))"
            }
            throw failure
        }
        return result
    }

    /// Starts what a killed move of another directory has stopped.
    func startStopped(before places: AppPlaces, _ container: GroupContainer) throws {
        guard let stopped = try container.stoppedPrograms() else { return }
        let names = [stopped.source.path, stopped.destination.path]
        // This move stops them too, or undoes that one: they are started once, at its end.
        guard !(names.contains(places.source) && names.contains(places.destination)) else { return }
        try startStopped(container)
    }

    /// Starts what a killed way back of the directory has stopped. No note leads to its record, but the link, which it
    /// would have removed.
    func startStopped(behindLinkOf places: AppPlaces) throws {
        guard let target = try AppObstacle(places.sourceName, in: places.sourceParent).link,
            let group = try? Directory(resolving: target.removingLastComponent()),
            group.path != places.destinationParent.path
        else { return }
        let container = GroupContainer(directory: group)
        guard let stopped = try? container.stoppedPrograms(), stopped.destination.path == places.source else { return }
        try underLock(of: container) { try startStopped(container) }
    }

    /// Starts what the group's record names, and removes the record. Throws `RelocationFailure`, with the managers' own
    /// messages, if not all of it runs. The record then stays.
    func startStopped(_ container: GroupContainer) throws {
        guard let stopped = try container.stoppedPrograms() else { return }
        let remedy =
            "start what is missing: groupstore recover \(container.directory.path.shellWord); or leave it stopped: "
            + "groupstore recover --leave-stopped \(container.directory.path.shellWord)"
        guard try isReachable(stopped, container) else {
            throw RelocationFailure.app(
                .failed, "not_started",
                "\(stopped.programs.list) is not started again until \(PrintablePath(stopped.source.path)) is back",
                remedy)
        }
        try step(.starting)
        var outcome = control(stopped.startable, startLimit).start()
        if let refusal = stopped.refusal { outcome.failures.append(refusal) }
        guard outcome.failures.isEmpty else {
            throw RelocationFailure.app(
                isCancelled() ? .busy : .failed, isCancelled() ? "cancelled" : "not_started",
                outcome.failures.joined(separator: "; "), remedy)
        }
        try step(.started)
        try forget(stopped, container)
        let others = stopped.programs.startedAgain.filter { !outcome.started.contains($0) }
        if !others.isEmpty { report(.recovered("running already: \(others.list)")) }
        if !outcome.started.isEmpty { report(.started(outcome.started)) }
    }

    /// Removes the notes of moves that were killed before they recorded what they were to stop. The caller holds the
    /// group's lock.
    func removeNotes(of place: FilePath, in parent: Directory, _ container: GroupContainer) throws {
        AppUndoNote.removeUnfinished(in: parent)
        guard try container.stoppedPrograms() == nil, try container.appJournal() == nil else { return }
        while let move = AppUndoNote.find(from: place, in: parent),
            move.destination.path.removingLastComponent() == container.directory.path
        {
            try AppUndoNote.remove(move, in: parent)
        }
    }

    /// Removes the notes of undos that were killed after their end, which lead to a place where the directory isn't any
    /// more. The caller holds the group's lock.
    func removeEndedNotes(of places: AppPlaces, _ container: GroupContainer) throws {
        guard try container.stoppedPrograms() == nil, try container.appJournal() == nil else { return }
        while let back = AppUndoNote.find(for: places.source, in: places.sourceParent),
            back.source.path.removingLastComponent() == container.directory.path
        {
            try AppUndoNote.remove(back, in: places.sourceParent)
        }
    }

    /// Removes the record, and before it the notes that lead to it.
    func forget(_ stopped: StoppedPrograms, _ container: GroupContainer) throws {
        let hasJournal = try container.appJournal() != nil
        for place in [stopped.source.path, stopped.destination.path] {
            guard let parent = try? Directory(place.removingLastComponent()) else { continue }
            while let move = AppUndoNote.find(from: place, in: parent) { try AppUndoNote.remove(move, in: parent) }
            // A killed undo may have left one, too.
            while !hasJournal, let back = AppUndoNote.find(for: place, in: parent),
                [stopped.source, stopped.destination].contains(back.source)
            {
                try AppUndoNote.remove(back, in: parent)
            }
        }
        try container.removeStoppedPrograms()
    }

    /// True unless the directory has neither name, as in the middle of a copy: a program would begin a new one, or go
    /// on with one that it has begun.
    private func isReachable(_ stopped: StoppedPrograms, _ container: GroupContainer) throws -> Bool {
        guard let journal = try container.appJournal() else { return true }
        guard !UnfinishedAppMove(journal).isHidden else { return false }
        return [stopped.source.path, stopped.destination.path]
            .contains { FileStatus(following: $0)?.kind == .directory }
    }
}

extension [ManagedProgram] {
    /// Those that are started again themselves.
    package var startedAgain: [ManagedProgram] { filter(\.isStartedAgain) }
}

extension StoppedPrograms {
    /// The programs that may be started.
    package var startable: [ManagedProgram] { programs.filter(allows) }

    /// A sentence about the programs that may not; nil if there are none.
    package var refusal: String? {
        let others = programs.filter { !allows($0) }
        return others.isEmpty ? nil : "\(others.list) is not started by the word of user \(writer)"
    }

    /// True if the record's writer could have started the program. Who may write to a group's directory must not start
    /// what only root or another user may.
    private func allows(_ program: ManagedProgram) -> Bool {
        writer == 0 || writer == geteuid() || (program.user == writer && program.user != nil)
    }
}
