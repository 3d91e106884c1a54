import Glibc
import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import SystemPackage

extension Replica {
    /// Places a snapshot as a new replica, after its hash, its structure and its own record were checked. The file is
    /// copied; the caller removes it. Throws `ReplicationError.exists` if there is a store at `location`, or a part of
    /// one, and `.malformedSnapshot`.
    ///
    /// - Parameter movingFile: True to make the file itself the replica, if it is on the same file system. It may be
    ///   gone after an error, too.
    package static func create(
        _ location: StoreLocation, from snapshot: Snapshot, stream: String, movingFile: Bool = false,
        busyTimeout: Duration = .seconds(10)
    ) throws -> Replica {
        for name in [location.name.database] + location.name.sideFiles
        where try location.directory.status(name) != nil {
            throw ReplicationError.exists(location.directory.path.appending(name))
        }
        // The disk writes the pending pages while the content is checked.
        let sync = movingFile ? try BackgroundSync(snapshot.path) : nil
        do {
            try snapshot.check()
        } catch {
            try? sync?.finish()
            throw error
        }
        try sync?.finish()
        guard let temporary = FilePath.Component("." + location.name.database.string + ".snapshot"),
            let parts = StoreName.existing(temporary)
        else { throw SystemError("open", .fileNameTooLong, path: location.path) }
        let staged = StoreLocation(directory: location.directory, name: parts)
        try remove(staged)
        do {
            if try !movingFile || !move(snapshot.path, to: staged) { try copy(snapshot.path, to: staged) }
            try install(staged, snapshot, stream: stream)
            try location.directory.open(temporary, flags: O_RDWR).synchronize(path: staged.path)
            do throws(SystemError) {
                try location.directory.rename(
                    temporary, to: location.name.database, in: location.directory, .refuse)
            } catch {
                if error.errno == .fileExists { throw ReplicationError.exists(location.path) }
                throw error
            }
            try location.directory.synchronize()
        } catch {
            try? remove(staged)
            throw error
        }
        return try Replica(opening: location, stream: stream, busyTimeout: busyTimeout)
    }

    private static func remove(_ staged: StoreLocation) throws {
        for name in staged.name.sideFiles + [staged.name.database] { try staged.directory.removeFile(name) }
    }

    /// Returns false if the file is on another file system.
    private static func move(_ path: FilePath, to staged: StoreLocation) throws -> Bool {
        guard let name = path.lastComponent else { return false }
        do throws(SystemError) {
            try Directory(path.removingLastComponent()).rename(
                name, to: staged.name.database, in: staged.directory, .refuse)
        } catch {
            if error.errno == .improperLink { return false }
            throw error
        }
        staged.directory.giveToOwner(try staged.directory.open(staged.name.database, flags: O_RDWR))
        return true
    }

    private static func copy(_ path: FilePath, to staged: StoreLocation) throws {
        let source = try Descriptor(opening: path, flags: O_RDONLY | O_NOFOLLOW)
        let target = try staged.directory.open(
            staged.name.database, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        staged.directory.giveToOwner(target)
        var copy = FileCopy(from: path, to: staged.path)
        copy.checksHoles = false
        copy.beginsWriteback = true
        _ = try copy.run(from: source, to: target)
    }

    private static func install(_ staged: StoreLocation, _ snapshot: Snapshot, stream: String) throws {
        let database = try StoreWriter(staged.path)
        try database.execute("PRAGMA journal_mode = DELETE")
        try database.transaction(.immediate) {
            let last = try RecordedPosition(database).lastRow
            try ReplicaState(stream: stream, position: snapshot.upto, schema: snapshot.schema, lastRow: last)
                .install(database)
        }
        // The log is empty and goes with this connection; the header stays.
        try database.execute("PRAGMA journal_mode = WAL")
    }

    /// Replaces the whole content by a snapshot's, in one transaction; readers keep their connections. The replica's
    /// own named subscribers stay. The snapshot's file is changed; the caller removes it.
    ///
    /// Throws `ReplicationError.diverged`, `.malformedSnapshot`, `.otherFormat`, `StoreError`; the replica is unchanged
    /// then.
    ///
    /// - Parameter discardingOwnWrites: True to continue although another program has written to the replica.
    package func replace(with snapshot: Snapshot, discardingOwnWrites: Bool = false) throws {
        abandonBatch()
        if !discardingOwnWrites { try check() }
        try snapshot.check()
        let source = try StoreWriter(snapshot.path)
        try source.execute("PRAGMA journal_mode = DELETE")
        try source.execute("PRAGMA synchronous = OFF")
        for (pragma, what) in [("page_size", "page size"), ("encoding", "text encoding")]
        where try source.text("PRAGMA main.\(pragma)") != database.text("PRAGMA main.\(pragma)") {
            throw ReplicationError.otherFormat(what, location.path)
        }
        let last = try RecordedPosition(source).lastRow
        let next = ReplicaState(stream: stream, position: snapshot.upto, schema: snapshot.schema, lastRow: last)
        tables = nil
        do {
            let target = try ReplicaConnection(location, busyTimeout: busyTimeout)
            // From here on nobody else can write. In WAL mode, this object's own connection can still read.
            let replacement = try ContentReplacement(of: target, by: source)
            let (subscribers, version) = try database.transaction(.deferred) {
                if !discardingOwnWrites { _ = try ReplicaState(database) }
                return (try Self.subscribers(database), try database.integer("PRAGMA main.schema_version") ?? 0)
            }
            try source.transaction(.immediate) {
                // The copy increments the version that the replica has.
                try next.install(source, schemaVersion: version + 1)
                for row in subscribers {
                    try source.execute(
                        "INSERT OR REPLACE INTO main.GS_SUBSCRIBER (name, number, nonce, time) VALUES (?, ?, ?, ?)",
                        row)
                }
            }
            try replacement.finish()
        }
        state = next
        try check()
        try database.checkpoint(above: 4 << 20, busyTimeout: busyTimeout)
    }

    /// Reads the replica's named subscribers. What they have acknowledged may be of another history by now; then they
    /// get a reset.
    private static func subscribers(_ database: SQLiteConnection) throws -> [[SQLiteValue]] {
        let row = try database.prepare("SELECT name, number, nonce, time FROM main.GS_SUBSCRIBER")
        var found: [[SQLiteValue]] = []
        while try row.step() { found.append((0..<4).map { row.value($0) }) }
        return found
    }

    /// Makes a replica a home, even one that has diverged: a new history begins with its content, and tokens of the
    /// former one are void. Returns the new history's token. No `Replica` of this process may be open. Throws
    /// `ReplicationError.notAReplica` and `.hardLinked`, `StoreError`.
    package static func promote(
        _ location: StoreLocation, busyTimeout: Duration = .seconds(10)
    ) throws -> HistoryToken {
        try checkLinks(location)
        let database = try ReplicaConnection(location, busyTimeout: busyTimeout)
        let token = try database.transaction(.immediate) {
            _ = try ReplicaState(database, ignoringWrites: true)
            // Changes by other programs since then aren't adopted: `history enable` records their gaps.
            let isOutdated = try RecordedPosition(database).isOutdated(database)
            try database.execute("DROP TABLE main.GS_REPLICA")
            try RecordedPosition.begin(database)
            let version = try database.integer("PRAGMA main.schema_version") ?? 0
            if !isOutdated { try RecordedPosition.adoptSchemaVersion(version, database) }
            let now = try RecordedPosition(database)
            return HistoryToken(history: now.identifier, number: now.number, nonce: now.nonce)
        }
        // Readers would take a batch in the log for one of the home's transactions.
        do { try database.execute("PRAGMA wal_checkpoint(TRUNCATE)") } catch StoreError.busy {}
        return token
    }
}
