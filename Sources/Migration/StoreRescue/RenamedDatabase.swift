import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreHazards
import SystemPackage

/// A database in a store's directory that may be a former file of the store. A program whose database was renamed in
/// rollback mode, or with its log and index, has nothing open between its transactions that tells.
struct RenamedDatabase {
    /// Returns a sentence for each of them: one that a program has open which doesn't have the store open, that is
    /// older than the file at the store's name, and whose first page has the same schema.
    static func notes(_ store: StoreLocation) -> [String] {
        let named = NamedFiles(store.name, in: store.directory)
        guard let database = named.database, let birth = store.directory.birth(store.name.database),
            let schema = schema(BranchFile(path: store.path, identity: database)),
            let processes = ProcFileSystem.processes
        else { return [] }
        var found: Set<FileIdentity> = []
        return processes.flatMap { pid -> [String] in
            guard pid != getpid(), let holder = FileHolder(process: pid) else { return [] }
            let files = HeldFile.of(pid).filter(\.canWrite)
            guard !files.contains(where: { $0.identity == database }) else { return [] }
            return files.filter { file in
                let held = BranchFile(file, of: pid)
                return file.links > 0 && file.path.removingLastComponent() == store.directory.path
                    && (held.recorded.birth ?? birth) < birth && self.schema(held) == schema
                    && found.insert(file.identity).inserted
            }.map { file in
                "\(holder) has \(PrintablePath(file.path)) open, an older database with the same tables: if it had the "
                    + "store's name before, what the program has committed since is in that file"
            }
        }
    }

    /// Returns the first page after the header, which has the schema or its first part; nil for a file that is no
    /// database or has no tables.
    private static func schema(_ file: BranchFile) -> [UInt8]? {
        guard let source = try? file.open(),
            let start = try? source.read(count: DatabaseHeader.length, at: 0, path: file.path),
            let header = DatabaseHeader(start),
            let page = try? source.read(count: header.pageSize, at: 0, path: file.path), page.count > 108
        else { return nil }
        // A page of a b-tree without a cell.
        return page[103] == 0 && page[104] == 0 ? nil : Array(page[DatabaseHeader.length...])
    }
}
