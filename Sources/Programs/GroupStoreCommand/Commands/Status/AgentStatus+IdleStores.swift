import AgentProtocol
import LinuxSystem
import SystemPackage

extension AgentStatus {
    /// Returns the status with the stores of the groups' directories that the agent doesn't know, because nobody ever
    /// listened to them and no file configures them. A directory that this process can't read has none.
    func addingIdleStores() -> AgentStatus {
        let known = Set(rows.filter { $0.type == "store" }.compactMap(\.object.store))
        var all: [StatusRow] = []
        var pending: [StatusRow] = []
        for row in rows {
            if row.type == "group" {
                all += pending
                pending = Self.idleStores(ofGroup: row.object, besides: known)
            }
            all.append(row)
        }
        return AgentStatus(rows: all + pending, summary: summary)
    }

    private static func idleStores(ofGroup group: JSONObject, besides known: Set<StoreAddress>) -> [StatusRow] {
        guard let identifier = group.string("group"),
            let path = group.path("directory").flatMap({ FilePath(bytes: $0) }),
            let directory = try? GroupDirectoryStatus(path)
        else { return [] }
        return directory.rows.filter { $0.type == "file" }.compactMap { file in
            guard let name = file.object.path("name"), let store = StoreAddress(group: identifier, name: name),
                !known.contains(store)
            else { return nil }
            var row = JSONObject()
            row.setPath("store", bytes: store.bytes)
            for member in file.object.members where !["type", "name", "name_b64"].contains(member.key) {
                row[member.key] = member.value
            }
            row["exists"] = true
            row["state"] = "idle"
            row["subscribers"] = 0
            return StatusRow("store", row, lines: lines("store", row))
        }
    }
}
