import ArgumentParser
import LinuxSystem

/// A command that may work without `/proc`. Other commands don't begin without it.
package protocol ProcIndependentCommand: ParsableCommand {
    /// True if it needs `/proc` with these arguments.
    var needsProc: Bool { get }
}

extension ProcIndependentCommand {
    package var needsProc: Bool { false }
}

extension ParsableCommand {
    /// Parses the arguments and runs the command that they name. Ends the program if that fails.
    ///
    /// - Parameter program: The name with which the line of a failure begins.
    package static func run(_ arguments: [String], program: String) {
        do {
            var command = try parseAsRoot(arguments)
            let needsProc = (command as? any ProcIndependentCommand)?.needsProc ?? contains(type(of: command))
            if needsProc { try requireProc(isJSON: arguments.contains("--json"), program) }
            try command.run()
        } catch {
            exit(withError: error)
        }
    }

    /// True if the command is one of this command's own, and not ArgumentParser's help. A command that has subcommands
    /// only prints its own.
    private static func contains(_ command: any ParsableCommand.Type) -> Bool {
        let subcommands = configuration.subcommands
        return subcommands.isEmpty ? command == self : subcommands.contains { $0.contains(command) }
    }

    private static func requireProc(isJSON: Bool, _ program: String) throws {
        do {
            try ProcFileSystem.require()
        } catch {
            Output(json: isJSON, quiet: false).fail(FailureReport(error), program: program)
            throw ExitStatus.configuration.code
        }
    }
}
