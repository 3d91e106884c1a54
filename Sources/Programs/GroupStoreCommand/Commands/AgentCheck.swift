import AgentProtocol
import GroupContainers
import GroupStoreAgent
import LinuxSystem
import SystemPackage

/// What an agent would serve with a configuration, for `groupstore agent --check`.
struct ConfigurationReportRows {
    private(set) var rows: [StatusRow] = []

    init(_ configuration: Configuration, socket: FilePath) {
        for path in configuration.files {
            var row: JSONObject = [:]
            row.setPath("path", bytes: path.bytes)
            rows.append(StatusRow("file", row, lines: "reads \(PrintablePath(path))"))
        }
        for group in configuration.groups { add(group) }
        for (type, errors) in [("problem", configuration.problems), ("note", configuration.notes)] {
            for error in errors { add(error, type) }
        }
        add(summary: configuration, socket)
    }

    private mutating func add(_ group: Configuration.Group) {
        var row: JSONObject = ["group": .string(group.identifier.rawValue)]
        row.setPath("directory", bytes: group.directory.bytes)
        let exists = FileStatus(following: group.directory) != nil
        row["exists"] = .bool(exists)
        row["configured"] = .bool(!group.isDiscovered)
        let missing = exists ? "" : "  (not there yet: \(group.creationCommand))"
        rows.append(
            StatusRow("group", row, lines: "\(group.identifier)  \(PrintablePath(group.directory))\(missing)"))
        for store in group.stores { add(store, in: group) }
        for app in group.apps { add(app, in: group) }
    }

    private mutating func add(_ app: Configuration.App, in group: Configuration.Group) {
        var row: JSONObject = ["group": .string(group.identifier.rawValue)]
        let destination = group.directory.appending(app.name)
        row.setPath("path", bytes: app.source.bytes)
        row.setPath("to", bytes: destination.bytes)
        row["recipe"] = app.recipe.map { .string($0.name) }
        row["stop_holders"] = app.stopsHolders ? true : nil
        row["assume_closed"] = app.assumeClosed ? true : nil
        rows.append(
            StatusRow("app", row, lines: "  app \(PrintablePath(app.source)) to \(PrintablePath(destination))"))
    }

    private mutating func add(_ store: Configuration.Store, in group: Configuration.Group) {
        var row: JSONObject = [:]
        let name = store.name.database
        row.setPath("store", bytes: Array("\(group.identifier)/".utf8) + name.bytes)
        row["on_conflict"] = .string(store.onConflict.rawValue)
        row["retire"] = store.retirement.map { .string($0.rawValue) }
        row["assume_closed"] = store.assumeClosed ? true : nil
        row["history"] = store.history == nil ? nil : true
        row["legacy"] = .array(
            store.legacy.map { path in
                var object = JSONObject()
                object.setPath("path", bytes: path.bytes)
                return .object(object)
            })
        let legacy = store.legacy.map { "    legacy \(PrintablePath($0))" }
        rows.append(StatusRow("store", row, lines: ["  \(group.identifier)/\(PrintablePath(name))"] + legacy))
    }

    private mutating func add(_ error: ConfigurationError, _ type: String) {
        var row: JSONObject = ["message": .string(error.fullMessage), "hint": .string(error.remedy)]
        error.path.map { row.setPath("path", bytes: $0.bytes) }
        row["line"] = error.line.map { .integer(Int64($0)) }
        let word = type == "problem" ? "problem: " : "left out: "
        rows.append(StatusRow(type, row, lines: "\(word)\(error.fullMessage) (\(error.remedy))"))
    }

    private mutating func add(summary configuration: Configuration, _ socket: FilePath) {
        let stores = configuration.groups.reduce(0) { $0 + $1.stores.count }
        var row: JSONObject = [
            "outcome": configuration.problems.isEmpty ? "valid" : "problems",
            "groups": .integer(Int64(configuration.groups.count)), "stores": .integer(Int64(stores)),
            "problems": .integer(Int64(configuration.problems.count)),
        ]
        row.setPath("socket", bytes: socket.bytes)
        if let containers = configuration.containers { row.setPath("containers", bytes: containers.bytes) }
        let discovery =
            configuration.containers.map {
                ["every group container in \(PrintablePath($0)) is served: there is no config.yaml"]
            } ?? []
        rows.append(
            StatusRow(
                "summary", row,
                lines: discovery + [
                    "groups: \(configuration.groups.count), stores: \(stores), problems: \(configuration.problems.count), "
                        + "socket \(PrintablePath(socket))"
                ]))
    }
}
