import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// The folder of external data of one of the two stores.
struct ExternalFolder {
    private static let inside: FilePath.Component = "_EXTERNAL_DATA"
    private static let maximumFileSize: Int64 = 1 << 30

    let owner: StoreLocation

    /// The folder; nil if the store has none.
    func directory() throws -> Directory? {
        guard try owner.directory.status(owner.name.support)?.kind == .directory else { return nil }
        let support = try owner.directory.directory(owner.name.support)
        guard try support.status(Self.inside)?.kind == .directory else { return nil }
        return try support.directory(Self.inside)
    }

    /// The folder, which is created if the store has none.
    func madeDirectory() throws -> Directory {
        if try owner.directory.status(owner.name.support) == nil {
            try owner.directory.makeDirectory(owner.name.support, mode: 0o700)
        }
        let support = try owner.directory.directory(owner.name.support)
        if try support.status(Self.inside) == nil { try support.makeDirectory(Self.inside, mode: 0o700) }
        return try support.directory(Self.inside)
    }

    /// Returns the name of the file that a column's value refers to: 2, the name and 0 (Documentation/Formats.md).
    static func file(in value: SQLiteValue) -> FilePath.Component? {
        guard case .blob(let bytes) = value, bytes.count == 38, bytes.first == 2, bytes.last == 0 else { return nil }
        let name = bytes[1..<37]
        let isName = name.allSatisfy { byte in
            let scalar = UnicodeScalar(byte)
            return scalar.properties.isASCIIHexDigit || scalar == "-"
        }
        return isName ? FilePath.Component(bytes: Array(name)) : nil
    }

    /// Returns the value of a column that refers to a file.
    static func reference(to name: String) -> [UInt8] { [2] + Array(name.utf8) + [0] }

    /// Returns the data that a column's value stands for. A reference to a missing file equals only one to the same
    /// name, or if `isNamed` is false, one to any missing file.
    func data(_ value: SQLiteValue, isNamed: Bool = true) throws -> SQLiteValue {
        guard case .blob(let bytes) = value else { return value }
        if let name = Self.file(in: value) {
            guard let found = try contents(of: name) else {
                return .text(isNamed ? "missing " + name.string : "missing")
            }
            return .blob(found)
        }
        return bytes.first == 1 ? .blob(Array(bytes.dropFirst())) : value
    }

    /// Returns the bytes of a file; nil if there is none.
    func contents(of name: FilePath.Component) throws -> [UInt8]? {
        guard let directory = try directory(), let status = try directory.status(name), status.kind == .regular,
            status.size <= Self.maximumFileSize
        else { return nil }
        let file = try directory.open(name, flags: O_RDONLY | O_NOFOLLOW)
        return try file.read(count: Int(status.size), at: 0, path: directory.path.appending(name))
    }
}

/// Copies the external data of the objects that come from the legacy store.
struct ExternalFiles {
    let session: MergeSession
    let group: ExternalFolder
    let legacy: ExternalFolder

    private var store: StoreWriter { session.store }

    /// Lets statements read the data that a value stands for.
    func register() throws {
        // Not through self, which holds the connection: it would never be closed, and the store stay open.
        try store.addFunction("gs_external", arguments: 2) { [group, legacy] values in
            try (values[0] == .text("legacy") ? legacy : group).data(values[1])
        }
    }

    /// Copies the files. `gs_files` then maps the values that change, because a name is taken by other data. A file
    /// that is missing stays missing: its object must not get another one's data. Returns the number of copied files.
    func copy() throws -> Int64 {
        try store.execute("CREATE TEMP TABLE gs_files (o BLOB PRIMARY KEY, n BLOB NOT NULL)")
        try findMissing()
        var count: Int64 = 0
        for (index, table) in session.schema.tables.enumerated() {
            for column in table.columns where column.role == .external {
                let name = MergeSession.quote(column.name)
                let rows = try store.prepare(
                    "SELECT l.\(name) FROM \(session.map(index)) AS m CROSS JOIN \(session.legacyView(index)) AS l "
                        + "ON l.gs_id = m.lid WHERE m.s IN (\(MergeSession.State.added.rawValue), "
                        + "\(MergeSession.State.takesLegacy.rawValue)) AND \(Self.isReference("l.\(name)"))")
                while try rows.step() { count += try copy(rows.value(0)) }
            }
        }
        if count > 0 {
            let directory = try group.madeDirectory()
            try directory.synchronize()
            try group.owner.directory.directory(group.owner.name.support).synchronize()
        }
        return count
    }

    /// Returns an SQL condition: a value refers to a file.
    private static func isReference(_ value: String) -> String {
        "typeof(\(value)) = 'blob' AND length(\(value)) = 38 AND substr(\(value), 1, 1) = x'02'"
    }

    /// Collects the references of the group's store whose files are missing, as `gs_missing`. No other file may get
    /// such a name.
    private func findMissing() throws {
        try store.execute("CREATE TEMP TABLE gs_missing (o BLOB PRIMARY KEY)")
        let directory = try group.directory()
        for (index, table) in session.schema.tables.enumerated() {
            for column in table.columns where column.role == .external {
                let value = "g.\(MergeSession.quote(column.name))"
                let rows = try store.prepare(
                    "SELECT DISTINCT \(value) FROM \(session.groupView(index)) AS g WHERE \(Self.isReference(value))")
                while try rows.step() {
                    let found = rows.value(0)
                    guard let name = ExternalFolder.file(in: found), try directory?.status(name) == nil else {
                        continue
                    }
                    try store.execute("INSERT OR IGNORE INTO temp.gs_missing VALUES (?1)", [found])
                }
            }
        }
    }

    private func copy(_ value: SQLiteValue) throws -> Int64 {
        guard let name = ExternalFolder.file(in: value) else { return 0 }
        guard let source = try legacy.directory(), try source.status(name)?.kind == .regular else {
            guard try group.directory()?.status(name) != nil, let other = Self.newName() else { return 0 }
            try rename(value, to: other)
            return 0
        }
        let target = try group.madeDirectory()
        var newName = name
        let isThere = try target.status(name) != nil
        let isMissing = try store.integer("SELECT 1 FROM temp.gs_missing WHERE o = ?1", [value]) != nil
        if isThere || isMissing {
            if try isThere && legacy.contents(of: name) == group.contents(of: name) { return 0 }
            guard let other = Self.newName(), let component = FilePath.Component(other) else { return 0 }
            newName = component
            guard try rename(value, to: other) else { return 0 }
        }
        let file = try source.open(name, flags: O_RDONLY | O_NOFOLLOW)
        let path = source.path.appending(name)
        let mode = try file.status(path: path).permissions
        let copy = try target.open(newName, flags: O_RDWR | O_CREAT | O_EXCL, mode: mode)
        let targetPath = target.path.appending(newName)
        _ = try FileCopy(from: path, to: targetPath).run(from: file, to: copy)
        try copy.synchronize(path: targetPath)
        return 1
    }

    /// Makes a value refer to another file. Returns false if it does already.
    @discardableResult private func rename(_ value: SQLiteValue, to name: String) throws -> Bool {
        try store.execute(
            "INSERT OR IGNORE INTO temp.gs_files VALUES (?1, ?2)",
            [value, .blob(ExternalFolder.reference(to: name))])
        return store.changes == 1
    }

    /// Returns a UUID in the form of Core Data's file names.
    private static func newName() -> String? {
        var generator = SystemRandomNumberGenerator()
        let bytes = (0..<16).map { place -> UInt8 in
            let byte = UInt8.random(in: .min ... .max, using: &generator)
            return place == 6 ? byte & 0x0F | 0x40 : place == 8 ? byte & 0x3F | 0x80 : byte
        }
        let digits = bytes.map { (($0 < 16 ? "0" : "") + String($0, radix: 16)).uppercased() }
        let groups = [0..<4, 4..<6, 6..<8, 8..<10, 10..<16]
        return groups.map { digits[$0].joined() }.joined(separator: "-")
    }
}
