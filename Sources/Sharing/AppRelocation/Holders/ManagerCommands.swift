import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage

/// The service managers' own commands, and what the kernel tells of a process. A test replaces both.
package struct ManagerCommands: Sendable {
    /// The result of a command.
    package struct Answer: Sendable {
        package var status: Int32
        package var output: String
        /// The command's own message, in one line; empty if it had none.
        package var message: String
        /// False if the command was not waited for to its end: what it asked for may still happen.
        package var isComplete = true

        package init(status: Int32, output: String = "", message: String = "") {
            (self.status, self.output, self.message) = (status, output, message)
        }
    }

    /// Runs a command for at most this time, and not longer than until the process is interrupted.
    package var run: @Sendable (_ words: [String], _ limit: Duration, _ isCancelled: () -> Bool) -> Answer
    /// Returns the content of a process's file below `/proc`, or nil if it can't be read.
    package var file: @Sendable (_ process: Int32, _ name: FilePath) -> String?

    package init(
        run: @escaping @Sendable (_ words: [String], _ limit: Duration, _ isCancelled: () -> Bool) -> Answer,
        file: @escaping @Sendable (Int32, FilePath) -> String?
    ) {
        (self.run, self.file) = (run, file)
    }

    package static let real = ManagerCommands { words, limit, isCancelled in
        var program = SpawnedProgram("/usr/bin/env", (["env", "LC_ALL=C"] + words).map { Array($0.utf8) })
        // Whoever interrupts this process doesn't interrupt the start of a service.
        program.leadsGroup = true
        do throws(SystemError) {
            let ended = try program.run(until: Deadline(after: limit), limit: 1 << 18, isCancelled: isCancelled)
            guard !ended.isCancelled else { return .interrupted }
            let message = Self.line(ended.errors.isEmpty && ended.status != 0 ? ended.output : ended.errors)
            var answer = Answer(
                status: ended.isLate ? -1 : ended.status, output: String(decoding: ended.output, as: UTF8.self),
                message: ended.isLate ? "no answer in \(limit.seconds) s" : message)
            answer.isComplete = !ended.isLate
            return answer
        } catch {
            return Answer(status: -1, message: "\(error)")
        }
    } file: { pid, name in
        // The kernel's link to another root leads there only if it is followed by the kernel.
        let flags = O_RDONLY | O_NONBLOCK
        guard let file = try? Descriptor(opening: FilePath("/proc/\(pid)").pushing(name), flags: flags),
            (try? file.status())?.kind == .regular, let bytes = try? file.read(count: 1 << 14, at: 0)
        else { return nil }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Asks a question.
    func ask(_ words: [String]) -> Answer { run(words, .seconds(20)) { false } }

    /// Returns what manages a process, or nil if that has ended.
    func origin(of pid: Int32) -> ControlGroup? {
        file(pid, "cgroup").map { ControlGroup($0, flatpakInfo: file(pid, "root/.flatpak-info")) }
    }

    /// Returns the words with what makes them a command for that user's manager.
    func words(_ words: [String], for user: uid_t?) -> [String] {
        guard let user else { return words }
        let place = "XDG_RUNTIME_DIR=/run/user/\(user)"
        guard user != geteuid() else { return getenv("XDG_RUNTIME_DIR") == nil ? ["env", place] + words : words }
        let variables = [
            place, "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/\(user)/bus", "HOME=\(UserNames.home(of: user))",
        ]
        let group = "--regid=\(UserNames.firstGroup(of: user))"
        return ["setpriv", "--reuid=\(user)", group, "--init-groups", "env"] + variables + words
    }

    func systemctl(_ words: [String], for user: uid_t?) -> [String] {
        let command = user == nil ? ["systemctl"] : ["systemctl", "--user"]
        return self.words(command + words, for: user)
    }

    /// Returns a container engine's command.
    func engine(_ manager: ManagedProgram.Manager, _ words: [String], for user: uid_t?) -> [String] {
        let socket = user.map { "DOCKER_HOST=unix:///run/user/\($0)/docker.sock" }
        let prefix = manager == .docker ? socket.map { ["env", $0] } ?? [] : []
        return self.words(prefix + [manager.rawValue] + words, for: user)
    }

    private static func line(_ bytes: [UInt8]) -> String {
        String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isNewline).prefix(4)
            .map { "\(PrintableText(String($0)))" }.joined(separator: " ")
    }
}

extension ManagerCommands.Answer {
    package static var interrupted: Self {
        var answer = Self(status: -1, message: "interrupted")
        answer.isComplete = false
        return answer
    }
}

extension [String] {
    /// The words as a command for a person's shell.
    var command: String { map { word in ShellText.word([UInt8](word.utf8)) }.joined(separator: " ") }
}

extension ManagedProgram {
    /// The program in words for a message.
    package var words: String {
        let place =
            switch manager {
            case .systemd: user.map { " of user \($0)" } ?? ""
            case .flatpak: " (Flatpak)"
            case .podman, .docker: " (\(manager.rawValue)\(user.map { ", user \($0)" } ?? ""))"
            }
        return (manager == .podman || manager == .docker ? String(name.prefix(12)) : name) + place
    }
}

extension [ManagedProgram] {
    package var list: String { map(\.words).joined(separator: ", ") }
}
