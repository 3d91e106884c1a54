import AgentProtocol
import CommandSupport
import GroupStoreAgent
import LinuxSystem
import RowShadow
import SystemPackage

/// The stores that have copies of their pages: this user's, and those of agents in the groups' directories.
struct CopiesOfStores {
    private var stores: [KeptShadows]
    /// The groups whose copies only another user may see.
    private var closed: [FilePath] = []

    /// Looks for them. Throws `SystemError`, and `CommandFailure` if the environment has no state directory.
    init() throws {
        stores = try KeptShadows.all(stateDirectory: DirectRows.stateDirectory())
        for group in Configuration.localGroups(environment: ProcessVariables.all) {
            do throws(SystemError) { stores += try KeptShadows.all(inGroup: group.directory) } catch {
                guard error.isPermission else { throw error }
                closed.append(group.directory)
            }
        }
    }

    func print(_ output: Output) {
        var table = TextTable()
        for store in stores {
            output.record(Self.object(store), lines: [])
            if store.error != nil { continue }
            table.add(
                .text("\(PrintablePath(store.store ?? store.place))"), .number("\(ByteCount(store.size))"),
                .text("last written \(LocalTime(store.lastUse))"), .text(Self.state(store) + Self.rest(store)))
        }
        var lines = stores.isEmpty ? ["no store has a copy: 'watch --values' makes one"] : table.lines()
        for store in stores {
            guard let error = store.error else { continue }
            lines.append("copies of a store's pages can't be read: \(error.message) (\(error.remedy))")
        }
        lines += closed.map { "only another user may see whether there are copies in \(PrintablePath($0))" }
        let gone = stores.filter(\.isOrphaned)
        var summary: JSONObject = ["type": "summary", "outcome": "shown", "stores": .integer(Int64(stores.count))]
        summary["bytes"] = .integer(stores.reduce(0) { $0 + $1.size })
        summary["gone"] = .integer(Int64(gone.count))
        summary["gone_bytes"] = .integer(gone.reduce(0) { $0 + $1.size })
        summary["closed"] = .array(closed.map { .string("\(PrintablePath($0))") })
        output.record(summary, lines: lines)
    }

    private static func object(_ store: KeptShadows) -> JSONObject {
        var object: JSONObject = ["type": "store"]
        if let path = store.store { object.setPath("store", bytes: path.bytes) }
        object.setPath("path", bytes: store.place.bytes)
        if let error = store.error {
            object["code"] = .string(error.errorCode)
            object["message"] = .string(error.message)
            object["remedy"] = .string(error.remedy)
            return object
        }
        object["copies"] = .integer(Int64(store.count))
        object["unusable"] = .integer(Int64(store.unusableCount))
        object["bytes"] = .integer(store.size)
        object["written"] = .time(store.lastUse)
        object["followed"] = .bool(store.isUsed)
        object["gone"] = store.store == nil ? .null : .bool(store.isOrphaned)
        object["remedy"] = store.isOrphaned && !store.isUsed ? .string(store.removal) : nil
        return object
    }

    private static func rest(_ store: KeptShadows) -> String {
        if store.unusableCount == 0 { return "" }
        let copies = Counted(store.unusableCount, "interrupted copy", "interrupted copies")
        return "; has \(copies), which the next 'watch --values' removes"
    }

    private static func state(_ store: KeptShadows) -> String {
        if store.store == nil { return "which store's isn't recorded (remove them: \(store.removal))" }
        switch (store.isOrphaned, store.isUsed) {
        case (true, true): return "the store is gone; a program follows it (end it first to remove its copies)"
        case (true, false): return "the store is gone; no program follows it (remove its copies: \(store.removal))"
        case (false, true): return "a program follows it"
        case (false, false): return "no program follows it"
        }
    }
}
