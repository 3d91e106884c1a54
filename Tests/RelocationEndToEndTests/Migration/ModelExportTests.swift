import AgentProtocol
import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore model export`.
@Suite(.ownThreads) struct ModelExportTests {
    private let directory: TemporaryDirectory
    private let store: FilePath
    private let target: FilePath

    init() throws {
        directory = try TemporaryDirectory()
        store = directory.path.appending("Notes.sqlite")
        target = directory.path.appending("Lost.xcdatamodel")
        let model = try ModelBundle.make(in: directory, [("Notes", ModelStores.new)])
        #expect(try groupstore("create", Word(store), "--model", Word(model)).status == 0)
        try run("rm", ["-r", Word(model)])
    }

    @Test func writesTheModelOfAStoreWhoseModelIsLost() throws {
        let done = try groupstore("model", "export", Word(store), "--to", Word(target), "--json")
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.summary.string("outcome") == "exported")
        let hashes = try [store, target].map { path in
            try groupstore("model", "hash", Word(path), "--json").objects.first?.object("entities")
        }
        #expect(hashes[0] == hashes[1])
        let difference = try groupstore("model", "diff", Word(store), Word(target), "--json")
        #expect(difference.summary.string("outcome") == "same", "\(difference.output)")
        let again = try groupstore("model", "export", Word(store), "--to", Word(target), "--json")
        #expect(again.status == 73)
        #expect(again.summary.object("error")?.string("code") == "exists")
    }

    @Test func refusesAStoreWithoutAUsableCache() throws {
        try sqlite(store, "UPDATE Z_MODELCACHE SET Z_CONTENT = x'00'")
        let damaged = try groupstore("model", "export", Word(store), "--to", Word(target), "--json")
        #expect(damaged.status == 65)
        #expect(damaged.summary.object("error")?.string("code") == "no_model")
        #expect(damaged.errors.contains("model cache is damaged"), "\(damaged.errors)")
        try sqlite(store, "DROP TABLE Z_MODELCACHE")
        #expect(try groupstore("model", "export", Word(store), "--to", Word(target)).status == 65)
        #expect(FileStatus(following: target) == nil)
    }

    /// Every store of a real app.
    @Test(.enabled(if: RealStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
    func writesTheModelOfEveryRealStore() throws {
        var count = 0
        for store in try RealStores.all().map(\.path) {
            let path = directory.path.appending("Real\(count).xcdatamodel")
            let done = try groupstore("model", "export", Word(store), "--to", Word(path), "--json")
            #expect(done.status == 0, "\(store): \(done.errors)")
            let hashes = try [store, path].map { path in
                try groupstore("model", "hash", Word(path), "--json").objects.first?.object("entities")
            }
            #expect(hashes[0] != nil && hashes[0] == hashes[1], "\(store)")
            count += 1
        }
        #expect(count > 20)
    }
}
