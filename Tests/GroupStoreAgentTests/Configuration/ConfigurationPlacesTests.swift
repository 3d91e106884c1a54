import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

/// Checks of a configuration's paths against the disk.
@Suite struct ConfigurationPlacesTests {
    private let scratch: TemporaryDirectory
    private let directory: Directory

    init() throws {
        scratch = try TemporaryDirectory()
        directory = try Directory(scratch.path)
    }

    private func load(_ text: String) throws(ConfigurationError) -> Configuration {
        try ConfigurationFile("/etc/test.yaml", environment: [:])
            .parse(text.replacing("SCRATCH", with: scratch.path.string))
    }

    @Test func acceptsADirectoryThatDoesNotExistYet() throws {
        let configuration = try load("groups: [{ id: a, directory: SCRATCH/later }]")
        #expect(configuration.groups.map(\.directory) == [scratch.path.appending("later")])
        #expect(try directory.status("later") == nil)
    }

    @Test func refusesTwoPathsToOneFile() throws {
        try directory.makeDirectory("real", mode: 0o700)
        try directory.makeSymbolicLink("link", to: "real")
        let legacy = """
            groups:
              - id: a
                directory: SCRATCH
                stores:
                  - { name: A, legacy: [SCRATCH/real/x] }
                  - { name: B, legacy: [SCRATCH/link/x] }
            """
        #expect(throws: ConfigurationError.self) { try load(legacy) }
    }

    /// A relocation may have left a link at the old name.
    @Test func acceptsALegacyPathThatLinksToTheStore() throws {
        try directory.makeDirectory("old", mode: 0o700)
        try directory.directory("old").makeSymbolicLink("A", to: "../A")
        let configuration = try load(
            "groups: [{ id: a, directory: SCRATCH, stores: [{ name: A, legacy: [SCRATCH/old/A] }] }]")
        #expect(configuration.groups.first?.stores.first?.legacy.count == 1)
    }

    @Test func prefersTheUsersConfigurationFile() throws {
        let environment = ["XDG_CONFIG_HOME": scratch.path.string]
        let expected = scratch.path.appending("groupstore").appending("config.yaml")
        #expect(ConfigurationFile.standardPath(environment: environment) != expected)
        try directory.makeDirectory("groupstore", mode: 0o700)
        try DurableFile.write([], as: "config.yaml", in: directory.directory("groupstore"), mode: 0o600)
        #expect(ConfigurationFile.standardPath(environment: environment) == expected)
    }

    @Test func refusesAMissingFile() {
        let file = ConfigurationFile(scratch.path.appending("none.yaml"), environment: [:])
        #expect(throws: ConfigurationError.self) { try file.load() }
    }

    @Test func refusesBytesThatAreNotUTF8() throws {
        try DurableFile.write([0xFF, 0xFE], as: "bad.yaml", in: directory, mode: 0o600)
        let file = ConfigurationFile(scratch.path.appending("bad.yaml"), environment: [:])
        #expect { try file.load() } throws: { ($0 as? ConfigurationError)?.message.contains("UTF-8") == true }
    }

    /// Its beginning may be a whole configuration.
    @Test func refusesAFileThatIsTooLarge() throws {
        let text = "groups: [{ id: a, directory: \(scratch.path) }]\n#"
        let bytes = Array(text.utf8) + [UInt8](repeating: 0x20, count: (1 << 20) - text.utf8.count)
        try DurableFile.write(bytes, as: "largest.yaml", in: directory, mode: 0o600)
        try DurableFile.write(bytes + [0x0A], as: "larger.yaml", in: directory, mode: 0o600)
        #expect(
            try ConfigurationFile(scratch.path.appending("largest.yaml"), environment: [:]).load().groups.count == 1)
        let larger = ConfigurationFile(scratch.path.appending("larger.yaml"), environment: [:])
        #expect { try larger.load() } throws: { ($0 as? ConfigurationError)?.message.contains("1 MiB") == true }
    }
}
