import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import AppRelocation

/// Programs that hold a directory are stopped for its move, and run again after it.
@Suite(.ownThreads) struct HolderTests {
    private static let id = String(repeating: "0123456789abcdef", count: 4)
    private static let session = "/user.slice/user-\(geteuid()).slice/user@\(geteuid()).service/app.slice"
    private static let machines: [(name: String, group: String)] = [
        ("notes.service", "0::/system.slice/notes.service\n"), ("mail.service", "0::\(session)/mail.service\n"),
        ("org.a.Notes", "0::\(session)/app-flatpak-org.a.Notes-12.scope\n"),
        (id, "0::/machine.slice/libpod-\(id).scope/container\n"), (id, "0::/system.slice/docker-\(id).scope\n"),
    ]

    private let rig: AppRig
    private let machine: FakeMachine

    init() throws {
        rig = try AppRig(.same)
        machine = try FakeMachine("notes.service", group: "0::/system.slice/notes.service\n", holding: rig.source)
    }

    private var group: FilePath { rig.destination.removingLastComponent() }

    private func request(_ machine: FakeMachine? = nil, _ rig: AppRig? = nil, stops: Bool = true) -> AppMoveRequest {
        var request = (rig ?? self.rig).request()
        request.stopsHolders = stops
        request.managers = (machine ?? self.machine).managers
        return request
    }

    private func stopped() throws -> [ManagedProgram] { try AppRelocation.stopped(in: group)?.startable ?? [] }

    private func move(
        _ rig: AppRig? = nil, _ machine: FakeMachine? = nil, report: @escaping (AppMoveEvent) -> Void = { _ in },
        step: @escaping (AppMoveStep) throws -> Void
    ) -> AppRelocation {
        let machine = machine ?? self.machine
        return AppRelocation(
            request(machine, rig), isCancelled: { machine.isInterrupted }, report: report, step: step)
    }

    private func expectStartedOnce(times: Int = 1) throws {
        #expect(machine.isRunning && !machine.hasMissedDirectory)
        #expect(machine.starts[machine.name] == times)
        #expect(try stopped() == [])
        #expect(try rig.leftovers() == [])
    }

    @Test(arguments: machines, AppRig.FileSystem.allCases)
    func stopsAndStartsByTheManagersCommands(
        _ program: (name: String, group: String), _ fileSystem: AppRig.FileSystem
    ) throws {
        let rig = try AppRig(fileSystem)
        let machine = try FakeMachine(program.name, group: program.group, holding: rig.source)
        var events: [String] = []
        let move = AppRelocation(request(machine, rig)) {
            false
        } report: { event in
            if case .stopping(let programs) = event { events += programs.map { "stop \($0.name)" } }
            if case .started(let programs) = event { events += programs.map { "start \($0.name)" } }
        }
        #expect(try move.run().outcome == .moved)
        #expect(events == ["stop \(program.name)", "start \(program.name)"])
        #expect(machine.isRunning && !machine.hasMissedDirectory && machine.starts == [program.name: 1])
        #expect(try AppRelocation(request(machine, rig)).undo().outcome == .undone)
        #expect(machine.isRunning && !machine.hasMissedDirectory && machine.starts == [program.name: 2])
        #expect(try rig.leftovers() == [])
        #expect(try Directory(rig.destination.removingLastComponent()).names() == [])
    }

    // MARK: - Kills

    private enum Next: String, CaseIterable {
        case run, undo, undoOfTheOldPlace, undoOfTheNewPlace, recover, agent

        var isUndo: Bool { rawValue.hasPrefix("undo") }
    }

    private static let steps: [AppMoveStep] = [.recorded, .stopped, .linked, .renamed, .starting, .started]

    /// Each step followed by the same command, and the two between which nothing runs by every one of `all`.
    private static func kills(_ all: [Next]) -> [(step: AppMoveStep, next: Next)] {
        let every = steps.flatMap { step in all.map { (step, $0) } }
        return Tier.cases(every, quick: every.filter { $1 == .run || [.stopped, .starting].contains($0) })
    }

    /// - Parameter undoing: True to kill the way back.
    private func kill(at wanted: AppMoveStep, undoing: Bool) throws {
        let move = move { step in
            if step == wanted { throw AppRelocation.Abandonment() }
        }
        let failure = #expect(throws: RelocationFailure.self) { try undoing ? move.undo() : move.run() }
        #expect(failure?.underlyingError is AppRelocation.Abandonment)
    }

    private func perform(_ next: Next) throws {
        var undo = request(stops: true)
        switch next {
        case .run: _ = try AppRelocation(request()).run()
        case .undo: _ = try AppRelocation(undo).undo()
        case .undoOfTheOldPlace, .undoOfTheNewPlace:
            let place = next == .undoOfTheOldPlace ? rig.source : rig.destination
            let places = try #require(try AppRelocation.recorded(place))
            (undo.source, undo.destination) = places
            _ = try AppRelocation(undo).undo()
        case .recover, .agent:
            var request = AppMoveRequest(source: group, destination: group)
            request.managers = machine.managers
            _ = try AppRelocation(request).recover(keepingCopy: next == .agent)
        }
    }

    @Test(arguments: kills(Next.allCases))
    private func startsOnceAfterAKill(_ killed: (step: AppMoveStep, next: Next)) throws {
        let (step, next) = killed
        try kill(at: step, undoing: false)
        #expect(machine.isRunning == [.recorded, .started].contains(step))
        try perform(next)
        #expect(machine.isRunning && !machine.hasMissedDirectory)
        let starts = machine.starts[machine.name] ?? 0
        switch step {
        case .recorded: #expect(starts == (next == .run ? 1 : 0))
        // It runs, and is stopped once more for the way back.
        case .started: #expect(starts == (next.isUndo ? 2 : 1))
        default: #expect(starts == 1)
        }
        #expect(try stopped() == [])
        #expect(try rig.leftovers() == [])
        #expect(try rig.rows(rig.source) == "100")
    }

    @Test(arguments: kills([.run, .undoOfTheOldPlace, .undoOfTheNewPlace, .recover]))
    private func startsOnceAfterAKilledUndo(_ killed: (step: AppMoveStep, next: Next)) throws {
        let (step, next) = killed
        _ = try AppRelocation(request()).run()
        let before = machine.starts[machine.name] ?? 0
        try kill(at: step, undoing: true)
        try perform(next)
        #expect(machine.isRunning && !machine.hasMissedDirectory)
        #expect((1...2).contains((machine.starts[machine.name] ?? 0) - before) || step == .recorded)
        #expect(try stopped() == [])
        #expect(try rig.leftovers() == [])
        #expect(try rig.rows(rig.source) == "100")
    }

    /// The record of what was stopped is beside both places then, and says nothing of the direction.
    @Test(arguments: [AppMoveStep.stopped, .starting, .started], [true, false])
    func anUndoOfEitherPlaceEndsAKilledOneWithinOneDirectory(_ step: AppMoveStep, _ isOldPlace: Bool) throws {
        for undoing in [true, false] {
            let rig = try AppRig(.same, isOneParent: true)
            let machine = try FakeMachine("a.service", group: "0::/system.slice/a.service\n", holding: rig.source)
            if undoing { _ = try AppRelocation(request(machine, rig)).run() }
            let killed = move(rig, machine) { if $0 == step { throw AppRelocation.Abandonment() } }
            #expect(throws: RelocationFailure.self) { try undoing ? killed.undo() : killed.run() }
            // A kill amid the record's removal, which follows that of the note.
            if step == .started {
                try run("sh", ["-c", "rm -f \"$1\"/.groupstore-*.undo", "sh", Word(self.parent(rig))])
            }
            var request = request(machine, rig)
            let places = try AppRelocation.recorded(isOldPlace ? rig.source : rig.destination)
            (request.source, request.destination) = try #require(places)
            #expect(places?.source == rig.source, "\(undoing)")
            _ = try AppRelocation(request).undo()
            #expect(try machine.isRunning && !machine.hasMissedDirectory && !rig.isLink(rig.source))
            #expect(FileStatus(following: rig.destination) == nil)
            #expect(try Directory(parent(rig)).names() == ["app"])
        }
    }

    private func parent(_ rig: AppRig) -> FilePath { rig.source.removingLastComponent() }

    /// Another group has the record, which the note beside the directory leads to.
    @Test func aMoveToAnotherPlaceStartsWhatAKilledOneHasStopped() throws {
        try kill(at: .stopped, undoing: false)
        let elsewhere = try TemporaryDirectory()
        var other = request()
        other.destination = elsewhere.path.appending("moved")
        #expect(try AppRelocation(other).run().outcome == .moved)
        try expectStartedOnce(times: 2)
        #expect(try Directory(group).names() == [])
    }

    /// The directory is where the link leads, beside the record, and no note is beside the link.
    @Test(arguments: AppRig.FileSystem.allCases)
    func aRefusedMoveToAnotherPlaceStartsWhatAKilledUndoHasStopped(_ fileSystem: AppRig.FileSystem) throws {
        let rig = try AppRig(fileSystem)
        let machine = try FakeMachine("a.service", group: "0::/system.slice/a.service\n", holding: rig.source)
        _ = try AppRelocation(request(machine, rig)).run()
        let killed = move(rig, machine) { if $0 == .stopped { throw AppRelocation.Abandonment() } }
        #expect(throws: RelocationFailure.self) { try killed.undo() }
        let container = try GroupContainer(rig.destination.removingLastComponent())
        #expect(try !machine.isRunning && AppRelocation.leftStopped(in: container) == container.stoppedPrograms())
        var other = request(machine, rig, stops: false)
        other.destination = parent(rig).appending("third")
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(other).run() }
        #expect(failure?.code == "symbolic_link")
        #expect(machine.isRunning && machine.starts == ["a.service": 2])
        #expect(try container.stoppedPrograms() == nil && AppRelocation.leftStopped(in: container) == nil)
        #expect(try AppRelocation(request(machine, rig)).undo().outcome == .undone)
    }

    /// The agent leaves the copy for the next run, and the program runs meanwhile.
    @Test func theAgentKeepsAPartialCopy() throws {
        let rig = try AppRig(.another)
        let machine = try FakeMachine("a.service", group: "0::/system.slice/a.service\n", holding: rig.source)
        let killed = move(rig, machine) { step in
            if step == .withdrawn { throw AppRelocation.Abandonment() }
        }
        #expect(throws: RelocationFailure.self) { try killed.run() }
        let group = rig.destination.removingLastComponent()
        var recovery = AppMoveRequest(source: group, destination: group)
        recovery.managers = machine.managers
        #expect(try AppRelocation(recovery).recover(keepingCopy: true)?.remedy == .undo)
        #expect(machine.isRunning && !machine.hasMissedDirectory && machine.starts == ["a.service": 1])
        #expect(try AppRelocation(request(machine, rig)).run().resumedFiles > 0)
        #expect(machine.isRunning && !machine.hasMissedDirectory && machine.starts == ["a.service": 2])
    }

    /// The note is written before the record that it leads to.
    @Test(arguments: ["run", "undo", "elsewhere"]) func aNoteThatLeadsToNothingIsRemoved(_ next: String) throws {
        try kill(at: .noted, undoing: false)
        #expect(try rig.leftovers().count == 1 && stopped() == [])
        var request = request()
        let elsewhere = try TemporaryDirectory()
        switch next {
        case "undo":
            (request.source, request.destination) = try #require(try AppRelocation.recorded(rig.source))
            #expect(try AppRelocation(request).undo().outcome == .nothingToUndo)
        case "elsewhere":
            request.destination = elsewhere.path.appending("moved")
            #expect(try AppRelocation(request).run().outcome == .moved)
        default: #expect(try AppRelocation(request).run().outcome == .moved)
        }
        #expect(try rig.leftovers() == [])
        #expect(machine.isRunning && machine.starts[machine.name] == (next == "undo" ? nil : 1))
    }

    @Test func nothingIsStoppedThatCannotBeRecorded() throws {
        try run("mkdir", ["-p", Word(group.pushing(".groupstore/app-stopped.json.new/x"))])
        #expect(throws: RelocationFailure.self) { try AppRelocation(request()).run() }
        #expect(!machine.commands.contains { $0.contains(" stop ") } && machine.isRunning)
        #expect(try rig.leftovers() == [] && !rig.isLink(rig.source))
    }

    /// A note that was being written at a power failure.
    @Test func removesAHalfWrittenNoteAndNoOtherFile() throws {
        let parent = rig.source.removingLastComponent()
        let unfinished = try ["{\n \"move\" :", "", "a text", "{}"].map { text in
            let name = TransferIdentifier().hiddenName(".undo.new")
            try run("sh", ["-c", "printf %s \"$1\" >\"$2\"", "sh", Word(text), Word(parent.appending(name))])
            return name.string
        }
        let held = try Descriptor(opening: parent.appending(unfinished[3]), flags: O_RDONLY)
        #expect(try AppRelocation(request()).run().outcome == .moved)
        #expect(try rig.leftovers().sorted() == unfinished[2...].sorted())
        withExtendedLifetime(held) {}
    }

    @Test func whatRanAllAlongIsNotCalledStarted() throws {
        try kill(at: .recorded, undoing: false)
        var (words, started): ([String], [ManagedProgram]) = ([], [])
        var request = AppMoveRequest(source: group, destination: group)
        request.managers = machine.managers
        let recovery = AppRelocation(request) {
            false
        } report: { event in
            if case .recovered(let text) = event { words.append(text) }
            if case .started(let programs) = event { started += programs }
        }
        _ = try recovery.recover()
        #expect(words == ["running already: notes.service"] && started == [])
        #expect(machine.isRunning && machine.starts == [:])
    }

    // MARK: - Interruptions

    /// A manager goes on with what it was asked for.
    @Test func anInterruptionDoesNotWaitForAStop() throws {
        machine.interruptedAt = "systemctl stop"
        machine.answers["systemctl start"] = .interrupted
        let failure = #expect(throws: RelocationFailure.self) { try move { _ in }.run() }
        #expect(failure?.code == "cancelled", "\(failure?.message ?? "")")
        #expect(failure?.remedy.contains("groupstore recover \(group.shellWord)") == true)
        #expect(machine.startLimit == .seconds(3))
        #expect(try stopped().map(\.name) == ["notes.service"] && !rig.isLink(rig.source))
        machine.answers = [:]
        try perform(.recover)
        try expectStartedOnce()
    }

    @Test func anInterruptionDoesNotWaitForAStart() throws {
        machine.interruptedAt = "systemctl start"
        machine.answers["systemctl start"] = .interrupted
        let failure = #expect(throws: RelocationFailure.self) { try move { _ in }.run() }
        #expect(failure?.code == "cancelled" && failure?.message.contains("\(rig.destination)") == true)
        #expect(try stopped().map(\.name) == ["notes.service"] && rig.isLink(rig.source))
        machine.answers = [:]
        #expect(try AppRelocation(request()).run().outcome == .alreadyMoved)
        try expectStartedOnce()
    }

    @Test func whatRunsAfterAnInterruptionIsNotRecorded() throws {
        machine.interruptedAt = "systemctl stop"
        #expect(throws: RelocationFailure.self) { try move { _ in }.run() }
        try expectStartedOnce()
    }

    /// An engine goes on with a stop that it was asked for, and calls the container running meanwhile.
    @Test func startsAContainerWhoseStopIsUnderWay() throws {
        let rig = try AppRig(.same)
        let machine = try FakeMachine(Self.id, group: "0::/system.slice/docker-\(Self.id).scope\n", holding: rig.source)
        let killed = move(rig, machine) { step in
            if step == .recorded { throw AppRelocation.Abandonment() }
        }
        #expect(throws: RelocationFailure.self) { try killed.run() }
        machine.endSlowly()
        let group = rig.destination.removingLastComponent()
        var request = AppMoveRequest(source: group, destination: group)
        request.managers = machine.managers
        _ = try AppRelocation(request).recover(keepingCopy: false)
        #expect(machine.isRunning && machine.starts == [Self.id: 1])
    }

    // MARK: - Refusals

    /// Something comes to the new place while the program is stopped, or later still.
    @Test(arguments: [
        (AppRig.FileSystem.same, AppMoveStep.stopped), (.same, .journalled), (.another, .stopped),
        (.another, .committing),
    ])
    func aDestinationThatComesIntoBeingIsTaken(_ fileSystem: AppRig.FileSystem, _ point: AppMoveStep) throws {
        let rig = try AppRig(fileSystem)
        let machine = try FakeMachine("a.service", group: "0::/system.slice/a.service\n", holding: rig.source)
        let move = move(rig, machine) { step in
            if step == point { try run("mkdir", [Word(rig.destination)]) }
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(failure?.code == "destination_taken" && failure?.kind == .conflict, "\(failure?.message ?? "")")
        #expect(machine.isRunning && !machine.hasMissedDirectory && machine.starts == ["a.service": 1])
        #expect(try !rig.isLink(rig.source) && Directory(rig.destination).names() == [])
        #expect(try rig.leftovers() == [])
    }

    @Test func aRefusalNamesTheUnitAndTheOption() throws {
        var request = request(stops: false)
        request.deadline = .zero
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
        #expect(failure?.code == "in_use")
        #expect(failure?.message.contains("notes.service") == true)
        #expect(failure?.remedy.contains("--stop-holders") == true)
        #expect(machine.commands == [])
    }

    @Test(arguments: ["Transient=yes", "KillMode=none", "scope", "--rm", "swarm", "answer"])
    func whatCannotBeStartedAgainIsNotStopped(_ reason: String) throws {
        let group =
            switch reason {
            case "scope": "0::/user.slice/session-2.scope\n"
            case "--rm", "swarm": "0::/docker/\(Self.id)\n"
            default: "0::/system.slice/notes.service\n"
            }
        let name = group.contains("docker") ? Self.id : "notes.service"
        let machine = try FakeMachine(name, group: group, holding: rig.source)
        let parts = reason.split(separator: "=").map(String.init)
        if parts.count == 2 { machine.units[name] = [parts[0]: parts[1]] }
        machine.inspection = reason == "--rm" ? "true\n\n\n" : "false\n\nabc\n"
        if reason == "answer" { machine.answers["systemctl show"] = .init(status: 1, message: "No bus") }
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request(machine)).run() }
        #expect(failure?.code == "unmanaged" && failure?.holders.isEmpty == false, "\(failure?.message ?? "")")
        #expect(throws: RelocationFailure.self) { try AppRelocation(request(machine)).dryRun() }
        #expect(machine.isRunning && self.machine.isRunning)
        #expect(!machine.commands.contains { $0.contains(" stop ") || $0.contains("kill") })
        #expect(try Directory(self.group).names() == [])
        #expect(try !rig.isLink(rig.source))
    }

    /// A process in the same unit as this one would be stopped with this one.
    @Test func theUnitOfThisProcessIsNotStopped() throws {
        machine.otherGroup = "0::/system.slice/terminals.service\n"
        machine.units = ["notes.service": ["RequiredBy": "terminals.service"], "terminals.service": [:]]
        machine.active.insert("terminals.service")
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request()).run() }
        #expect(failure?.code == "unmanaged" && failure?.message.contains("terminals.service") == true)
        #expect(machine.isRunning)
    }

    @Test(arguments: [("Access denied", 77), ("Job canceled.", 75)])
    func aRefusedStopStartsWhatWasStopped(_ message: String, _ exit: Int) throws {
        machine.units["notes.service"] = ["TriggeredBy": "notes.timer"]
        machine.units["notes.timer"] = [:]
        machine.active.insert("notes.timer")
        machine.answers["systemctl stop"] = .init(status: 1, message: message)
        let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request()).run() }
        #expect(failure?.code == "not_stopped" && failure?.message.contains(message) == true)
        #expect(failure?.kind == (exit == 77 ? .notPermitted : .busy))
        #expect(machine.isRunning && machine.starts == [:])
        #expect(try stopped() == [])
        #expect(try rig.leftovers() == [])
        #expect(try !rig.isLink(rig.source))
    }

    @Test func aMoveThatFailsStartsWhatItHasStopped() throws {
        let move = move { step in
            if step == .linked { throw Errno.ioError }
        }
        #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(try !rig.isLink(rig.source))
        try expectStartedOnce()
    }

    @Test func aSocketAndATimerAreStoppedBeforeAndStartedAgain() throws {
        machine.units["notes.service"] = ["TriggeredBy": "notes.timer notes.socket"]
        for name in ["notes.timer", "notes.socket"] {
            machine.units[name] = [:]
            machine.active.insert(name)
        }
        let preview = try AppRelocation(request()).dryRun()
        #expect(preview.stopped.map(\.name) == ["notes.timer", "notes.socket", "notes.service"])
        #expect(machine.isRunning)
        _ = try AppRelocation(request()).run()
        let acts = machine.commands.filter { !$0.contains("show") }
        #expect(
            acts == [
                "systemctl --no-ask-password stop -- notes.timer notes.socket notes.service",
                "systemctl --no-ask-password start -- notes.socket notes.service notes.timer",
            ])
        try expectStartedOnce()
    }

    // MARK: - A start that fails

    @Test func aStartThatFailsIsReportedAndTriedAgain() throws {
        machine.answers["systemctl start"] = .init(status: 1, message: "Job for notes.service failed.")
        for outcome in 0..<2 {
            let failure = #expect(throws: RelocationFailure.self) { try AppRelocation(request()).run() }
            #expect(failure?.code == "not_started")
            #expect(failure?.message.contains("Job for notes.service failed.") == true)
            #expect(failure?.remedy.contains("groupstore recover \(group.shellWord)") == true, "\(outcome)")
            #expect(try rig.isLink(rig.source))
            #expect(try stopped().map(\.name) == ["notes.service"])
        }
        machine.answers = [:]
        try perform(.recover)
        try expectStartedOnce()
    }

    @Test func aServiceThatFailsAtOnceIsReported() throws {
        machine.units["notes.service"] = ["ActiveState": "active"]
        let move = move { [machine] step in
            if step == .starting { machine.units["notes.service"] = ["ActiveState": "failed", "Result": "exit-code"] }
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(failure?.code == "not_started" && failure?.message.contains("exit-code") == true)
    }

    /// systemd calls it started.
    @Test func aServiceWhoseConditionIsNotMetIsReported() throws {
        let move = move { [machine] step in
            if step == .starting {
                machine.units["notes.service"] = ["ActiveState": "inactive", "ConditionResult": "no"]
            }
        }
        let failure = #expect(throws: RelocationFailure.self) { try move.run() }
        #expect(failure?.code == "not_started" && failure?.message.contains("Condition") == true)
        #expect(try stopped().map(\.name) == ["notes.service"])
    }

    /// What another user has stopped is started in that user's name, before anything is recorded in this one's.
    @Test(.enabled(if: geteuid() == 0, "needs root")) func anotherUsersRecordIsNotContinued() throws {
        machine.units["mail.service"] = [:]
        let mail = ManagedProgram(.systemd, user: 1234, "mail.service")
        try GroupContainer(group).write(StoppedPrograms(source: rig.source, destination: rig.destination, [mail]))
        #expect(chown(group.pushing(".groupstore/app-stopped.json").string, 1234, 1234) == 0)
        #expect(try AppRelocation(request()).run().outcome == .moved)
        let acts = machine.commands.filter { !$0.contains("show") }
        #expect(acts.map { $0.contains("mail") } == [true, false, false], "\(acts)")
        #expect(machine.starts["mail.service"] == 1)
        try expectStartedOnce()
    }

    @Test func aPersonMayLeaveItStopped() throws {
        try kill(at: .stopped, undoing: false)
        var request = AppMoveRequest(source: group, destination: group)
        request.managers = machine.managers
        _ = try AppRelocation(request).recover(leavingStopped: true)
        #expect(!machine.isRunning && machine.starts == [:])
        #expect(try stopped() == [])
        #expect(try rig.leftovers() == [])
    }

    /// Who may write to the group's directory can't have root start a service.
    @Test(.enabled(if: geteuid() == 0, "needs root"))
    func anotherUsersRecordStartsNothingOfTheSystem() throws {
        try kill(at: .stopped, undoing: false)
        #expect(chown(group.pushing(".groupstore/app-stopped.json").string, 1234, 1234) == 0)
        for next in [Next.recover, .run] {
            let failure = #expect(throws: RelocationFailure.self) { try perform(next) }
            #expect(failure?.code == "not_started", "\(failure?.message ?? "")")
        }
        #expect(!machine.isRunning && machine.starts == [:])
        let stopped = try #require(try AppRelocation.stopped(in: group))
        #expect(stopped.startable == [] && stopped.refusal?.contains("user 1234") == true)
        // Nor does a move that stops something itself pass it on in its own name.
        #expect(try GroupContainer(group).stoppedPrograms()?.writer == 1234)
    }
}
