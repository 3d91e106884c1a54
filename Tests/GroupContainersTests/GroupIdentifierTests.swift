import GroupContainers
import SystemPackage
import Testing

/// Where a group's directory is looked for.
@Suite struct GroupIdentifierTests {
    private let group = GroupIdentifier("group.com.example.notes")

    private func directory(_ environment: [String: String]) -> FilePath? {
        group?.defaultDirectory(environment: environment)
    }

    @Test func itIsAmongTheUsersData() {
        #expect(directory(["HOME": "/home/me"]) == "/home/me/.local/share/app-groups/group.com.example.notes")
        #expect(
            directory(["HOME": "/home/me", "XDG_DATA_HOME": "/data"]) == "/data/app-groups/group.com.example.notes")
        #expect(directory(["HOME": "/home/me", "XDG_DATA_HOME": "relative"])?.starts(with: "/home/me") == true)
        #expect(directory([:]) == nil)
    }

    @Test func itMayBeNamed() {
        let environment = ["HOME": "/home/me", "HOST_XDG_DATA_HOME": "/data", "GROUPSTORE_CONTAINERS": "/groups"]
        #expect(directory(environment) == "/groups/group.com.example.notes")
    }

    /// Flatpak gives the app an XDG_DATA_HOME of its own, and tells of the user's only where there is one.
    @Test func insideAFlatpakItIsStillAmongTheUsersData() {
        var environment = [
            "HOME": "/home/me", "XDG_DATA_HOME": "/home/me/.var/app/com.example.Notes/data",
            "FLATPAK_ID": "com.example.Notes",
        ]
        #expect(directory(environment) == "/home/me/.local/share/app-groups/group.com.example.notes")
        environment["HOST_XDG_DATA_HOME"] = "/data"
        #expect(directory(environment) == "/data/app-groups/group.com.example.notes")
    }
}
