import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation

/// What is stopped so that a directory can move. It is decided for all holders before the first one is stopped.
struct HolderPlan {
    /// In the order in which they are stopped.
    private(set) var programs: [ManagedProgram] = []
    private let managers: ManagerCommands
    private var refused: [String] = []

    /// Asks the managers about each holder. Throws `RelocationFailure` if one of them can't be stopped and started
    /// again.
    init(_ holders: [FileHolder], of place: String, _ managers: ManagerCommands) throws(RelocationFailure) {
        self.managers = managers
        for holder in holders {
            do throws(Unmanageable) {
                try add(holder.pid)
            } catch {
                refused.append("\(holder), \(error.reason)")
            }
        }
        if case .managed(let own) = managers.origin(of: getpid()), programs.contains(where: own.isSame) {
            refused.append("\(own.words), to which this command belongs")
        }
        // A unit is stopped with the others of its manager, by one command.
        programs = Self.order(programs)
        guard !refused.isEmpty else { return }
        var failure = RelocationFailure.app(
            .busy, "unmanaged",
            "\(place) is in use by what can't be stopped and started again: \(refused.joined(separator: "; "))",
            "end these programs, then run this again")
        failure.holders = holders
        throw failure
    }

    private mutating func add(_ pid: Int32) throws(Unmanageable) {
        guard let origin = managers.origin(of: pid) else { return }
        switch origin {
        case .unmanaged(let words): throw Unmanageable(reason: "which belongs to \(words)")
        case .managed(let program):
            guard program.user == nil || program.user == geteuid() || geteuid() == 0 else {
                throw Unmanageable(reason: "which is another user's")
            }
            switch program.manager {
            case .systemd: try addUnits(program, pid)
            case .flatpak: try addApplication(program)
            case .podman, .docker: try addContainer(program)
            }
        }
    }

    private mutating func add(_ program: ManagedProgram) {
        if !programs.contains(program) { programs.append(program) }
    }

    private mutating func addUnits(_ program: ManagedProgram, _ pid: Int32?) throws(Unmanageable) {
        let (managers, user) = (managers, program.user)
        let units = SystemdUnits { names throws(Unmanageable) in
            let answer = managers.show(names, for: user)
            guard answer.status == 0 else {
                throw Unmanageable(reason: "which belongs to \(program.words): \(answer.message)")
            }
            return SystemdUnit.all(in: answer.output)
        }
        for unit in try units.stopped(with: program.name, of: pid) {
            var stopped = ManagedProgram(.systemd, user: user, unit.name)
            stopped.isStartedAgain = unit.isStartedAgain
            add(stopped)
        }
    }

    private mutating func addApplication(_ program: ManagedProgram) throws(Unmanageable) {
        let answer = managers.applications(of: program.user)
        guard answer.status == 0 else { throw Unmanageable(reason: "which is \(program.words): \(answer.message)") }
        add(program)
    }

    private mutating func addContainer(_ program: ManagedProgram) throws(Unmanageable) {
        let lines = [
            "{{.HostConfig.AutoRemove}}", #"{{index .Config.Labels "PODMAN_SYSTEMD_UNIT"}}"#,
            #"{{index .Config.Labels "com.docker.swarm.service.id"}}"#,
        ]
        let words = ["inspect", "--type", "container", "--format", lines.joined(separator: "\n"), program.name]
        let answer = managers.ask(managers.engine(program.manager, words, for: program.user))
        guard answer.status == 0 else { throw Unmanageable(reason: "which is \(program.words): \(answer.message)") }
        let values = answer.output.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        guard values.first == "false" else {
            throw Unmanageable(reason: "which is \(program.words), and is removed once it stops (--rm)")
        }
        guard values.count < 3 || values[2].isEmpty else {
            throw Unmanageable(reason: "which is \(program.words), and a swarm starts another one")
        }
        guard values.count > 1, !values[1].isEmpty else { return add(program) }
        // The unit would start the container again.
        try addUnits(ManagedProgram(.systemd, user: program.user, values[1]), nil)
    }

    /// Puts the programs of each manager together: applications and containers before services, which they may use, and
    /// users' before the system's.
    private static func order(_ programs: [ManagedProgram]) -> [ManagedProgram] {
        func rank(_ program: ManagedProgram) -> (Int, Int64) {
            let kind = [ManagedProgram.Manager.flatpak, .podman, .docker].firstIndex(of: program.manager) ?? 3
            return (kind, program.user.map { -Int64($0) } ?? 1)
        }
        return programs.enumerated().sorted { (rank($0.element), $0.offset) < (rank($1.element), $1.offset) }
            .map(\.element)
    }
}

extension ManagedProgram {
    fileprivate func isSame(_ other: ManagedProgram) -> Bool {
        manager == other.manager && user == other.user && name == other.name
    }
}

extension ManagerCommands {
    func show(_ units: [String], for user: uid_t?) -> Answer {
        let words = ["show", "--no-pager", "--property=\(SystemdUnit.properties.joined(separator: ","))", "--"] + units
        return ask(systemctl(words, for: user))
    }

    /// Lists the running Flatpak applications of a user, a line each. Flatpak itself lists one for some seconds after
    /// its end.
    func applications(of user: uid_t?) -> Answer {
        var answer = ask(words(["flatpak", "ps", "--columns=pid,child-pid,application"], for: user))
        let running = answer.output.split(separator: "\n").compactMap { line -> Substring? in
            let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
            let areThere = fields.dropLast().compactMap { Int32($0) }.allSatisfy { file($0, "cgroup") != nil }
            return areThere ? fields.last : nil
        }
        answer.output = running.joined(separator: "\n")
        return answer
    }
}

/// A tuple of tuples can't be compared.
private func < (
    first: ((Int, Int64), Int), second: ((Int, Int64), Int)
) -> Bool {
    first.0 == second.0 ? first.1 < second.1 : first.0 < second.0
}
