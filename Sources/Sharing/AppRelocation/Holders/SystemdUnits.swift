import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage

/// A unit as `systemctl show` describes it (org.freedesktop.systemd1(5)).
struct SystemdUnit: Equatable, Sendable {
    let values: [String: String]

    static let properties = [
        "Id", "LoadState", "ActiveState", "SubState", "ActiveEnterTimestampMonotonic", "Result", "Transient",
        "KillMode", "MainPID", "ControlPID", "RefuseManualStop", "RefuseManualStart", "Type", "Accept",
        "ConditionResult", "TriggeredBy", "UpheldBy", "RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf",
        "PropagatesStopTo", "FragmentPath", "NeedDaemonReload",
    ]

    var name: String { values["Id"] ?? "" }
    var isActive: Bool { !["inactive", "failed", nil].contains(values["ActiveState"]) }

    /// True for a service that has failed, or that systemd is about to start again after a failure.
    var hasFailed: Bool {
        if values["ActiveState"] == "failed" { return true }
        return values["SubState"]?.hasPrefix("auto-restart") == true && values["Result"] != "success"
    }

    /// True for a service that systemd has called active for less than a second: of a simple one, its program may not
    /// have begun.
    var isNew: Bool {
        guard let type = values["Type"], type != "oneshot", values["ActiveState"] == "active",
            let began = values["ActiveEnterTimestampMonotonic"].flatMap({ UInt64($0) })
        else { return false }
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        return UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000 < min(began, .max / 2) + 1_000_000
    }

    func names(_ key: String) -> [String] { values[key]?.split(separator: " ").map(String.init) ?? [] }
    func isOn(_ key: String) -> Bool { values[key] == "yes" }

    /// Reads the output of `systemctl show` for several units, which an empty line separates.
    static func all(in output: String) -> [SystemdUnit] {
        var (found, values): ([SystemdUnit], [String: String]) = ([], [:])
        let lines: [Substring] = output.split(separator: "\n", omittingEmptySubsequences: false) + [""]
        for line in lines {
            if line.isEmpty {
                if values["Id"] != nil { found.append(SystemdUnit(values: values)) }
                values = [:]
            } else if let equals = line.firstIndex(of: "=") {
                values[String(line[..<equals])] = String(line[line.index(after: equals)...])
            }
        }
        return found
    }
}

/// Why a holder can't be stopped and started again, in words.
struct Unmanageable: Error, Equatable {
    let reason: String
}

/// All units of one manager that stop together, so that none of them starts another one meanwhile.
struct SystemdUnits {
    /// Describes units by their names.
    let show: ([String]) throws(Unmanageable) -> [SystemdUnit]

    /// The properties with the units that stop when a unit stops, or that would start it again.
    private static let stoppedAlong = [
        "TriggeredBy", "UpheldBy", "RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo",
    ]
    private static let kinds = [".timer", ".path", ".socket", ".service"]

    private static func kind(_ name: String) -> Int? { kinds.firstIndex { name.hasSuffix($0) } }

    /// Returns the names of units in the order in which they are stopped: what triggers a service before it, so that
    /// nothing starts it again between the two. Includes those that systemd would stop along. Throws `Unmanageable`.
    ///
    /// - Parameters:
    ///   - unit: The service that a process belongs to.
    ///   - pid: The process; nil if its group isn't the unit's.
    func stopped(with unit: String, of pid: Int32?) throws(Unmanageable) -> [(name: String, isStartedAgain: Bool)] {
        var known: [String: SystemdUnit] = [:]
        // Another service that starts this one again stops before it.
        var upholders: Set<String> = []
        var wanted = [unit]
        while let next = wanted.first {
            wanted.removeFirst()
            guard known[next] == nil else { continue }
            guard let found = try show([next]).first else {
                throw Unmanageable(reason: "\(next) is unknown to systemd")
            }
            guard found.isActive || next == unit else { continue }
            try check(found, unit)
            if next == unit { try check(found, pid) }
            known[found.name] = found
            known[next] = found
            upholders.formUnion(found.names("UpheldBy"))
            for key in Self.stoppedAlong { wanted += found.names(key) }
        }
        let units = Dictionary(known.values.map { ($0.name, $0) }) { first, _ in first }
        func rank(_ name: String) -> Int { upholders.contains(name) ? 0 : Self.kind(name) ?? 0 }
        return units.values.sorted { (rank($0.name), $0.name) < (rank($1.name), $1.name) }.map { unit in
            let isPerConnection = unit.names("TriggeredBy").contains { units[$0]?.isOn("Accept") == true }
            return (unit.name, !isPerConnection)
        }
    }

    /// Throws `Unmanageable` if the unit can't be stopped and started again as it was.
    private func check(_ found: SystemdUnit, _ unit: String) throws(Unmanageable) {
        let name = found.name
        guard Self.kind(name) != nil else {
            throw Unmanageable(reason: "stopping \(unit) would also stop \(name)")
        }
        guard found.values["LoadState"] == "loaded", !found.isOn("Transient") else {
            throw Unmanageable(reason: "\(name) has no unit file, so that systemd could not start it again")
        }
        // systemd forgets a unit that has stopped, and reads its file again.
        if found.isOn("NeedDaemonReload"), let file = found.values["FragmentPath"],
            FileStatus(following: FilePath(file)) == nil
        {
            throw Unmanageable(reason: "the unit file of \(name) is gone, so that systemd could not start it again")
        }
        guard !found.isOn("RefuseManualStop"), !found.isOn("RefuseManualStart"), !name.hasPrefix("dbus") else {
            throw Unmanageable(reason: "\(name) must not be stopped")
        }
    }

    private func check(_ unit: SystemdUnit, _ pid: Int32?) throws(Unmanageable) {
        guard let pid, ["process", "none"].contains(unit.values["KillMode"]) else { return }
        let own = [unit.values["MainPID"], unit.values["ControlPID"]]
        guard unit.values["KillMode"] == "process", own.contains("\(pid)") else {
            throw Unmanageable(reason: "it would go on when \(unit.name) stops (KillMode=)")
        }
    }

    /// Returns the names in the order in which they are started: a socket before its service, which would else have
    /// none, and what else triggers one after it.
    static func started(_ stopped: [String]) -> [String] {
        let reversed = Array(stopped.reversed())
        return reversed.filter { $0.hasSuffix(".socket") } + reversed.filter { !$0.hasSuffix(".socket") }
    }
}
