import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of relocation by a non-root user. Running as root hides missing-permission bugs.
@Suite(.ownThreads, .enabled(if: geteuid() == 0, "needs root, to become another user"))
struct OtherUserTests {
    private static let user: Word = "65534"

    /// Runs the command as that user, who owns both places.
    private func relocate(_ store: FilePath, _ places: Places, _ more: Word...) throws -> FinishedProcess {
        try own(places)
        return try relocateAgain(store, places, more)
    }

    private func own(_ places: Places) throws {
        for directory in [places.legacy.removingLastComponent(), places.group.removingLastComponent()] {
            try run("chown", ["-R", "65534:65534", Word(directory)])
        }
    }

    private func relocateAgain(_ store: FilePath, _ places: Places, _ more: [Word]) throws -> FinishedProcess {
        try asThatUser(places, ["relocate", Word(store), Word(places.group), "--json"] + more)
    }

    private func asThatUser(_ places: Places, _ words: [Word]) throws -> FinishedProcess {
        // The program may be in a directory that the user can't enter.
        let program = places.scratch("groupstore")
        try run("cp", [Programs.groupstore, Word(program)])
        return try run(
            "setpriv", ["--reuid", Self.user, "--regid", Self.user, "--clear-groups", Word(program)] + words,
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    @Test(arguments: Places.FileSystem.allCases, [true, false])
    func theOwnerRelocatesAStore(_ fileSystem: Places.FileSystem, unflushed: Bool) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: unflushed)
        let support = try store.supportSnapshot()
        let done = try relocate(store.path, places)
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        #expect(try noteCount(published.path) == 10)
        #expect(try published.supportSnapshot() == support)
        #expect(try holdsLinkAlone(places.legacy, to: published.path))
    }

    @Test func namesALinkThatOnlyItsOwnerMayReplace() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 1)
        #expect(try relocate(store.path, places, "--retire", "symlink").outcome == "relocated")
        try run("chown", ["-h", "0:0", Word(places.legacy), Word(store.path)])
        try run("chmod", ["1777", Word(places.legacy)])
        let refused = try relocateAgain(store.path, places, ["--undo"])
        #expect(refused.status == 77 && refused.errors.contains("the link \(store.path) belongs to user 0"))
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 1)
    }

    /// The store has rows in its log. SQLite would fail midway and leave an index behind.
    @Test(arguments: ["", "-wal"]) func namesAnUnwritableFile(_ suffix: String) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
        try run("chmod", ["0444", Word(store.path.string + suffix)])
        let before = try DirectorySnapshot(places.legacy)
        let refused = try relocate(store.path, places)
        #expect(refused.status == 77 && refused.errors.contains("Notes.sqlite\(suffix) can't be written to"))
        #expect(try DirectorySnapshot(places.legacy) == before)
        try run("chmod", ["0644", Word(store.path.string + suffix)])
        #expect(try relocate(store.path, places).outcome == "relocated")
        #expect(try noteCount(places.group.appending("Notes.sqlite")) == 10)
    }

    /// With a model, the command looks first whether the store is an XML file.
    @Test(arguments: [["--opaque"], ["--model", "/nonexistent.mom"]] as [[Word]])
    func namesAnUnreadableStore(options: [Word]) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: false)
        try run("chmod", ["0000", Word(store.path)])
        try own(places)
        let refused = try relocateAgain(store.path, places, options)
        #expect(refused.status == 77 && refused.outcome == "refused", "\(refused.output)\(refused.errors)")
    }

    /// rename(2) of a directory into another one requires write permission on the moved directory. Removing a copied
    /// directory's contents also requires it.
    @Test(arguments: Places.FileSystem.allCases, ["delete", "archive", "symlink"])
    func keepsTheModeOfAnUnwritableFolder(_ fileSystem: Places.FileSystem, _ retirement: String) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10, unflushed: true)
        let blob = store.support.pushing("_EXTERNAL_DATA/1F2E")
        let closed = [store.support, store.support.appending("_EXTERNAL_DATA"), blob]
        // Setting an attribute requires write permission.
        let paint = "import os, sys; [os.setxattr(path, 'user.colour', b'blue') for path in sys.argv[1:]]"
        try run("python3", ["-c", Word(paint)] + closed.map { Word($0) })
        try run("chmod", ["0444", Word(blob)])
        try run("chmod", ["0555"] + closed.dropLast().map { Word($0) })
        try own(places)
        let before = try attributes(store)

        let done = try relocateAgain(store.path, places, ["--retire", Word(retirement)])
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        let published = try StoreFiles(places.group.appending("Notes.sqlite"))
        let now = try attributes(published)
        #expect(now == before, "\(now)\n\(before)")
        #expect(try Directory(places.legacy).names().isEmpty == (retirement != "symlink"))

        let undone = try relocateAgain(store.path, places, ["--undo"])
        #expect(undone.outcome == "undone", "\(undone.output)\(undone.errors)")
        #expect(try attributes(store) == before)
        #expect(try Directory(places.group).names() == [".groupstore"])
    }

    /// The store migrates in place or on its way to a group. A non-root user has fewer rights to the directory that
    /// temporarily holds the old name, and to a read-only folder.
    @Test(arguments: ["migrate", "relocate"], [(false, "755"), (false, "555"), (true, "755"), (true, "555")])
    func theOwnerMigratesAStore(_ command: String, _ way: (isMapped: Bool, mode: String)) throws {
        let places = try Places()
        let scratch = try TemporaryDirectory()
        let photo =
            "<attribute name='photo' optional='YES' attributeType='Binary' allowsExternalBinaryDataStorage='YES'/>"
        let added = "<attribute name='n' optional='YES' attributeType='String'/>"
        let model = try ModelBundle.make(
            in: scratch, named: "Photos",
            [
                ("Photos", "<entity name='P'>\(photo)</entity>"),
                ("Photos 2", "<entity name='P'>\(photo)\(added)</entity>"),
            ])
        let mapping = scratch.path.appending("photos.yaml")
        try write("mapping: 1\nentities:\n  - {from: P, to: P}\n", to: mapping)
        try run("chmod", ["-R", "a+rX", Word(scratch.path)])

        let store = places.legacy.appending("Notes.sqlite")
        #expect(try groupstore("create", Word(store), "--model", Word(model), "--version", "Photos").status == 0)
        let name = "0F8FAD5B-D9CB-469F-A165-70867728950E"
        try sqlite(
            store,
            "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT, ZPHOTO) VALUES (1, 1, 1, CAST(char(2) || '\(name)' || char(0) AS BLOB))"
        )
        let data: FilePath = ".Notes_SUPPORT/_EXTERNAL_DATA"
        try run("mkdir", ["-p", Word(places.legacy.pushing(data))])
        try write("data", to: places.legacy.pushing(data).appending(name))
        try run("chmod", ["-R", Word("u=rwX,go=rX"), Word(places.legacy)])
        let folders = [data, data.removingLastComponent()]
        try run("chmod", [Word(way.mode)] + folders.map { Word(places.legacy.pushing($0)) })
        try own(places)

        let mappingOptions = ["--model", Word(model)] + (way.isMapped ? ["--mapping", Word(mapping)] : [])
        let isRelocated = command == "relocate"
        let done =
            try isRelocated
            ? relocateAgain(store, places, mappingOptions)
            : asThatUser(places, ["migrate", Word(store), "--json"] + mappingOptions)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        let place = isRelocated ? places.group : places.legacy
        #expect(
            try sqlite(place.appending("Notes.sqlite"), "SELECT hex(substr(ZPHOTO, 1, 3)), ZN IS NULL FROM ZP")
                == "023046|1\n")
        #expect(try run("cat", [Word(place.pushing(data).appending(name))]).output == "data")
        for folder in folders {
            #expect(FileStatus(following: place.pushing(folder))?.permissions == mode_t(way.mode, radix: 8))
        }
    }

    /// A program may install its default store in a directory that only root can write to.
    @Test func copiesAReadOnlyDefaultStore() throws {
        let stores = try ModelStores()
        try stores.makeAlien(stores.group)
        try run("chmod", ["-R", "a+rX", Word(stores.model.removingLastComponent())])
        let fallback = try stores.makeOld(stores.places.legacy.pushing("../share.sqlite"), title: "welcome")
        let data = fallback.support.appending("_EXTERNAL_DATA")
        try run("mkdir", ["-p", Word(data)])
        try write("picture", to: data.appending("P"))
        try own(stores.places)
        try run("chown", ["-R", "0:0", Word(fallback.path), Word(fallback.support)])
        try run("chmod", ["-R", "a=rX", Word(fallback.path), Word(fallback.support)])
        let done = try relocateAgain(
            stores.legacy, stores.places,
            ["--model", Word(stores.model), "--on-incompatible", "set-aside", "--default-store", Word(fallback.path)])
        #expect(done.outcome == "set_aside", "\(done.output)\(done.errors)")
        #expect(try stores.captions(stores.group) == "welcome")
        let published = try StoreFiles(stores.group)
        #expect(try run("cat", [Word(published.support.appending("_EXTERNAL_DATA/P"))]).output == "picture")
    }

    /// The relocation also moves the folder that makes room for the store.
    @Test(arguments: [true, false]) func archivesAnUnwritableFolder(ofAStore: Bool) throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let other = try makeStore(places.group.appending("Notes.sqlite"), rows: 3)
        try run("chmod", ["0555", Word(other.support)])
        if !ofAStore { try run("rm", [Word(other.path)]) }
        let done = try relocate(store.path, places, "--on-conflict", "keep-legacy")
        #expect(done.outcome == "relocated", "\(done.output)\(done.errors)")
        #expect(try noteCount(other.path) == 10)
        let archived = try run(
            "find", [Word(places.group.appending(".groupstore")), "-name", ".Notes_SUPPORT", "-perm", "0555"])
        #expect(archived.output.split(separator: "\n").count == 1, "\(archived.output)")
    }

    /// The user can't open the folder, or can't restore its mode afterwards.
    @Test(arguments: Places.FileSystem.allCases, [["chown", "1234"], ["chgrp", "4321"], ["chmod", "0300"]])
    func namesAFolderThatCannotBeOpened(_ fileSystem: Places.FileSystem, _ change: [String]) throws {
        let places = try Places(fileSystem)
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        try own(places)
        try run("chmod", ["2555", Word(store.support)])
        try run(Word(change[0]), [Word(change[1]), Word(store.support)])
        if change[0] == "chgrp" { try run("chmod", ["2555", Word(store.support)]) }
        let before = try DirectorySnapshot(places.legacy)
        let refused = try relocateAgain(store.path, places, [])
        #expect(refused.status == 77, "\(refused.output)\(refused.errors)")
        #expect(refused.errors.contains(".Notes_SUPPORT can't be "))
        #expect(refused.summary.object("error")?.string("hint")?.hasPrefix("allow it, as its owner: chmod u+") == true)
        #expect(try DirectorySnapshot(places.legacy) == before)
        try run("chmod", ["u+rwx", Word(store.support)])
        #expect(try relocate(store.path, places).outcome == "relocated")
    }

    /// Returns the folder's metadata: modes, owners and extended attributes.
    private func attributes(_ store: StoreFiles) throws -> String {
        let script = """
            import os, sys
            for top, folders, files in os.walk(sys.argv[1]):
                folders.sort()
                for path in [top] + [os.path.join(top, name) for name in sorted(files)]:
                    status = os.stat(path)
                    names = [(name, os.getxattr(path, name)) for name in os.listxattr(path)]
                    print(os.path.relpath(path, sys.argv[1]), oct(status.st_mode), status.st_uid, status.st_gid, sorted(names))
            """
        return try run("python3", ["-c", Word(script), Word(store.support)]).output
    }

    @Test func waitsForAnUnidentifiedHolder() throws {
        let places = try Places()
        let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 10)
        let shell = try sqliteShell(store.path)
        let refused = try relocate(store.path, places, "--deadline", "0.2")
        #expect(refused.status == 75, "\(refused.output)")
        #expect(refused.errors.contains("can't be seen from here"))
        shell.closeInput()
        try shell.wait()
        #expect(try relocate(store.path, places).outcome == "relocated")
    }
}
