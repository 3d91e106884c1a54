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
                let answer = managers.run(words, limit)
                guard answer.status != 0 else { continue }
                // An application that has ended since is as it should be.
                if batch.manager == .flatpak, try !isRunning(batch) { continue }
                throw Self.notStopped(batch.programs.list, words, answer)
            }
        }
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

    /// Starts what doesn't run, each manager's in the reverse order. Tries all, and returns a sentence about each
    /// failure.
    func start() -> [String] { batches.reversed().flatMap { start($0) } }

    private func start(_ batch: Batch) -> [String] {
        var wanted = batch
        wanted.programs.removeAll { !$0.isStartedAgain }
        guard !wanted.programs.isEmpty else { return [] }
        switch wanted.manager {
        case .systemd: return startUnits(wanted)
        case .flatpak: return wanted.programs.reversed().compactMap { startApplication($0) }
        case .podman, .docker: return wanted.programs.reversed().compactMap { startContainer($0) }
        }
    }

    private static func sentence(_ names: String, _ answer: ManagerCommands.Answer) -> String {
        "\(names) could not be started: \(answer.message.isEmpty ? "exit code \(answer.status)" : answer.message)"
    }

    private func startUnits(_ batch: Batch) -> [String] {
        let names = SystemdUnits.started(batch.names)
        let shown = managers.show(names, for: batch.user)
        guard shown.status == 0 else { return [Self.sentence(batch.programs.list, shown)] }
        let units = SystemdUnit.all(in: shown.output)
        let running = Set(units.filter { $0.isActive && $0.values["ActiveState"] != "deactivating" }.map(\.name))
        let jobs = Set(units.filter { $0.values["Type"] == "oneshot" }.map(\.name))
        let stopped = names.filter { !running.contains($0) }
        // The start of such a service ends with the service.
        for (options, units) in [
            ([], stopped.filter { !jobs.contains($0) }), (["--no-block"], stopped.filter(jobs.contains)),
        ] where !units.isEmpty {
            let words = ["--no-ask-password"] + options + ["start", "--"] + units
            let answer = managers.run(managers.systemctl(words, for: batch.user), limit)
            guard answer.status == 0 else { return [Self.sentence(units.joined(separator: ", "), answer)] }
        }
        // systemd calls a simple service started before its program has begun, and one whose condition isn't met, too.
        let now = stopped.isEmpty ? [] : SystemdUnit.all(in: managers.show(stopped, for: batch.user).output)
        return now.compactMap { unit in
            switch (unit.values["ActiveState"], unit.values["ConditionResult"]) {
            case ("failed", _):
                "\(unit.name) could not be started: it has failed (\(unit.values["Result"] ?? "no result"))"
            case ("inactive", "no"): "\(unit.name) was not started: one of its conditions (Condition…=) is not met"
            default: nil
            }
        }
    }

    private func startContainer(_ program: ManagedProgram) -> String? {
        let question = ["inspect", "--type", "container", "--format", "{{.State.Running}}", program.name]
        func run(_ words: [String], _ limit: Duration) -> ManagerCommands.Answer {
            managers.run(managers.engine(program.manager, words, for: program.user), limit)
        }
        let state = run(question, ManagerCommands.patience)
        if state.status == 0, state.output.hasPrefix("true") { return nil }
        let answer = run(["start", program.name], limit)
        return answer.status == 0 ? nil : Self.sentence(program.words, answer)
    }

    /// Has the user's systemd run the application, with the environment of the user's session.
    private func startApplication(_ program: ManagedProgram) -> String? {
        let batch = Batch(manager: .flatpak, user: program.user, programs: [program])
        if (try? isRunning(batch)) == true { return nil }
        let words = ["systemd-run", "--user", "--collect", "--quiet", "flatpak", "run", program.name]
        let answer = managers.run(managers.words(words, for: program.user), limit)
        guard answer.status == 0 else { return Self.sentence(program.words, answer) }
        let deadline = Deadline(after: limit)
        var backoff = Backoff(first: .milliseconds(20), longest: .milliseconds(500))
        while (try? isRunning(batch)) != true {
            guard !deadline.hasPassed else { return "\(program.words) does not run after its start" }
            pause(backoff.next())
        }
        return nil
    }
}
