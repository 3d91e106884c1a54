import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Looks for hazards to stores: at the names of their files, at the open files of all processes that this one may
/// inspect, and at the kernel's list of locks. It takes no lock, opens no file of a store and writes nothing.
package struct HazardScan {
    private let stores: [(name: StoreName, directory: Directory)]
    private let readsLogs: Bool
    private let known: KnownSideFiles?
    private let versions: SQLiteVersions?
    private let isExcluded: (Int32) -> Bool

    /// - Parameters:
    ///   - stores: The stores' names, with their directories.
    ///   - readsLogs: True to recognise a renamed log by its first bytes. The process must have no SQLite connection:
    ///     closing a descriptor would drop the connection's locks if the file is a database.
    ///   - known: Where to record the files at the stores' names. A renamed log is recognised if an earlier look at the
    ///     stores has recorded it.
    ///   - versions: The versions of SQLite that are known already; nil to leave out the warnings.
    ///   - isExcluded: True for processes whose descriptors don't count, such as this one.
    package init(
        _ stores: [(name: StoreName, directory: Directory)], readsLogs: Bool = false,
        recordingIn known: KnownSideFiles? = nil, warningsBy versions: SQLiteVersions? = nil,
        isExcluded: @escaping (Int32) -> Bool = { $0 == getpid() }
    ) {
        (self.stores, self.readsLogs, self.known, self.isExcluded) = (stores, readsLogs, known, isExcluded)
        self.versions = versions
    }

    /// The time between two looks. SQLite opens or closes a store in less.
    package static let interval: Duration = .milliseconds(20)

    /// Returns the hazards that two looks see. Returns after the first look if it sees none.
    package func hazards() -> [StoreHazard] {
        let first = Set(look().map(\.sighting))
        guard !first.isEmpty else { return [] }
        pause(Self.interval)
        return look().filter { first.contains($0.sighting) }.compactMap { found in
            let unknown = found.sighting.pid == 0 ? FileHolder(pid: 0, program: "?") : nil
            guard let holder = unknown ?? FileHolder(process: found.sighting.pid) else { return nil }
            return StoreHazard(
                found.sighting.code, found.store, holder, found.file, expected: found.expected, lost: found.lost,
                cause: found.cause)
        }
    }

    /// What one look sees.
    private struct Found {
        let sighting: HazardDecision.Sighting
        let store: FilePath
        let file: HeldFile
        let expected: FileIdentity?
        let lost: HeldStore?
        let cause: String
    }

    private func look() -> [Found] {
        let named = stores.map { NamedFiles($0.name, in: $0.directory) }
        for store in stores { known?.record(store.name, in: store.directory) }
        let files = named.reduce(into: Set<FileIdentity>()) { $0.formUnion($1.all) }
        let names = stores.flatMap { [$0.name.database] + $0.name.sideFiles }
        let processes = processes(files, named: Set(names.map(\.bytes)))
        let locks = processes.isEmpty ? nil : RecordLocks()
        return hiddenWriters(named)
            + named.flatMap { store in
                let holders = processes.map { holder(of: store, $0, among: processes, locks) }
                let decision = HazardDecision(store, holders) { versions?.version(inProcess: $0) }
                return decision.sightings.compactMap { found($0, store, processes, locks) }
            }
    }

    private func found(
        _ sighting: HazardDecision.Sighting, _ store: NamedFiles, _ processes: [Process], _ locks: RecordLocks?
    ) -> Found? {
        guard let process = processes.first(where: { $0.pid == sighting.pid }),
            let file = process.files.first(where: { $0.descriptor == sighting.descriptor })
        else { return nil }
        let lost = HeldStore(sighting.code, file, among: process.files, store) { side(of: $0, of: process.pid, store) }
        if sighting.code == .orphanedLog, lost?.isUnused(by: process.pid, locks) == true { return nil }
        if sighting.code == .droppedLocks, let index = process.files.first(where: { $0.identity == store.index }),
            HeldStore.isInherited(index, by: process.pid, locks)
        {
            return nil
        }
        // A forked child that doesn't use the index misses no commit.
        if sighting.code == .mixedModes, !usesIndex(of: store, otherThan: process, processes, locks) { return nil }
        let version = sighting.code == .oldSQLite ? versions?.version(inProcess: sighting.pid)?.description : nil
        return Found(
            sighting: sighting, store: store.path, file: file, expected: store.expected(file, sighting.code),
            lost: lost, cause: version ?? "")
    }

    /// True if a process other than that one has the store's index open, and has not only inherited it.
    private func usesIndex(
        of store: NamedFiles, otherThan process: Process, _ processes: [Process], _ locks: RecordLocks?
    ) -> Bool {
        processes.contains { other in
            other.pid != process.pid
                && other.files.contains {
                    $0.canWrite && $0.identity == store.index && !HeldStore.isInherited($0, by: other.pid, locks)
                }
        }
    }

    /// Returns the stores on file systems that can hide writers. No process is known: they are elsewhere.
    private func hiddenWriters(_ named: [NamedFiles]) -> [Found] {
        guard versions != nil else { return [] }
        return zip(stores, named).compactMap { store, named in
            guard let database = named.database, let fileSystem = try? store.directory.fileSystem(),
                [.network, .userSpace].contains(fileSystem.reach)
            else { return nil }
            return Found(
                sighting: HazardDecision.Sighting(code: .hiddenWriters, pid: 0, descriptor: -1, identity: database),
                store: named.path, file: HeldFile(descriptor: -1, identity: database, path: named.path),
                expected: database, lost: nil, cause: fileSystem.name)
        }
    }

    private struct Process {
        let pid: Int32
        let files: [HeldFile]
        /// What `StoreHolderFiles` says of them.
        private(set) var directories: [FilePath: FileIdentity] = [:]
        private(set) var present: [FilePath: FileIdentity] = [:]

        /// - Parameters:
        ///   - stores: The files of the stores.
        ///   - names: Their names. Of the other files it doesn't matter where they are.
        init(_ pid: Int32, _ stores: Set<FileIdentity>, named names: Set<[UInt8]>) {
            self.pid = pid
            files = HeldFile.of(pid).sorted { $0.descriptor < $1.descriptor }
            let known = files.filter { stores.contains($0.identity) }
            func isOfStore(_ file: HeldFile) -> Bool {
                stores.contains(file.identity) || names.contains(file.name)
                    || known.contains { file.isSideFile("-wal", of: $0) || file.isSideFile("-shm", of: $0) }
            }
            for file in files where isOfStore(file) {
                let view = ProcessView(pid, file)
                present[file.path] = view.present
                directories[file.directory] = view.directory
            }
        }
    }

    /// Returns the processes that have one of the files open, or an unlinked one that had one of the names. Most
    /// processes with unlinked files have them for themselves: their names tell.
    private func processes(_ files: Set<FileIdentity>, named names: Set<[UInt8]>) -> [Process] {
        (ProcFileSystem.processes ?? []).compactMap { pid in
            guard !isExcluded(pid) else { return nil }
            let isHolder = HeldFile.hasFile(pid) { status, link in
                status.kind == .regular
                    && (files.contains(status.identity) || status.links == 0 && names.contains(link.lastName))
            }
            return isHolder ? Process(pid, files, named: names) : nil
        }
    }

    private func holder(
        of store: NamedFiles, _ process: Process, among processes: [Process], _ locks: RecordLocks?
    ) -> StoreHolderFiles {
        let database = process.files.first { $0.canWrite && $0.identity == store.database }
        return StoreHolderFiles(
            pid: process.pid, files: process.files, directories: process.directories, present: process.present,
            sides: database != nil ? sides(process, store) : [:],
            locked: locks.map { locks in
                Set(process.files.map(\.identity).filter { locks.has(process.pid, on: $0) })
            },
            hasLock: database.map { hasLock(process.pid, $0, among: processes, locks) } ?? true,
            hasOwnLock: database.map { locks?.has(process.pid, on: $0.identity) ?? false } ?? false)
    }

    /// Returns true if the process has a lock on the database, or has its descriptor from one that has: a child
    /// inherits descriptors without their locks, and need not use them.
    private func hasLock(
        _ pid: Int32, _ database: HeldFile, among processes: [Process], _ locks: RecordLocks?
    ) -> Bool {
        guard let locks else { return true }
        if locks.has(pid, on: database.identity) { return true }
        return processes.contains { other in
            other.pid != pid && locks.has(other.pid, on: database.identity)
                && other.files.contains {
                    $0.identity == database.identity && database.isShared(by: pid, with: $0, of: other.pid)
                }
        }
    }

    /// Returns the files of a process that are write-ahead logs or their indexes, as far as that can be told.
    private func sides(_ process: Process, _ store: NamedFiles) -> [FileIdentity: HeldStore.Side] {
        process.files.reduce(into: [:]) { found, file in
            if file.canWrite { found[file.identity] = side(of: file, of: process.pid, store) }
        }
    }

    private func side(of file: HeldFile, of pid: Int32, _ store: NamedFiles) -> HeldStore.Side? {
        readsLogs ? file.side(of: pid) : known?.side(of: file, of: pid, store.path)
    }
}

extension NamedFiles {
    /// Returns the file that should be where this one is, by the ending of its name.
    fileprivate func expected(_ file: HeldFile, _ code: StoreHazard.Code) -> FileIdentity? {
        let name = file.path.lastComponent?.string ?? ""
        if name.hasSuffix("-shm") { return index }
        // A renamed log may have any name.
        return name.hasSuffix("-wal") || code == .orphanedLog ? log : database
    }
}

/// A process's view of the path under which it has a file open. The process may have another root or other mounts.
private struct ProcessView {
    /// The file that is at the path.
    let present: FileIdentity?
    /// The directory of the path.
    let directory: FileIdentity?

    init(_ pid: Int32, _ file: HeldFile) {
        // The kernel writes the path from this process's root if it leads there, else from the mount's.
        let roots = ["/", "/proc/\(pid)/root/"].map { Array($0.utf8) }
        // As bytes, which cost less than paths.
        let path = file.path.bytes
        func identity(_ path: ArraySlice<UInt8>, at root: [UInt8]) -> FileIdentity? {
            var found = stat()
            let path = (root + path + [0]).map { CChar(bitPattern: $0) }
            return fstatat(AT_FDCWD, path, &found, 0) == 0 ? FileStatus(found).identity : nil
        }
        let root = roots.first { identity(path[...], at: $0) == file.identity }
        present = root == nil ? nil : file.identity
        // Not `lazy`, whose `first` looks twice: the process may end in between.
        var directory: FileIdentity?
        for root in root.map({ [$0] }) ?? roots.reversed() where directory == nil {
            directory = identity(path[..<(path.lastIndex(of: UInt8(ascii: "/")) ?? 0)], at: root)
        }
        self.directory = directory
    }
}
