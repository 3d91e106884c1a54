import Glibc
import LinuxSystem
import SystemPackage

/// A program as its service manager knows it.
package struct ManagedProgram: Codable, Hashable, Sendable {
    package enum Manager: String, Codable, Sendable {
        case systemd, flatpak, podman, docker
    }

    package let manager: Manager
    /// The user whose manager it is; nil for the system's.
    package let user: uid_t?
    /// The unit's name, the application's identifier or the container's.
    package let name: String
    /// False if another program of the list starts it: a socket makes a service for each connection.
    package var isStartedAgain = true

    package init(_ manager: Manager, user: uid_t?, _ name: String) {
        (self.manager, self.user, self.name) = (manager, user, name)
    }
}

/// The file `.groupstore/app-stopped.json`: what a directory's move has stopped, or is about to. It is written before
/// the first program is stopped, and removed once all of them run again. Only the holder of the group's lock writes it.
package struct StoppedPrograms: OwnedRecord, Codable, Equatable, Sendable {
    package var version = 1
    /// The directory's place before and after the move.
    package let source: StoredPath
    package let destination: StoredPath
    /// In the order in which they are stopped.
    package var programs: [ManagedProgram]
    package var writer = geteuid()

    private enum CodingKeys: CodingKey {
        case version, source, destination, programs
    }

    package init(source: FilePath, destination: FilePath, _ programs: [ManagedProgram]) {
        (self.source, self.destination) = (StoredPath(source), StoredPath(destination))
        self.programs = programs
    }
}

extension GroupContainer {
    private static let stoppedName: FilePath.Component = "app-stopped.json"

    /// Returns the programs that a move has stopped and not yet started again, or nil if there are none.
    package func stoppedPrograms() throws -> StoppedPrograms? {
        try existingBookkeeping().flatMap { try Record.readOwned(StoppedPrograms.self, Self.stoppedName, in: $0) }
    }

    package func write(_ stopped: StoppedPrograms) throws {
        // Its writer's rights are what the programs are started with.
        try Record.write(stopped, Self.stoppedName, in: bookkeeping(), isOwn: true)
    }

    package func removeStoppedPrograms() throws {
        if let bookkeeping = try existingBookkeeping() { try Record.remove(Self.stoppedName, in: bookkeeping) }
    }
}
