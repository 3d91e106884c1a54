import Glibc
import LinuxSystem
import StoreMigration
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreAgent

@Suite struct ConfigurationFileTests {
    private let home: TemporaryDirectory

    init() throws { home = try TemporaryDirectory() }

    private func parse(_ text: String, _ extra: [String: String] = [:]) throws(ConfigurationError) -> Configuration {
        let environment = ["HOME": home.path.string].merging(extra) { $1 }
        return try ConfigurationFile("/etc/test.yaml", environment: environment)
            .parse(text.replacing("HOME", with: home.path.string))
    }

    private func mistakeFound(in text: String) -> ConfigurationError? {
        do throws(ConfigurationError) {
            _ = try parse(text)
            return nil
        } catch {
            return error
        }
    }

    /// Parsing time grew without bound with each further level of these.
    @Test(arguments: [
        "groups: " + String(repeating: "{", count: 500), "groups: " + String(repeating: "[", count: 500),
        String(repeating: "? ", count: 500) + "a\n", "a: &a {x: 1}\nb: {*a : 1}\n", "groups: [{id: a}, *b]\n",
    ])
    func refusesExpensiveYAMLAtOnce(_ text: String) {
        #expect(mistakeFound(in: text)?.line != nil)
    }

    @Test func acceptsSpecialCharactersInStrings() {
        let text = "groups:\n  - id: 'group.*a ? [[[[[[[[['\n    directory: /a*b?c # *alias [[[[[[[[[[ it's\n"
        #expect(mistakeFound(in: text)?.description.contains("alias") == false)
    }

    @Test(arguments: [
        "\u{FEFF}groups:\n  - id: a\n    directory: HOME\n", "groups:\r\n  - id: a\r\n    directory: HOME\r\n",
        "---\ngroups: [{ 'id': \"a\", directory: 'HOME' }] # *x ? [[[[[[[[[\n...\n",
        "%YAML 1.1\n---\ngroups: &all\n  - id: !!str a\n    directory: >-\n      HOME\n",
        "? groups\n: [{ id: a, directory: HOME }]",
    ])
    func parsesOtherSpellings(_ text: String) throws {
        #expect(try parse(text) == parse("groups: [{ id: a, directory: HOME }]"))
    }

    @Test func parsesEveryKey() throws {
        let configuration = try parse(
            """
            socket:
              { path: ~/run/agent.sock, allow-uids: [1001, 1002], subscriptions-per-connection: 5, subscriptions: 70 }
            claim-deadline: 90s
            rescue: off
            groups:
              - id: group.com.example.notes
                directory: ~/notes
                stores:
                  - name: Notes.sqlite
                    legacy: [~/old/Notes.sqlite, "/var/old/my notes"]
                    on-conflict: keep-group
                    retire: symlink
                    settle: 250ms
                    model: ~/Notes.xcdatamodeld
                    mappings: [~/Loud.xcmappingmodel, /usr/share/notes/two.yaml]
                    on-incompatible: set-aside
                    default-store: /usr/share/notes/Default.sqlite
                    journal-mode: delete
                  - name: data.data
              - id: group.com.example.empty
            """, ["GROUPSTORE_CONTAINERS": "/containers"])
        let home = home.path
        #expect(configuration.socket == home.appending("run").appending("agent.sock"))
        #expect(configuration.allowed == [1001: [.subscribe], 1002: [.subscribe]])
        #expect(configuration.claimDeadline == .seconds(90) && configuration.rescue == .off)
        #expect(configuration.subscriptions == SubscriptionLimits(perConnection: 5, total: 70))
        #expect(
            configuration.groups.map(\.directory) == [home.appending("notes"), "/containers/group.com.example.empty"])
        let notes = try #require(configuration.groups.first?.stores.first)
        #expect(notes.name.database == "Notes.sqlite")
        #expect(notes.legacy == [home.appending("old").appending("Notes.sqlite"), "/var/old/my notes"])
        #expect(notes.onConflict == .keepGroup)
        #expect(notes.retirement == .symlink)
        #expect(notes.settle == .milliseconds(250))
        var migration = MigrationRequest(home.appending("Notes.xcdatamodeld"))
        migration.mappings = [home.appending("Loud.xcmappingmodel"), "/usr/share/notes/two.yaml"]
        migration.onIncompatible = .setAside
        migration.defaultStore = "/usr/share/notes/Default.sqlite"
        #expect(notes.migration == migration)
        #expect(notes.journalMode == .rollback)
        let data = try #require(configuration.groups.first?.stores.last)
        #expect(data.legacy.isEmpty)
        #expect(data.onConflict == .refuse)
        #expect(data.retirement == nil)
        #expect(data.settle == .seconds(1))
        #expect(data.migration == nil)
        #expect(data.journalMode == nil)
    }

    struct Mistake: CustomTestStringConvertible, Sendable {
        let line: Int?
        let word: String
        let text: String
        var testDescription: String { word }
    }

    @Test func parsesSeveralModelsAndAConfiguration() throws {
        let configuration = try parse(
            Self.store("name: A\n        models: [/a.momd, /b.momd]\n        configuration: Local"))
        var migration = MigrationRequest("/a.momd")
        migration.mergedModels = ["/b.momd"]
        migration.configuration = "Local"
        #expect(configuration.groups.first?.stores.first?.migration == migration)
    }

    @Test func parsesTheRolesOfUsers() throws {
        let roles = try parse(
            """
            socket:
              allow: [{ uid: 1 }, { uid: 2, may: [present, relocate] }, { uid: 3, may: [present] }]
              allow-uids: [3, 4]
            groups: [{ id: group.com.example.empty }]
            """, ["GROUPSTORE_CONTAINERS": "/containers"])
        #expect(
            roles.allowed == [1: [.subscribe], 2: [.present, .relocate], 3: [.present, .subscribe], 4: [.subscribe]])
        #expect(roles.roles(of: 5, agent: 7) == nil && roles.roles(of: 1, agent: 7) == [.subscribe])
        #expect(
            roles.roles(of: 7, agent: 7) == Set(Role.allCases) && roles.roles(of: 0, agent: 7) == Set(Role.allCases))
    }

    static let mistakes = [
        Mistake(line: nil, word: "empty", text: ""),
        Mistake(line: 1, word: "not a mapping", text: "- a"),
        Mistake(line: 2, word: "not YAML", text: "groups:\n\t- id: a"),
        Mistake(
            line: 3, word: "a YAML alias, which a configuration can't contain", text: "groups:\n- &x {id: a}\n- *x"),
        Mistake(line: 2, word: "a key that is not a plain word", text: "groups:\n- {[id]: a}"),
        Mistake(line: 5, word: "nested more than 8 deep", text: store("name: [[[[a]]]]")),
        Mistake(line: 2, word: "control characters are not allowed", text: "groups:\n  - id: a\u{7}"),
        Mistake(line: 2, word: "but found another document", text: "groups: []\n---\n"),
        Mistake(line: 1, word: "duplicate key id in the entry", text: "groups: [{id: a, 'id': a}]"),
        Mistake(line: 1, word: "unknown key << in the file", text: "<<: {groups: []}"),
        Mistake(line: 5, word: "name is not a string", text: store("name: ''")),
        Mistake(line: 5, word: "name is not a string", text: store("name: ~")),
        Mistake(
            line: 7, word: "both model and models", text: store("name: A\n        model: /a\n        models: [/b]")),
        Mistake(line: 6, word: "configuration without a model", text: store("name: A\n        configuration: Local")),
        Mistake(line: 6, word: "history is neither true", text: store("name: A\n        history: yes")),
        Mistake(line: 1, word: "not a user ID", text: "socket: { allow-uids: [0x10] }\ngroups: [{ id: a }]"),
        Mistake(line: 3, word: "unknown key storez", text: "groups:\n  - id: a\n    storez: []"),
        Mistake(line: 1, word: "unknown key group", text: "group: []"),
        Mistake(line: 1, word: "has no groups", text: "claim-deadline: 3s"),
        Mistake(line: 1, word: "not a list", text: "groups: a"),
        Mistake(line: nil, word: "no group to serve", text: "groups: []"),
        Mistake(line: 2, word: "has no id", text: "groups:\n  - directory: HOME"),
        Mistake(line: 2, word: "not a group identifier", text: "groups:\n  - id: a/b"),
        Mistake(line: 1, word: "is not a duration", text: "claim-deadline: soon\ngroups: [{ id: a }]"),
        Mistake(line: 1, word: "is not a duration", text: "claim-deadline: 30 s\ngroups: [{ id: a }]"),
        Mistake(line: 1, word: "is longer than a year", text: "claim-deadline: 99999999999d\ngroups: [{ id: a }]"),
        Mistake(line: 1, word: "rescue can't be false", text: "rescue: false\ngroups: [{ id: a }]"),
        Mistake(line: 2, word: "not an absolute path", text: "groups:\n  - { id: a, directory: notes }"),
        Mistake(
            line: 2, word: "at most 4095",
            text: "groups:\n  - { id: a, directory: /\(String(repeating: "n", count: 4095)) }"),
        Mistake(
            line: 1, word: "not a valid number of subscriptions",
            text: "socket: { subscriptions: 0 }\ngroups: [{ id: a }]"),
        Mistake(line: 1, word: "not a user ID", text: "socket: { allow-uids: [root] }\ngroups: [{ id: a }]"),
        Mistake(line: 1, word: "not a user ID", text: "socket: { allow: [{ uid: -1 }] }\ngroups: [{ id: a }]"),
        Mistake(
            line: 1, word: "not a user ID", text: "socket: { allow: [{ uid: 4294967295 }] }\ngroups: [{ id: a }]"),
        Mistake(line: 1, word: "has no uid", text: "socket: { allow: [{ may: [present] }] }\ngroups: [{ id: a }]"),
        Mistake(line: 1, word: "not a mapping", text: "socket: { allow: [1001] }\ngroups: [{ id: a }]"),
        Mistake(
            line: 1, word: "may can't be delete",
            text: "socket: { allow: [{ uid: 1, may: [subscribe, delete] }] }\ngroups: [{ id: a }]"),
        Mistake(line: 1, word: "may is empty", text: "socket: { allow: [{ uid: 1, may: [] }] }\ngroups: [{ id: a }]"),
        Mistake(
            line: 1, word: "user 1 is listed twice",
            text: "socket: { allow: [{ uid: 1 }, { uid: 1, may: [present] }] }\ngroups: [{ id: a }]"),
        Mistake(
            line: 4, word: "group a is configured twice",
            text: "groups:\n  - id: a\n    directory: HOME\n  - { id: a, directory: HOME/b }"),
        Mistake(
            line: 3, word: "is already the directory of a",
            text: "groups:\n  - { id: a, directory: HOME }\n  - { id: b, directory: HOME }"),
        Mistake(line: 2, word: "duplicate key id in the entry", text: "groups:\n  - id: a\n    id: b"),
        Mistake(line: 5, word: "can't be a store's name", text: store("name: a/b")),
        Mistake(line: 5, word: "can't be a store's name", text: store("name: A.sqlite-wal")),
        Mistake(
            line: 5, word: "can't be a store's name", text: store("name: " + String(repeating: "n", count: 20_000))),
        Mistake(line: 5, word: "has no name", text: store("settle: 1s")),
        Mistake(line: 5, word: "name is not a string", text: store("name:")),
        Mistake(line: 6, word: "can't be burn", text: store("name: A\n        retire: burn")),
        Mistake(line: 6, word: "can't be merge", text: store("name: A\n        on-conflict: merge")),
        Mistake(line: 6, word: "can't be overwrite", text: store("name: A\n        on-conflict: overwrite")),
        Mistake(line: 6, word: "mappings without a model", text: store("name: A\n        mappings: []")),
        Mistake(
            line: 6, word: "on-incompatible without a model", text: store("name: A\n        on-incompatible: refuse")),
        Mistake(
            line: 7, word: "default-store without on-incompatible: set-aside",
            text: store("name: A\n        model: /M\n        default-store: /D")),
        Mistake(
            line: 7, word: "on-incompatible can't be delete",
            text: store("name: A\n        model: /M\n        on-incompatible: delete")),
        Mistake(line: 6, word: "journal-mode can't be memory", text: store("name: A\n        journal-mode: memory")),
        Mistake(line: 6, word: "two stores for one file", text: store("name: A\n      - name: A")),
        Mistake(
            line: 6, word: "two stores for one file", text: store("name: A\n        legacy: [HOME/x, HOME/y, HOME/x]")),
        Mistake(line: 6, word: "two stores for one file", text: store("name: A\n        legacy: [HOME/A]")),
        Mistake(line: 6, word: "names no file", text: store("name: A\n        legacy: [/]")),
        Mistake(line: 2, word: "not a directory", text: "groups:\n  - { id: a, directory: /etc/passwd }"),
        Mistake(line: 2, word: "not a directory", text: "groups:\n  - { id: a, directory: /etc/passwd/x }"),
    ]

    /// A group with a store whose entry begins on line 5.
    private static func store(_ lines: String) -> String {
        "groups:\n  - directory: HOME\n    id: a\n    stores:\n      - \(lines)"
    }

    @Test(arguments: mistakes)
    func reportsAMistakeWithItsLine(_ mistake: Mistake) throws {
        let error = try #require(mistakeFound(in: mistake.text))
        #expect(error.message.contains(mistake.word), "\(error)")
        #expect(error.line == mistake.line, "\(error)")
        #expect(!error.remedy.isEmpty)
        #expect(error.description.hasPrefix("/etc/test.yaml"))
    }
}
