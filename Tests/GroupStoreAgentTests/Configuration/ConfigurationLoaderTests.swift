import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

/// The standard configuration: drop-ins and `config.yaml` in the directories of vendors, the system and the user.
@Suite struct ConfigurationLoaderTests {
    private let scratch: TemporaryDirectory
    private let loader: ConfigurationLoader
    private let environment: [String: String]

    init() throws {
        scratch = try TemporaryDirectory()
        let root = try Directory(scratch.path)
        for name in ["vendor", "system", "user", "containers"] {
            try root.makeDirectory(.init(stringLiteral: name), mode: 0o700)
        }
        let path = scratch.path.string
        environment = [
            "XDG_DATA_DIRS": path + "/vendor", "XDG_CONFIG_DIRS": path + "/system", "XDG_CONFIG_HOME": path + "/user",
            "GROUPSTORE_CONTAINERS": path + "/containers", "HOME": path,
        ]
        loader = ConfigurationLoader(environment: environment)
    }

    private enum Place: String { case vendor, system, user }

    private func directory(_ place: Place, dropIns: Bool = true) throws -> Directory {
        var directory = try Directory(scratch.path.appending(place.rawValue))
        for name in dropIns ? ["groupstore", "groups.d"] : ["groupstore"] {
            directory = try GroupContainer.child(.init(stringLiteral: name), of: directory)
        }
        return directory
    }

    private func drop(_ name: String, _ text: String, in place: Place) throws {
        let directory = try directory(place)
        try DurableFile.write(
            Array(text.replacing("SCRATCH", with: scratch.path.string).utf8), as: .init(stringLiteral: name),
            in: directory, mode: 0o600)
    }

    private func main(_ text: String, in place: Place) throws {
        try DurableFile.write(
            Array(text.replacing("SCRATCH", with: scratch.path.string).utf8), as: "config.yaml",
            in: directory(place, dropIns: false), mode: 0o600)
    }

    private func group(_ id: String, _ stores: String = "") -> String {
        stores.isEmpty ? "groups: [{ id: \(id) }]\n" : "groups: [{ id: \(id), stores: [\(stores)] }]\n"
    }

    // MARK: Order and merging

    @Test func readsTheDirectoriesInTheDocumentedOrder() throws {
        for place in [Place.vendor, .system, .user] {
            try drop("b.yaml", group("b.\(place)"), in: place)
            try drop("a.yaml", group("a.\(place)"), in: place)
        }
        try main(group("main.system"), in: .system)
        try main(group("main.user"), in: .user)
        try main(group("main.vendor"), in: .vendor)
        let expected = [
            "vendor/groupstore/groups.d/a.yaml", "vendor/groupstore/groups.d/b.yaml",
            "system/groupstore/groups.d/a.yaml", "system/groupstore/groups.d/b.yaml", "system/groupstore/config.yaml",
            "user/groupstore/groups.d/a.yaml", "user/groupstore/groups.d/b.yaml", "user/groupstore/config.yaml",
        ]
        let loaded = try loader.load()
        #expect(loaded.files == expected.map { scratch.path.pushing(FilePath($0)) })
        #expect(loaded.problems.isEmpty && loaded.notes.isEmpty)
        #expect(
            loaded.groups.map(\.identifier.rawValue) == [
                "a.vendor", "b.vendor", "a.system", "b.system", "main.system", "a.user", "b.user", "main.user",
            ])
    }

    @Test func theFirstOfSeveralDirectoriesIsTheMostImportant() throws {
        let path = scratch.path.string
        let sources = ConfigurationSources(environment: [
            "XDG_DATA_DIRS": "\(path)/one:relative:\(path)/two/:\(path)/one", "XDG_CONFIG_DIRS": "\(path)/three",
            "HOME": path,
        ])
        #expect(
            sources.dropInDirectories.map(\.string) == [
                "\(path)/two/groupstore/groups.d", "\(path)/one/groupstore/groups.d",
                "\(path)/three/groupstore/groups.d", "/etc/groupstore/groups.d", "\(path)/.config/groupstore/groups.d",
            ])
        #expect(
            ConfigurationSources(environment: ["XDG_DATA_DIRS": "", "XDG_CONFIG_HOME": "relative"]).dropInDirectories
                .map(\.string) == [
                    "/usr/share/groupstore/groups.d", "/usr/local/share/groupstore/groups.d",
                    "/etc/groupstore/groups.d",
                ])
    }

    /// The same group in three places.
    @Test func aLaterFileOverridesStoresAndTheDirectory() throws {
        try drop(
            "notes.yaml",
            """
            groups:
              - id: a
                directory: SCRATCH/vendor-directory
                stores:
                  - { name: One, legacy: [SCRATCH/old/One], retire: symlink }
                  - { name: Two, legacy: [SCRATCH/old/Two] }
            """, in: .vendor)
        try drop("notes.yaml", group("a", "{ name: Two, retire: archive }"), in: .system)
        try main(
            """
            groups:
              - id: a
                directory: SCRATCH/own
                stores: [{ name: Three }]
            """, in: .user)
        let loaded = try loader.load()
        #expect(loaded.problems.isEmpty, "\(loaded.problems)")
        let group = try #require(loaded.groups.first)
        #expect(loaded.groups.count == 1)
        #expect(group.directory == scratch.path.appending("own"))
        #expect(group.stores.map(\.name.database.string) == ["One", "Two", "Three"])
        #expect(group.stores[0].retirement == .symlink && group.stores[0].legacy.count == 1)
        // The later entry replaces the earlier one as a whole.
        #expect(group.stores[1].retirement == .archive && group.stores[1].legacy.isEmpty)
    }

    /// Who may connect is not for another file to say.
    @Test func settingsComeFromTheLastMainFileAlone() throws {
        try main(
            "socket: { path: /run/x.sock, allow-uids: [7] }\nclaim-deadline: 5s\n" + group("of.system"), in: .system)
        #expect(try loader.load().allowed == [7: [.subscribe]])
        #expect(try loader.load().claimDeadline == .seconds(5))
        try main("claim-deadline: 9s\n", in: .user)
        let loaded = try loader.load()
        #expect(loaded.allowed.isEmpty && loaded.socket == nil && loaded.claimDeadline == .seconds(9))
        #expect(loaded.groups.map(\.identifier.rawValue) == ["of.system"])
        try drop("x.yaml", "socket: { allow-uids: [8] }\n" + group("x"), in: .vendor)
        let problem = try #require(try loader.load().problems.first)
        #expect(problem.message.contains("unknown key socket in a drop-in") && problem.line == 1, "\(problem)")
        #expect(try loader.load().allowed.isEmpty)
    }

    @Test func anEmptyFileSwitchesOffTheSameNameBefore() throws {
        try drop("a.yaml", group("a"), in: .vendor)
        try drop("b.yaml", group("b"), in: .vendor)
        try drop("a.yaml", "# switched off\n", in: .system)
        try directory(.user).makeSymbolicLink("b.yaml", to: "/dev/null")
        #expect(try loader.load().groups.isEmpty)
        try drop("a.yaml", group("again"), in: .user)
        let loaded = try loader.load()
        #expect(loaded.groups.map(\.identifier.rawValue) == ["again"])
        #expect(loaded.problems.isEmpty && loaded.files.count == 1)
    }

    @Test func readsOtherNamesNot() throws {
        for name in [".hidden.yaml", "a.yml", "a.yaml~", "a.yaml.dpkg-new", ".yaml", "README"] {
            try drop(name, "no: yaml: [", in: .user)
        }
        #expect(try loader.load().files.isEmpty)
    }

    /// The order is that of the bytes, not of a locale. A path may be in any script.
    @Test func readsNamesInOtherScripts() throws {
        for name in ["ж.yaml", "数据 库.yaml", "Z.yaml", "a.yaml", "é.yaml"] { try drop(name, group("g"), in: .user) }
        try drop("ω.yaml", group("ω"), in: .user)
        let loaded = try loader.load()
        #expect(
            loaded.files.compactMap(\.lastComponent?.string) == [
                "Z.yaml", "a.yaml", "é.yaml", "ж.yaml", "数据 库.yaml",
            ])
        #expect(loaded.problems.map(\.path?.lastComponent?.string) == ["ω.yaml"])
        #expect(loaded.groups.count == 1)
    }

    @Test func readsHundredsOfDropIns() throws {
        for number in 0..<200 {
            try drop(
                "app\(number).yaml", group("g\(number)", "{ name: S, legacy: [SCRATCH/old/\(number)] }"), in: .vendor)
        }
        let loaded = try loader.load()
        #expect(loaded.groups.count == 200 && loaded.problems.isEmpty)
    }

    // MARK: Errors

    @Test func aBrokenDropInTakesDownNoOther() throws {
        for number in 0..<10 { try drop("app\(number).yaml", group("g\(number)"), in: .vendor) }
        try drop("app3.yaml", "groups:\n  - id: g3\n    stores: [{ nmae: x }]\n", in: .vendor)
        let vendor = try directory(.vendor)
        try vendor.makeSymbolicLink("dangling.yaml", to: "nowhere")
        try vendor.makeDirectory("directory.yaml", mode: 0o700)
        try vendor.makeSymbolicLink("loop.yaml", to: "loop.yaml")
        try retrying("mkfifo") { vendor.path.appending("fifo.yaml").withPlatformString { mkfifo($0, 0o600) } }
        try DurableFile.write([0xFF], as: "bytes.yaml", in: vendor, mode: 0o600)
        let loaded = try loader.load()
        #expect(loaded.groups.count == 9)
        #expect(
            Set(loaded.problems.compactMap(\.path?.lastComponent?.string)) == [
                "app3.yaml", "dangling.yaml", "directory.yaml", "loop.yaml", "fifo.yaml", "bytes.yaml",
            ])
        let broken = try #require(loaded.problems.first { $0.path?.lastComponent == "app3.yaml" })
        #expect(broken.line == 3 && broken.message.contains("nmae"), "\(broken)")
        for problem in loaded.problems { #expect(!problem.remedy.isEmpty) }
    }

    @Test(.enabled(if: geteuid() != 0)) func reportsAnUnreadableDropIn() throws {
        try drop("a.yaml", group("a"), in: .vendor)
        try retrying("chmod") {
            scratch.path.pushing("vendor/groupstore/groups.d/a.yaml").withPlatformString { chmod($0, 0) }
        }
        let loaded = try loader.load()
        #expect(loaded.problems.map(\.kind) == [.notPermitted])
    }

    @Test func reportsDropInsThatAreNoDirectory() throws {
        try DurableFile.write([], as: "groups.d", in: directory(.vendor, dropIns: false), mode: 0o600)
        try drop("a.yaml", group("a"), in: .user)
        let loaded = try loader.load()
        #expect(loaded.groups.count == 1 && loaded.problems.count == 1)
        #expect(loaded.problems.first?.message.contains("can't be listed") == true)
    }

    /// An upgrade that writes half a file must not stop the service of that app either.
    @Test func keepsTheLastContentOfAFileThatBreaks() throws {
        try drop("a.yaml", group("a", "{ name: One }"), in: .vendor)
        try drop("b.yaml", group("b"), in: .vendor)
        #expect(try loader.load().problems.isEmpty)
        try drop("a.yaml", "groups: [{ id: a, stores: [{ name:", in: .vendor)
        for _ in 0..<2 {
            let loaded = try loader.load()
            #expect(loaded.groups.map(\.stores.count) == [1, 0])
            #expect(loaded.problems.first?.message.hasSuffix("what it said before stays in effect") == true)
        }
        try drop("a.yaml", group("a", "{ name: One }, { name: Two }"), in: .vendor)
        #expect(try loader.load().groups.map(\.stores.count) == [2, 0])
        try directory(.vendor).removeFile("a.yaml")
        #expect(try loader.load().groups.map(\.identifier.rawValue) == ["b"])
        // Another agent has never seen the valid one.
        try drop("a.yaml", "groups: [", in: .vendor)
        #expect(try ConfigurationLoader(environment: environment).load().groups.count == 1)
    }

    @Test func theLastMainFileMustBeValid() throws {
        try drop("a.yaml", group("a"), in: .vendor)
        try main("groups: [{ no: such }]\n", in: .user)
        #expect(throws: ConfigurationError.self) { try loader.load() }
        // The system's is one of several once the user has one.
        try main(group("u"), in: .user)
        try main("groups: [{ no: such }]\n", in: .system)
        let loaded = try loader.load()
        #expect(loaded.groups.map(\.identifier.rawValue) == ["a", "u"])
        #expect(loaded.problems.count == 1)
    }

    @Test func refusesAMainFileWithoutAnyGroup() throws {
        try main("claim-deadline: 9s\n", in: .user)
        #expect(throws: ConfigurationError.self) { try loader.load() }
    }

    @Test func leavesOutTheEarlierOfTwoThatContradictEachOther() throws {
        try drop("a.yaml", group("a", "{ name: S, legacy: [SCRATCH/old/S] }"), in: .vendor)
        try drop("b.yaml", group("b", "{ name: S, legacy: [SCRATCH/old/S] }"), in: .vendor)
        try drop("c.yaml", group("c", "{ name: S, legacy: [SCRATCH/old/C] }"), in: .vendor)
        let loaded = try loader.load()
        #expect(loaded.groups.map(\.identifier.rawValue) == ["b", "c"])
        let problem = try #require(loaded.problems.first)
        #expect(loaded.problems.count == 1)
        #expect(problem.path?.lastComponent == "a.yaml" && problem.line == 1)
        #expect(problem.message.contains("two stores for one file") && problem.message.contains("b.yaml"), "\(problem)")
    }

    /// What a file that is left out contradicts may be right after all.
    @Test func aFileThatIsLeftOutContradictsNoOther() throws {
        try drop("a.yaml", group("a", "{ name: S, legacy: [SCRATCH/old/1] }"), in: .vendor)
        try drop(
            "b.yaml", group("b", "{ name: S, legacy: [SCRATCH/old/1] }, { name: T, legacy: [SCRATCH/old/2] }"),
            in: .vendor)
        try drop("c.yaml", group("c", "{ name: S, legacy: [SCRATCH/old/2] }"), in: .vendor)
        let loaded = try loader.load()
        #expect(loaded.groups.map(\.identifier.rawValue) == ["a", "c"])
        #expect(loaded.problems.map(\.path?.lastComponent?.string) == ["b.yaml"])
    }

    /// A package can't take a user's own configuration down.
    @Test func theMainFileWinsEveryContradiction() throws {
        try main(group("mine", "{ name: S, legacy: [SCRATCH/old/S] }"), in: .system)
        try drop("a.yaml", group("a", "{ name: S, legacy: [SCRATCH/old/S] }"), in: .vendor)
        try drop("b.yaml", "groups: [{ id: b, directory: SCRATCH/containers/mine }]", in: .user)
        let loaded = try loader.load()
        #expect(loaded.groups.map(\.identifier.rawValue) == ["mine"])
        #expect(loaded.problems.count == 2)
    }

    @Test func aGroupWhoseDirectoryIsAFileIsLeftOutAlone() throws {
        try DurableFile.write([], as: "file", in: Directory(scratch.path), mode: 0o600)
        try drop("a.yaml", "groups: [{ id: a, directory: SCRATCH/file }, { id: b }]", in: .vendor)
        let loaded = try loader.load()
        #expect(loaded.groups.map(\.identifier.rawValue) == ["b"])
        #expect(loaded.problems.first?.message.contains("is not a directory") == true)
    }

    @Test func anUnknownKeyNamesFileAndLine() throws {
        try drop("a.yaml", "groups:\n  - id: a\n    stroes: []\n", in: .user)
        let problem = try #require(try loader.load().problems.first)
        #expect(problem.fullMessage.contains("groups.d/a.yaml:3: unknown key stroes"), "\(problem.fullMessage)")
    }

    // MARK: Groups without a configuration

    @Test func servesTheContainersThatAreThere() throws {
        let containers = try Directory(scratch.path.appending("containers"))
        for name in ["group.b", "group.a", ".hidden", "not a group"] {
            try containers.makeDirectory(.init(stringLiteral: name), mode: 0o700)
        }
        try DurableFile.write([], as: "file", in: containers, mode: 0o600)
        try containers.makeSymbolicLink("alias", to: "group.a")
        try drop("a.yaml", group("group.a", "{ name: S }"), in: .vendor)
        var loaded = try loader.load()
        #expect(loaded.containers == containers.path)
        #expect(loaded.groups.map(\.identifier.rawValue) == ["group.a", "group.b"])
        #expect(loaded.groups.map(\.isDiscovered) == [false, true])
        let again = loaded.discoverGroups()
        #expect(!again)
        try containers.makeDirectory("group.c", mode: 0o700)
        #expect(loaded.hasUnservedContainer(of: "group.c") && !loaded.hasUnservedContainer(of: "group.d"))
        #expect(!loaded.hasUnservedContainer(of: "..") && !loaded.hasUnservedContainer(of: "a/b"))
        let found = loaded.discoverGroups()
        #expect(found && loaded.groups.count == 3)
        // Whoever writes a main file says what is served.
        try main(group("only"), in: .user)
        let configured = try loader.load()
        #expect(configured.containers == nil)
        #expect(configured.groups.map(\.identifier.rawValue) == ["group.a", "only"])
    }

    @Test func needsAPlaceForContainers() {
        #expect {
            try ConfigurationLoader(environment: ["XDG_DATA_DIRS": "/nonexistent"]).load()
        } throws: { ($0 as? ConfigurationError)?.remedy.contains("HOME") == true }
    }

    // MARK: New keys

    @Test func expandsShortLegacyPaths() throws {
        try main(
            group(
                "a",
                "{ name: A, legacy: ['flatpak:com.example.Notes/data/A'] }, { name: B, legacy: ['snap:notes/common/B'] }"
            ),
            in: .user)
        #expect(
            try loader.load().groups.first?.stores.flatMap(\.legacy) == [
                scratch.path.pushing(".var/app/com.example.Notes/data/A"), scratch.path.pushing("snap/notes/common/B"),
            ])
        try main("groups:\n  - id: a\n    stores:\n      - name: A\n        legacy: ['snap:notes/B']\n", in: .user)
        #expect { try loader.load() } throws: { ($0 as? ConfigurationError)?.line == 5 }
    }

    @Test func parsesAssumeClosed() throws {
        try main(group("a", "{ name: A, assume-closed: true }, { name: B, assume-closed: false }"), in: .user)
        #expect(try loader.load().groups.first?.stores.map(\.assumeClosed) == [true, false])
        try main(group("a", "{ name: A, assume-closed: maybe }"), in: .user)
        #expect(throws: ConfigurationError.self) { try loader.load() }
    }

    @Test func parsesRows() throws {
        try main(group("a", "{ name: A, rows: true }, { name: B, rows: false }, { name: C }"), in: .user)
        #expect(try loader.load().groups.first?.stores.map(\.rows) == [true, false, false])
        try main(group("a", "{ name: A, rows: 1 }"), in: .user)
        #expect(throws: ConfigurationError.self) { try loader.load() }
    }
}
