import FoundationEssentials
import GroupContainers
import GroupStore

extension GroupContainer {
    /// Opens the group container with this identifier in its standard directory, which is created if it doesn't exist.
    ///
    /// Inside a Flatpak it isn't: a directory that the sandbox doesn't share would be gone when the app ends.
    ///
    /// Throws `GroupStoreError`.
    static func opened(identifier: String) throws(GroupStoreError) -> GroupContainer {
        let environment = ProcessInfo.processInfo.environment
        do {
            return try GroupContainer(identifier: identifier)
        } catch {
            guard error.code == .noContainer, environment["FLATPAK_ID"] == nil,
                let path = GroupIdentifier(identifier)?.defaultDirectory(environment: environment)
            else { throw error }
            do {
                try FileManager.default.createDirectory(
                    atPath: path.string, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            } catch let failure {
                throw GroupStoreError(
                    .noContainer, "\(error.message), and it can't be created: \(failure)", remedy: error.remedy)
            }
            return try GroupContainer(identifier: identifier)
        }
    }
}
