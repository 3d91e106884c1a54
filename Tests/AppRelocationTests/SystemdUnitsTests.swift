import Testing

@testable import AppRelocation

/// Which units stop together.
struct SystemdUnitsTests {
    /// Looks the units up in a table. Each is loaded and active unless it says otherwise.
    private func units(_ table: [String: [String: String]]) -> SystemdUnits {
        SystemdUnits { names throws(Unmanageable) in
            names.map { name in
                var values = ["Id": name, "LoadState": "loaded", "ActiveState": "active"]
                values.merge(table[name] ?? ["LoadState": "not-found", "ActiveState": "inactive"]) { $1 }
                return SystemdUnit(values: values)
            }
        }
    }

    @Test func whatTriggersAServiceStopsBeforeIt() throws {
        let found = try units([
            "a.service": ["TriggeredBy": "a.timer a.socket b.path c.timer", "UpheldBy": "z.service"], "a.timer": [:],
            "a.socket": [:], "b.path": [:], "c.timer": ["ActiveState": "inactive"], "z.service": [:],
        ]).stopped(with: "a.service", of: 1)
        #expect(found.map(\.name) == ["a.timer", "z.service", "b.path", "a.socket", "a.service"])
        #expect(!found.map(\.isStartedAgain).contains(false))
        let started = SystemdUnits.started(found.map(\.name))
        #expect(started == ["a.socket", "a.service", "b.path", "z.service", "a.timer"])
    }

    @Test func whatStopsAlongIsStartedToo() throws {
        let found = try units([
            "a.service": ["RequiredBy": "b.service", "ConsistsOf": "d.service", "BoundBy": "off.service"],
            "b.service": ["RequisiteOf": "c.service"], "c.service": ["RequiredBy": "a.service"],
            "off.service": ["ActiveState": "failed"], "d.service": ["PropagatesStopTo": "e.service"], "e.service": [:],
        ]).stopped(with: "a.service", of: 1)
        #expect(found.map(\.name) == ["a.service", "b.service", "c.service", "d.service", "e.service"])
    }

    /// Only a connection can start such a service.
    @Test func aServiceOfOneConnectionIsNotStartedAgain() throws {
        let found = try units([
            "a@1.service": ["TriggeredBy": "a.socket"], "a.socket": ["Accept": "yes"],
        ]).stopped(with: "a@1.service", of: 1)
        #expect(found.map(\.name) == ["a.socket", "a@1.service"])
        #expect(found.map(\.isStartedAgain) == [true, false])
    }

    @Test(arguments: [
        ["LoadState": "not-found"], ["Transient": "yes"], ["RefuseManualStop": "yes"], ["RefuseManualStart": "yes"],
        ["KillMode": "none", "MainPID": "7"], ["KillMode": "process", "MainPID": "8"],
        ["FragmentPath": "/nonexistent/a.service", "NeedDaemonReload": "yes"],
        ["RequiredBy": "multi-user.target"], ["BoundBy": "passing.service"], ["TriggeredBy": "passing.service"],
    ])
    func refusesWhatCannotBeStoppedAndStarted(_ values: [String: String]) {
        let table = ["a.service": values, "passing.service": ["Transient": "yes"], "multi-user.target": [:]]
        #expect(throws: Unmanageable.self) { try units(table).stopped(with: "a.service", of: 7) }
    }

    /// A file that only this process can't see, or that was edited.
    @Test(arguments: [("no", "/nonexistent/a.service"), ("yes", "/dev/null")])
    func aUnitThatSystemdCanReadAgainIsStopped(_ isOutdated: String, _ file: String) throws {
        let table = ["a.service": ["NeedDaemonReload": isOutdated, "FragmentPath": file]]
        #expect(try units(table).stopped(with: "a.service", of: 7).count == 1)
    }

    @Test func theMainProcessStopsWithItsUnit() throws {
        let table = ["a.service": ["KillMode": "process", "MainPID": "7"]]
        #expect(try units(table).stopped(with: "a.service", of: 7).count == 1)
    }

    @Test func readsSeveralUnits() {
        let found = SystemdUnit.all(in: "Id=a.service\nType=oneshot\n\nId=b.socket\nAccept=no\nX=a=b\n")
        #expect(found.map(\.name) == ["a.service", "b.socket"])
        #expect(found.last?.values == ["Id": "b.socket", "Accept": "no", "X": "a=b"])
    }
}
