import Foundation
import GRDB
import GroupStore

/// What is done inside a coordinated access. Each action but `hold` and `nested` can be killed anywhere without losing a
/// row, as long as nobody else has the store open.
struct Access: Sendable {
    let request: Request
    let cast: Cast

    func hold() -> DispatchSemaphore? {
        guard request.action == "hold" else { return nil }
        let semaphore = DispatchSemaphore(value: 0)
        cast.holds.put(semaphore, as: request.key ?? "?")
        return semaphore
    }

    /// Does what is asked for with the items, where they are now.
    func act(on urls: [URL], by coordinator: FileCoordinator) throws {
        let text = request.text ?? ""
        if let pause = request.milliseconds { usleep(UInt32(pause) * 1000) }
        switch request.action {
        case "write": try write(text, at: urls[0])
        case "replace": try replace(urls[0], adding: text)
        case "move": try move(urls[0], to: urls[1], by: coordinator)
        case "rename":
            try FileManager.default.moveItem(at: urls[0], to: urls[1])
            coordinator.item(at: urls[0], didMoveTo: urls[1])
        case "delete": try FileManager.default.removeItem(at: urls[0])
        case "touch": try Data(text.utf8).write(to: urls[0])
        default: break
        }
    }

    func tell(_ event: String, _ urls: [URL] = []) {
        Report(
            id: request.id, event: event, key: request.key, what: request.action,
            paths: urls.map { $0.path(percentEncoded: false) }
        ).send()
    }

    private func write(_ text: String, at url: URL) throws {
        let database = try Notebook.open(url)
        try database.write { try $0.execute(sql: "INSERT INTO entry (text) VALUES (?)", arguments: [text]) }
        try database.close()
    }

    /// Puts a copy with one more row in the store's place. Whoever has the store open meanwhile loses what they write.
    private func replace(_ url: URL, adding text: String) throws {
        let fresh = url.deletingLastPathComponent().appending(path: ".fresh-\(UUID().uuidString)")
        let source = try Notebook.open(url)
        let target = try DatabaseQueue(path: fresh.path(percentEncoded: false))
        try source.backup(to: target)
        try source.close()
        try target.write { try $0.execute(sql: "INSERT INTO entry (text) VALUES (?)", arguments: [text]) }
        try target.close()
        for end in ["-wal", "-shm"] { unlink(fresh.path(percentEncoded: false) + end) }
        try change(fresh, to: url)
        for end in ["-wal", "-shm"] { unlink(url.path(percentEncoded: false) + end) }
    }

    /// Nothing that has the other name is written over: it may be a store too.
    private func move(_ old: URL, to new: URL, by coordinator: FileCoordinator) throws {
        for (url, isThere) in [(old, true), (new, false)]
        where FileManager.default.fileExists(atPath: url.path(percentEncoded: false)) != isThere {
            throw Complaint(message: "the move makes no sense any more")
        }
        // Brings the log into the database: one rename moves all.
        try Notebook.open(old).close()
        try change(old, to: new)
        coordinator.item(at: old, didMoveTo: new)
    }

    private func change(_ old: URL, to new: URL) throws {
        guard rename(old.path(percentEncoded: false), new.path(percentEncoded: false)) == 0 else {
            throw Complaint(message: "rename: \(String(cString: strerror(errno)))")
        }
    }
}
