import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of transactions over several stores in rollback mode. Each store's journal names a super-journal by its path,
/// and the super-journal decides for all of them (https://www.sqlite.org/atomiccommit.html, section 5).
@Suite(.ownThreads) struct SuperJournalTests {
    /// The program is killed as it removes the super-journal, which commits the transaction, or a later journal.
    @Test(.enabled(if: Programs.canTrace, "strace can't attach here"), arguments: 1...3, Places.FileSystem.allCases)
    func aTransactionOverTwoStoresIsAtomic(removal: Int, fileSystem: Places.FileSystem) throws {
        let places = try Places(fileSystem)
        let notes = places.legacy.appending("Notes.sqlite")
        let tags = places.legacy.appending("Tags.sqlite")
        try fill([notes, tags])
        try interrupt(notes, tags, atRemoval: removal)
        for store in [notes, tags] {
            let relocated = try groupstore("relocate", Word(store), Word(places.group), "--json")
            #expect(relocated.summary.string("outcome") == "relocated", "\(relocated.errors)")
            let count = try changed(places.group.appending(store.lastComponent ?? ""))
            #expect(count == (removal == 1 ? "0\n" : "500\n"))
        }
        let directory = try Directory(places.legacy)
        #expect(try directory.names().map { try directory.status($0)?.kind } == [.symbolicLink, .symbolicLink])
    }

    /// The journals got their super-journal's path in a container. The volume has a different path on the host.
    @Test(.enabled(if: Programs.canTrace, "strace can't attach here"))
    func refusesAStoreWhoseSuperJournalIsUnreachable() throws {
        let places = try Places()
        let notes = places.legacy.appending("Notes.sqlite")
        let tags = places.legacy.appending("Tags.sqlite")
        try fill([notes, tags])
        try interrupt(notes, tags, atRemoval: 1)
        let volume = places.scratch("volume")
        try run("mv", [Word(places.legacy), Word(volume)])
        let before = try DirectorySnapshot(volume)

        for name: FilePath.Component in ["Notes.sqlite", "Tags.sqlite"] {
            let store = volume.appending(name)
            for options: [Word] in [[], ["--dry-run"]] {
                let refused = try groupstore("relocate", Word(store), Word(places.group), "--json", options: options)
                #expect(refused.status == 65)
                #expect(refused.summary.object("error")?.string("code") == "super_journal")
            }
            #expect(try groupstore("inspect", Word(store)).status == 65)
        }
        #expect(try DirectorySnapshot(volume) == before)

        try run("mv", [Word(volume), Word(places.legacy)])
        for store in [notes, tags] {
            #expect(try groupstore("relocate", Word(store), Word(places.group)).status == 0)
            #expect(try changed(places.group.appending(store.lastComponent ?? "")) == "0\n")
        }
    }

    /// SQLite removes a super-journal once it has rolled a store back, unless a journal at a place that it lists names
    /// it.
    @Test(.enabled(if: Programs.canTrace, "strace can't attach here"), arguments: ["inspect", "guard"])
    func readingAStoreThatWasRenamedLeavesTheSuperJournal(command: String) throws {
        let places = try Places()
        let (notes, tags) = (places.legacy.appending("Notes.sqlite"), places.legacy.appending("Tags.sqlite"))
        try fill([notes, tags])
        try interrupt(notes, tags, atRemoval: 1)
        let renamed = places.legacy.appending("Renamed.sqlite")
        for suffix in ["", "-journal"] {
            try run("mv", [Word(notes.appending(suffix: suffix)), Word(renamed.appending(suffix: suffix))])
            let other = places.legacy.appending("Others.sqlite")
            try run("mv", [Word(tags.appending(suffix: suffix)), Word(other.appending(suffix: suffix))])
        }
        let superJournals = { try Directory(places.legacy).names().filter { $0.string.contains("-mj") } }
        #expect(try superJournals().count == 1)

        let options: [Word] = command == "guard" ? ["--", "true"] : []
        #expect(try groupstore(Word(command), Word(renamed), "--json", options: options).status == 0)
        #expect(try superJournals().count == 1)
        #expect(try changed(renamed) == "0\n")
    }

    private func fill(_ stores: [FilePath]) throws {
        for store in stores {
            try sqlite(
                store,
                "CREATE TABLE item (text); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
                    + "INSERT INTO item SELECT i FROM n")
        }
    }

    /// Kills the transaction's program just before it removes a file.
    private func interrupt(_ notes: FilePath, _ tags: FilePath, atRemoval removal: Int) throws {
        let killed = try run(
            "strace",
            [
                "-f", "-o", "/dev/null", "-e", "trace=unlink", "-e", "inject=unlink:signal=KILL:when=\(removal)",
                "sqlite3", "-batch", "-init", "/dev/null", Word(notes),
                "ATTACH '\(tags)' AS tags; BEGIN; UPDATE item SET text = 'new'; UPDATE tags.item SET text = 'new'; COMMIT",
            ])
        #expect(killed.status != 0)
        #expect(try StoreFiles(tags).parts().contains("Tags.sqlite-journal"))
    }

    private func changed(_ store: FilePath) throws -> String {
        try sqlite(store, "SELECT count(*) FROM item WHERE text = 'new'")
    }
}
