import AgentProtocol
import ArgumentParser
import GroupContainers
import LinuxSystem
import SystemPackage

/// A group container named on the command line: its directory, or the group's identifier.
enum GroupDirectory {
    /// Returns the directory's absolute path, not normalized: only the kernel knows what ".." means after a symbolic
    /// link. A path that exists takes precedence over an identifier. The directory may not exist.
    static func path(_ text: String) -> FilePath {
        let given = FilePath(workingDirectory()).pushing(ArgumentBytes.path(text))
        guard FileStatus(following: given) == nil, let identifier = GroupIdentifier(text),
            let standard = try? identifier.standardDirectory(environment: ProcessVariables.all),
            FileStatus(following: standard)?.kind == .directory
        else { return given }
        return standard
    }
}
