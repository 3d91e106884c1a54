import GroupContainers
import SystemPackage
import Testing

/// The default directory of a group.
@Suite struct GroupIdentifierTests {
    private let group = GroupIdentifier("group.com.example.notes")

    private func directory(_ environment: [String: String]) -> FilePath? {
        group?.defaultDirectory(environment: environment)
    }

    @Test func usesTheUsersDataDirectory() {
        #expect(directory(["HOME": "/home/me"]) == "/home/me/.local/share/app-groups/group.com.example.notes")
        #expect(
            directory(["HOME": "/home/me", "XDG_DATA_HOME": "/data"]) == "/data/app-groups/group.com.example.notes")
        #expect(directory(["HOME": "/home/me", "XDG_DATA_HOME": "relative"])?.starts(with: "/home/me") == true)
        #expect(directory([:]) == nil)
    }

    @Test func usesTheEnvironmentVariable() {
        let environment = ["HOME": "/home/me", "HOST_XDG_DATA_HOME": "/data", "GROUPSTORE_CONTAINERS": "/groups"]
        #expect(directory(environment) == "/groups/group.com.example.notes")
    }

    /// Flatpak sets an XDG_DATA_HOME for the app, and passes on the user's only if it was set.
    @Test func usesTheUsersDataDirectoryInsideAFlatpak() {
        var environment = [
            "HOME": "/home/me", "XDG_DATA_HOME": "/home/me/.var/app/com.example.Notes/data",
            "FLATPAK_ID": "com.example.Notes",
        ]
        #expect(directory(environment) == "/home/me/.local/share/app-groups/group.com.example.notes")
        environment["HOST_XDG_DATA_HOME"] = "/data"
        #expect(directory(environment) == "/data/app-groups/group.com.example.notes")
    }
}
