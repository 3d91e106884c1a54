import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// The directories of a user without a configuration: a home, and empty ones for vendors' and the system's files.
package struct UserAccount {
    private let place: TemporaryDirectory
    package let socket: FilePath
    package let environment: [String: String]
    package var home: FilePath { place.path.appending("home") }
    /// The standard place of group containers.
    package var containers: FilePath { home.pushing(".local/share/app-groups") }
    package var vendorDropIns: FilePath { place.path.pushing("vendor/groupstore/groups.d") }
    package var userDropIns: FilePath { home.pushing(".config/groupstore/groups.d") }
    package var mainFile: FilePath { home.pushing(".config/groupstore/config.yaml") }

    package init() throws {
        place = try TemporaryDirectory()
        let path = place.path
        socket = path.appending("agent.sock")
        environment = [
            "HOME": path.appending("home").string, "GROUPSTORE_SOCKET": socket.string, "XDG_DATA_HOME": "",
            "XDG_CONFIG_HOME": "", "XDG_DATA_DIRS": path.appending("vendor").string,
            "XDG_CONFIG_DIRS": path.appending("system").string, "GROUPSTORE_CONTAINERS": "", "HOST_XDG_DATA_HOME": "",
            "FLATPAK_ID": "",
        ].filter { !$0.value.isEmpty || getenv($0.key) != nil }
        try run("mkdir", ["-p", Word(vendorDropIns), Word(userDropIns)])
    }

    package func scratch(_ name: String) -> FilePath { place.path.appending(name) }

    /// Starts an agent, and waits until it serves.
    package func agent(_ options: [Word] = []) throws -> RunningProcess {
        let agent = try RunningProcess(Programs.groupstore, ["agent"] + options, environment: environment)
        try agent.line(.errors) { $0.contains("] serving ") }
        return agent
    }

    /// Runs a command to its end.
    @discardableResult
    package func command(_ arguments: Word...) throws -> FinishedProcess {
        try run(Programs.groupstore, arguments, environment: environment)
    }
}
