import GroupContainers
import LinuxSystem
import Logging
import SystemPackage

/// Logs what is worth knowing of a configuration, each thing once.
struct ConfigurationReport {
    private var problems: Set<String> = []
    private var notes: Set<String> = []
    private var missing: Set<FilePath> = []

    /// Has the next configuration's problems logged even if the last one had the same: somebody has tried to fix them.
    mutating func forgetProblems() { problems = [] }

    mutating func log(_ configuration: Configuration, to log: Logger) {
        for problem in configuration.problems where problems.insert(problem.fullMessage).inserted {
            log.error("\(problem.fullMessage) (\(problem.remedy))")
        }
        for note in configuration.notes where notes.insert(note.fullMessage).inserted {
            log.notice("leaving out a group: \(note.fullMessage)")
        }
        for group in configuration.groups where FileStatus(following: group.directory) == nil {
            guard missing.insert(group.directory).inserted else { continue }
            log.notice(
                """
                the directory of \(group.identifier) does not exist yet: \(PrintablePath(group.directory)) \
                (\(group.creationCommand))
                """)
        }
    }
}

extension Configuration.Group {
    /// The command that makes the directory, whatever configuration the command finds.
    package var creationCommand: String {
        "groupstore group create \(identifier) --directory \(directory.shellWord)"
    }
}
