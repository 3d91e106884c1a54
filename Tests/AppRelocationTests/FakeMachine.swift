import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport

@testable import AppRelocation

/// A service manager that runs one program, which has a file of a directory open. It has the commands of all managers.
///
/// Unchecked: a test uses it on one thread.
final class FakeMachine: @unchecked Sendable {
    /// The unit, application or container that the program is.
    let name: String
    let group: String
    let place: FilePath
    /// The properties of each unit; those of this name are also the program's.
    var units: [String: [String: String]] = [:]
    var active: Set<String>
    /// What `systemctl` says of the program's unit after its start, one answer after another. The last one stays.
    var afterStart: [[String: String]] = []
    /// The starts of each unit, and the commands that were run, without what makes them one for another user.
    private(set) var starts: [String: Int] = [:]
    private(set) var commands: [String] = []
    /// The control group of other processes, such as this one.
    var otherGroup = "0::/user.slice/user-1000.slice/session-1.scope\n"
    /// The answer to a command that begins so, instead of what it does.
    var answers: [String: ManagerCommands.Answer] = [:]
    /// The beginning of the command during which this process is interrupted. The manager goes on with it.
    var interruptedAt: String?
    private(set) var isInterrupted = false
    /// The limit of the last start.
    private(set) var startLimit = Duration.zero
    /// How many times the program is still seen to run after its stop.
    private var afterlife = 0
    /// What `inspect` says of a container.
    var inspection = "false\n\n\n"
    private var program: RunningProcess?
    /// The path was no directory when the program was started.
    private(set) var hasMissedDirectory = false

    init(_ name: String, group: String, holding place: FilePath) throws {
        (self.name, self.group, self.place, active) = (name, group, place, [name])
        units[name] = [:]
        try launch()
    }

    var managers: ManagerCommands {
        ManagerCommands { words, limit, isCancelled in
            let words = Array(words.drop { !["systemctl", "systemd-run", "flatpak", "podman", "docker"].contains($0) })
            if words.contains("start") { self.startLimit = limit }
            let answer = self.answer(words)
            return isCancelled() ? .interrupted : answer
        } file: { pid, name in
            guard name == "cgroup", pid != Self.ended else { return nil }
            return pid == self.program?.pid ? self.group : self.otherGroup
        }
    }

    /// A process that has ended, which `flatpak ps` still lists.
    private static let ended: Int32 = 0

    var isRunning: Bool { program != nil }

    private func launch() throws {
        let script = "exec 3<\"$1\"/file && echo open && read end"
        let process = try RunningProcess("sh", ["-c", Word(script), "sh", Word(place)])
        guard try process.line() == "open" else { return hasMissedDirectory = true }
        program = process
    }

    /// Ends the program, which is still seen to run for a while.
    func endSlowly() {
        stop([name])
        afterlife = 2
    }

    private func stop(_ names: some Sequence<String>) {
        for name in names where active.remove(name) != nil && name == self.name { program = nil }
    }

    private func start(_ names: some Sequence<String>) {
        for name in names where active.insert(name).inserted {
            starts[name, default: 0] += 1
            if name == self.name { try? launch() }
        }
    }

    private func answer(_ words: [String]) -> ManagerCommands.Answer {
        commands.append(words.joined(separator: " "))
        let text = words.filter { !["--user", "--no-ask-password"].contains($0) }.joined(separator: " ")
        if let interruptedAt, text.hasPrefix(interruptedAt) { isInterrupted = true }
        if let answer = answers.first(where: { text.hasPrefix($0.key) })?.value { return answer }
        let names = words.drop { $0 != "--" }.dropFirst()
        switch (words.first, words.contains("stop"), words.contains("start")) {
        case ("systemctl", true, _): stop(names)
        case ("systemctl", _, true): start(names)
        case ("systemctl", _, _): return .init(status: 0, output: names.map(describe).joined(separator: "\n"))
        case ("flatpak", _, _) where words.contains("ps"):
            let running = active.isEmpty && afterlife > 0 ? [name] : active.sorted()
            afterlife -= 1
            let lines = running.map { "\(getpid())\t\t\($0)" } + ["\(getpid())\t\(Self.ended)\t\(name)"]
            return .init(status: 0, output: lines.joined(separator: "\n"))
        case ("flatpak", _, _):
            if words[2] == name { endSlowly() }
        case ("systemd-run", _, _): start([words[words.count - 1]])
        case ("podman", true, _), ("docker", true, _): stop(words.dropFirst(2))
        case ("podman", _, true), ("docker", _, true): start(words.dropFirst(2))
        case ("podman", _, _), ("docker", _, _):
            guard words.contains(where: { $0.contains("State.Status") }) else {
                return .init(status: 0, output: inspection)
            }
            let isActive = active.contains(words[words.count - 1]) || afterlife > 0
            afterlife -= 1
            return .init(status: 0, output: isActive ? "running <nil>\n" : "exited <nil>\n")
        default: return .init(status: 127, message: "env: ‘\(words.first ?? "")’: No such file or directory")
        }
        return .init(status: 0)
    }

    private func describe(_ name: String) -> String {
        var values = ["LoadState": units[name] == nil ? "not-found" : "loaded", "KillMode": "control-group"]
        values["ActiveState"] = active.contains(name) ? "active" : "inactive"
        if name == self.name, let program { values["MainPID"] = "\(program.pid)" }
        values.merge(units[name] ?? [:]) { $1 }
        if starts[name] != nil, let next = afterStart.first {
            values.merge(next) { $1 }
            if afterStart.count > 1 { afterStart.removeFirst() }
        }
        return (["Id=\(name)"] + values.map { "\($0.key)=\($0.value)" }).joined(separator: "\n") + "\n"
    }
}
