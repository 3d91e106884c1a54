import Foundation
import GRDB
import GroupStore

/// The action inside a coordinated access. A kill at any point during an action, except `hold` and `nested`, loses no
/// row as long as no other process has the store open.
struct Access: Sendable {
    let request: Request
    let cast: Cast

    func hold() -> DispatchSemaphore? {
        guard request.action == "hold" else { return nil }
        let semaphore = DispatchSemaphore(value: 0)
        cast.holds.put(semaphore, as: request.key ?? "?")
        return semaphore
    }

    /// Performs the requested action on the items at their current locations.
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

    func report(_ event: String, _ urls: [URL] = []) {
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

    /// Replaces the store with a copy that has one more row. A process that has the store open meanwhile loses its
    /// writes.
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

    /// Moves the store, and overwrites no existing file at the new name, which may be a store too.
    private func move(_ old: URL, to new: URL, by coordinator: FileCoordinator) throws {
        for (url, isThere) in [(old, true), (new, false)]
        where FileManager.default.fileExists(atPath: url.path(percentEncoded: false)) != isThere {
            throw Complaint(message: "the move makes no sense any more")
        }
        // Checkpoints the log into the database, so that one rename moves everything.
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
