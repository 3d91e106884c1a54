import Foundation
import GRDB
import GroupStore
import GroupStoreGRDB

/// Subscriptions, and pools that follow other processes' commits.
extension Cast {
    func watch(_ request: Request) throws -> Report {
        let key = request.key ?? "?"
        let store = try store(request)
        tasks.put(
            Task {
                do {
                    for try await change in store.changes(since: request.token, tables: request.tables) {
                        Report(event: "received", key: key, what: Self.name(change), token: change.token).send()
                    }
                    Report(event: "received-end", key: key).send()
                } catch {
                    Report(event: "received-end", key: key).with(error).send()
                }
            }, as: key)
        return Report()
    }

    private static func name(_ change: StoreChange) -> String {
        switch change {
        case .changed: "changed"
        case .relocating: "relocating"
        case .relocated: "relocated"
        case .migrated: "migrated"
        case .abandoned: "abandoned"
        case .reset(let reason, _): "reset \(reason)"
        default: "disconnected"
        }
    }

    func pool(_ request: Request) async throws -> Report {
        let key = request.key ?? "?"
        let pool = try await SharedDatabasePool(
            store(request), configuration: Notebook.configuration,
            patience: .milliseconds(Int((request.deadline ?? 60) * 1000))
        ) { pool in
            try pool.write { try $0.execute(sql: Notebook.schema) }
        }
        pools.put(pool, as: key)
        return Report(path: pool.url.path(percentEncoded: false))
    }

    func observe(_ request: Request) throws -> Report {
        let key = request.key ?? "?"
        let pool = try pools.get(key)
        let counts = ValueObservation.tracking { try Int.fetchOne($0, sql: "SELECT count(*) FROM entry") ?? 0 }
        tasks.put(
            Task {
                do {
                    for try await count in pool.values(of: counts) {
                        Report(event: "observed", key: key, count: count).send()
                    }
                    Report(event: "observed-end", key: key).send()
                } catch {
                    Report(event: "observed-end", key: key).with(error).send()
                }
            }, as: "\(key)/observe")
        return Report()
    }

    func use(_ request: Request) async throws -> Report {
        let pool = try pools.get(request.key ?? "?")
        let text = request.text ?? ""
        switch request.op {
        case "pool-write":
            try await pool.write { try $0.execute(sql: "INSERT INTO entry (text) VALUES (?)", arguments: [text]) }
            return Report()
        case "pool-read":
            return Report(rows: try await pool.read { try String.fetchAll($0, sql: "SELECT text FROM entry") })
        case "pool-close":
            try await pool.close()
            _ = pools.take(request.key ?? "?")
            return Report()
        case "pool-error":
            return Report(message: pool.followingError.map { String(describing: $0) })
        default:
            return Report(what: try await nestedUse(of: pool, by: request))
        }
    }

    /// Accesses the pool inside `withPool`. The access succeeds, or fails at once.
    private func nestedUse(of pool: SharedDatabasePool, by request: Request) async throws -> String {
        let text = request.text ?? ""
        return try await pool.withPool { _ in
            Report(event: "inside", key: request.key).send()
            if let pause = request.milliseconds { try await Task.sleep(for: .milliseconds(pause)) }
            switch request.action {
            case "read": _ = try await pool.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM entry") }
            case "with": try await pool.withPool { _ in }
            default:
                try await pool.write {
                    try $0.execute(sql: "INSERT INTO entry (text) VALUES (?)", arguments: [text])
                }
            }
            return "done"
        }
    }
}
