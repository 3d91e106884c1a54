import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation

/// Stops programs, and starts them again, by their managers' commands. Either may have been done before.
struct ProgramControl {
    /// The programs in the order in which they are stopped.
    let programs: [ManagedProgram]
    let managers: ManagerCommands
    /// The limit of each command.
    let limit: Duration
    var isCancelled: () -> Bool = { false }

    /// The time for a start after an interruption: enough to ask for it.
    private static let shortLimit = Duration.seconds(3)
    /// The time after which a service is taken for running, whatever systemd's clock says.
    private static let settlingLimit = Duration.seconds(2)

    /// The programs of one manager.
    private struct Batch {
        let manager: ManagedProgram.Manager
        let user: uid_t?
        var programs: [ManagedProgram]

        var names: [String] { programs.map(\.name) }
    }

    private var batches: [Batch] {
        programs.reduce(into: []) { batches, program in
            if let last = batches.indices.last, batches[last].manager == program.manager,
                batches[last].user == program.user
            {
                batches[last].programs.append(program)
            } else {
                batches.append(Batch(manager: program.manager, user: program.user, programs: [program]))
            }
        }
    }

    // MARK: - Stop

    /// Stops all programs. Throws `RelocationFailure` at the first that isn't stopped.
    func stop() throws(RelocationFailure) {
        for batch in batches {
            for words in stopCommands(batch) {
                let answer = isCancelled() ? .interrupted : runStop(words, batch)
                guard answer.status != 0 else { continue }
                // An application that has ended since is as it should be.
                if batch.manager == .flatpak, try !isRunning(batch) { continue }
                throw Self.notStopped(batch.programs.list, words, answer)
            }
            if batch.manager == .flatpak { try awaitEnd(batch) }
        }
    }

    /// Waits for applications to end: `flatpak kill` does not, and what still runs would not be started again.
    private func awaitEnd(_ batch: Batch) throws(RelocationFailure) {
        let (deadline, shortDeadline) = (Deadline(after: limit), Deadline(after: min(limit, Self.shortLimit)))
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(500))
        while try isRunning(batch) {
            guard !(isCancelled() ? shortDeadline : deadline).hasPassed else {
                throw Self.notStopped(
                    batch.programs.list, managers.words(["flatpak", "kill"] + batch.names.prefix(1), for: batch.user),
                    isCancelled() ? .interrupted : .init(status: -1, message: "still running after \(limit.seconds) s"))
            }
            pause(backoff.next())
        }
    }

    /// Runs a command that stops something. Only systemd starts what it is about to stop: with the others, the end of
    /// the command is waited for, also after an interruption.
    private func runStop(_ words: [String], _ batch: Batch) -> ManagerCommands.Answer {
        managers.run(words, limit) { batch.manager == .systemd && isCancelled() }
    }

    private func stopCommands(_ batch: Batch) -> [[String]] {
        switch batch.manager {
        case .systemd: [managers.systemctl(["--no-ask-password", "stop", "--"] + batch.names, for: batch.user)]
        case .flatpak: batch.names.map { managers.words(["flatpak", "kill", $0], for: batch.user) }
        case .podman, .docker: [managers.engine(batch.manager, ["stop"] + batch.names, for: batch.user)]
        }
    }

    private func isRunning(_ batch: Batch) throws(RelocationFailure) -> Bool {
        let answer = managers.applications(of: batch.user)
        guard answer.status == 0 else {
            throw Self.notStopped(batch.programs.list, managers.words(["flatpak", "ps"], for: batch.user), answer)
        }
        return answer.output.split(separator: "\n").contains { batch.names.contains(String($0)) }
    }

    private static func notStopped(
        _ names: String, _ words: [String], _ answer: ManagerCommands.Answer
    ) -> RelocationFailure {
        let denials = ["authentication", "denied", "not permitted", "permission"]
        let isDenied = denials.contains { answer.message.lowercased().contains($0) }
        return .app(
            isDenied ? .notPermitted : .busy, "not_stopped",
            "\(names) could not be stopped: \(answer.message.isEmpty ? "exit code \(answer.status)" : answer.message)",
            isDenied ? "run this as a user who may stop it" : "stop it, then run this again: \(words.command)")
    }

    // MARK: - Start

    /// What came of a start.
    struct Outcome {
        /// The programs that didn't run before.
        var started: [ManagedProgram] = []
        /// A sentence about each failure.
        var failures: [String] = []
    }

    /// Starts what doesn't run, each manager's in the reverse order. Tries all.
    func start() -> Outcome {
        var outcome = Outcome()
        for var batch in batches.reversed() {
            batch.programs.removeAll { !$0.isStartedAgain }
            switch batch.manager {
            case _ where batch.programs.isEmpty: break
            case .systemd: startUnits(batch, &outcome)
            case .flatpak, .podman, .docker:
                for program in batch.programs.reversed() where !isRunning(program) {
                    if let failure = start(program) { outcome.failures.append(failure) }
                    outcome.started.append(program)
                }
            }
        }
        return outcome
    }

    /// Runs a command that starts something. After an interruption it isn't waited for to its end.
    private func runStart(_ words: [String]) -> ManagerCommands.Answer {
        isCancelled()
            ? managers.run(words, min(limit, Self.shortLimit), { false }) : managers.run(words, limit, isCancelled)
    }

    private func sentence(_ names: String, _ answer: ManagerCommands.Answer) -> String {
        guard answer.isComplete || !isCancelled() else { return Self.unfinished(names) }
        return "\(names) could not be started: "
            + (answer.message.isEmpty ? "exit code \(answer.status)" : answer.message)
    }

    private static func unfinished(_ names: String) -> String { "the start of \(names) was not waited for" }

    private func startUnits(_ batch: Batch, _ outcome: inout Outcome) {
        let names = SystemdUnits.started(batch.names)
        let shown = managers.show(names, for: batch.user)
        guard shown.status == 0 else { return outcome.failures.append(sentence(batch.programs.list, shown)) }
        let units = SystemdUnit.all(in: shown.output)
        let running = Set(
            units.filter { $0.isActive && $0.values["ActiveState"] != "deactivating" && !$0.hasFailed }.map(\.name))
        let jobs = Set(units.filter { $0.values["Type"] == "oneshot" }.map(\.name))
        let stopped = names.filter { !running.contains($0) }
        outcome.started += batch.programs.filter { stopped.contains($0.name) }
        var isComplete = true
        // The start of such a service ends with the service.
        for (options, units) in [
            ([], stopped.filter { !jobs.contains($0) }), (["--no-block"], stopped.filter(jobs.contains)),
        ] where !units.isEmpty {
            let words = ["--no-ask-password"] + options + ["start", "--"] + units
            let answer = runStart(managers.systemctl(words, for: batch.user))
            isComplete = isComplete && answer.isComplete
            guard answer.status == 0 || (!answer.isComplete && isCancelled()) else {
                return outcome.failures.append(sentence(units.joined(separator: ", "), answer))
            }
        }
        // systemd calls a simple service started before its program has begun, and one whose condition isn't met, too.
        outcome.failures += settled(stopped, batch).compactMap { unit in
            switch (unit.values["ActiveState"], unit.values["ConditionResult"]) {
            case _ where unit.hasFailed:
                "\(unit.name) could not be started: it has failed (\(unit.values["Result"] ?? "no result"))"
            case (let state, _) where !isComplete && state != "active" && !jobs.contains(unit.name):
                Self.unfinished(unit.name)
            // systemd may have forgotten which of the two it was.
            case ("inactive", "no"):
                "\(unit.name) doesn't run: it has ended at once, or one of its conditions (Condition…=) is not met"
            default: nil
            }
        }
    }

    /// Returns the units once one has failed, or systemd has called each service active for a second.
    private func settled(_ names: [String], _ batch: Batch) -> [SystemdUnit] {
        guard !names.isEmpty else { return [] }
        let deadline = Deadline(after: Self.settlingLimit)
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(50))
        while true {
            let isLast = deadline.hasPassed || isCancelled()
            let units = SystemdUnit.all(in: managers.show(names, for: batch.user).output)
            guard !isLast, units.contains(where: \.isNew), !units.contains(where: \.hasFailed) else { return units }
            pause(backoff.next())
        }
    }

    /// True if an application or a container runs, and goes on. A stop of a container may be under way, which a killed
    /// run has asked for: it is waited for as long as the container may take.
    private func isRunning(_ program: ManagedProgram) -> Bool {
        guard program.manager != .flatpak else {
            return (try? isRunning(Batch(manager: .flatpak, user: program.user, programs: [program]))) == true
        }
        let format = "{{.State.Status}} {{.Config.StopTimeout}}"
        let words = ["inspect", "--type", "container", "--format", format, program.name]
        var deadline: Deadline?
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(500))
        while true {
            let answer = managers.ask(managers.engine(program.manager, words, for: program.user))
            let state = answer.output.split { $0 == " " || $0 == "\n" }
            guard answer.status == 0, let status = state.first else { return false }
            guard ["running", "stopping"].contains(status) else { return ["paused", "restarting"].contains(status) }
            let end = deadline ?? Deadline(after: isCancelled() ? .zero : min(limit, Self.stopLimit(state.last)))
            guard !end.hasPassed else { return status == "running" }
            deadline = end
            pause(backoff.next())
        }
    }

    /// The time until a container's end is forced, and a second for that. The engines' default is 10 s.
    private static func stopLimit(_ seconds: Substring?) -> Duration {
        .seconds(1 + min(max(seconds.flatMap { Int($0) } ?? 10, 0), 86_400))
    }

    /// Starts an application or a container. Returns a sentence if that fails.
    private func start(_ program: ManagedProgram) -> String? {
        guard program.manager == .flatpak else {
            let answer = runStart(managers.engine(program.manager, ["start", program.name], for: program.user))
            return answer.status == 0 ? nil : sentence(program.words, answer)
        }
        // The user's systemd runs the application, with the environment of the user's session.
        let words = ["systemd-run", "--user", "--collect", "--quiet", "flatpak", "run", program.name]
        let answer = runStart(managers.words(words, for: program.user))
        guard answer.status == 0 else { return sentence(program.words, answer) }
        let deadline = Deadline(after: isCancelled() ? min(limit, Self.shortLimit) : limit)
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(500))
        let wasCancelled = isCancelled()
        while !isRunning(program) {
            guard !deadline.hasPassed else { return "\(program.words) does not run after its start" }
            guard wasCancelled || !isCancelled() else { return Self.unfinished(program.words) }
            pause(backoff.next())
        }
        return nil
    }
}
