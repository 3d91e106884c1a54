import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// The readers of the records in `.groupstore`, from the files up.
enum RecordReaders {
    private static let file = FileIdentity(device: 65_024, inode: 1_234_567)

    /// A fixed identifier, so that a seed and a number repeat a round.
    private static let identifier = TransferIdentifier("1700000000-4fzyo82mvyr") ?? TransferIdentifier()

    private static func transfer(_ purpose: Transfer.Purpose) -> Transfer {
        var transfer = Transfer(
            id: identifier, purpose: purpose, directory: "/old/place", name: "Notes.sqlite", database: file,
            support: file, copies: true, retirement: .symlink, hadWAL: true)
        transfer.closedSupport = file
        return transfer
    }

    private static let receiptExample = RelocationReceipt(
        id: identifier, name: "Notes.sqlite", from: "/old/place/Notes.sqlite",
        at: Date(timeIntervalSince1970: 1_700_000_000), method: .copy, bytes: 1 << 40, hash: "xxh3-128:00ff",
        changeCounter: 7, storeUUID: "B0C9B6C2-0000-4000-8000-000000000001", retirement: .archive, assumedClosed: false)

    private static func container(_ directory: FilePath, _ name: FilePath.Component) throws -> GroupContainer {
        try Directory(directory).makeDirectory(name, mode: 0o700)
        return try GroupContainer(directory.appending(name))
    }

    /// Replaces the file's bytes, without the syncs of the library's own records.
    private static func put(_ bytes: [UInt8], _ name: FilePath.Component, in directory: Directory) throws {
        let file = try directory.open(name, flags: O_WRONLY | O_CREAT | O_TRUNC, mode: 0o600)
        try file.write(bytes, at: 0)
    }

    static func journal(_ directory: FilePath) throws -> Reader {
        let container = try container(directory, "journal")
        let bookkeeping = try container.bookkeeping()
        let purposes: [Transfer.Purpose] = [
            .publish(as: StoredPath("Notes.sqlite")), .archive(reason: "why"), .discard,
            .restore(to: StoredPath("/old"), as: StoredPath("a"), taken: identifier),
        ]
        let states: [TransferState] = [
            .intended, .withdrawn, .committing(database: file, support: file, receipt: receiptExample),
        ]
        var examples: [[UInt8]] = []
        for purpose in purposes {
            for state in states {
                try container.write(TransferJournal(transfer: transfer(purpose), state: state))
                examples.append(try DurableFile.read("journal.json", in: bookkeeping) ?? [])
            }
        }
        return Reader(examples: examples) { bytes in
            do {
                try put(bytes, "journal.json", in: bookkeeping)
                guard let read = try? container.journal() else { return .refused }
                try container.write(read)
                return try container.journal() == read ? .accepted : .wrong("not read back: \(read)")
            } catch {
                return .wrong("\(error)")
            }
        }
    }

    static func receipt(_ directory: FilePath) throws -> Reader {
        let container = try container(directory, "receipt")
        try container.write(receiptExample)
        let receipts = try container.bookkeeping().directory("receipts")
        let name = try receipts.names().first ?? "1-a.json"
        let example = try DurableFile.read(name, in: receipts) ?? []
        try receipts.removeFile(name)
        return Reader(examples: [example]) { bytes in
            do {
                try put(bytes, "1-a.json", in: receipts)
                guard let read = try container.receipts().first else { return .refused }
                try receipts.removeFile("1-a.json")
                try container.write(read)
                let again = try container.receipts().first
                try container.removeReceipt(read.id)
                return again == read ? .accepted : .wrong("not read back: \(read)")
            } catch {
                return .wrong("\(error)")
            }
        }
    }

    static func stopped(_ directory: FilePath) throws -> Reader {
        let container = try container(directory, "stopped")
        let bookkeeping = try container.bookkeeping()
        var socket = ManagedProgram(.systemd, user: 1000, "notes@1.service")
        socket.isStartedAgain = false
        let programs = [ManagedProgram(.flatpak, user: 1000, "org.a.Notes"), socket, .init(.podman, user: nil, "0f")]
        try container.write(StoppedPrograms(source: "/old/place", destination: "/new", programs))
        let example = try DurableFile.read("app-stopped.json", in: bookkeeping) ?? []
        return Reader(examples: [example]) { bytes in
            do {
                try put(bytes, "app-stopped.json", in: bookkeeping)
                guard let read = try? container.stoppedPrograms() else { return .refused }
                try container.write(read)
                return try container.stoppedPrograms() == read ? .accepted : .wrong("not read back: \(read)")
            } catch {
                return .wrong("\(error)")
            }
        }
    }

    static func claim(_ directory: FilePath) throws -> Reader {
        let container = try container(directory, "claim")
        var process = ProcessIdentity.current
        (process.pid, process.program, process.started) = (4711, "fuzz", 1_234_567)
        (process.boot, process.namespace) = ("B0C9B6C2-0000-4000-8000-000000000001", 4_026_531_836)
        let record = ClaimRecord(
            process: process, purpose: "fuzz", accesses: [.init(item: "Notes.sqlite", writes: true)], isGranted: true)
        let notice = try ClaimNotice(record, in: container)
        let holders = try container.claims().directory("holders")
        let name = try holders.names().first ?? "1-a.json"
        let example = OpenFileLock.note(name, in: holders)
        _ = consume notice
        guard let lock = try OpenFileLock("1-a.json", in: holders) else {
            throw SystemError("fcntl", .resourceTemporarilyUnavailable)
        }
        let held = HeldLock(lock)
        return Reader(examples: [example]) { bytes in
            do {
                try held.lock.write(note: bytes)
                return container.claimRecords().isEmpty ? .refused : .accepted
            } catch {
                return .wrong("\(error)")
            }
        }
    }

    /// Keeps a lock for a closure, which can't own a noncopyable value.
    private final class HeldLock: Sendable {
        let lock: OpenFileLock

        init(_ lock: consuming OpenFileLock) { self.lock = lock }
    }
}
