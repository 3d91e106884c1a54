import GroupContainers
import Testing

@testable import AppRelocation

/// What a process's control group says of its manager.
struct ControlGroupTests {
    private static let id = String(repeating: "0123456789abcdef", count: 4)
    private static let user = "/user.slice/user-1000.slice/user@1000.service"

    private static let managed: [(String, ManagedProgram)] = [
        ("0::/system.slice/vnstat.service\n", ManagedProgram(.systemd, user: nil, "vnstat.service")),
        ("0::/system.slice/system-db.slice/db@a\\x2db.service\n", .init(.systemd, user: nil, "db@a\\x2db.service")),
        ("0::/system.slice/system-a.slice/a@b:c.service\n", .init(.systemd, user: nil, "a@b:c.service")),
        ("0::\(user)/app.slice/notes.service\n", .init(.systemd, user: 1000, "notes.service")),
        ("0::\(user)/app.slice/_cpu.service/sub\n", .init(.systemd, user: 1000, "cpu.service")),
        ("0::\(user)/app.slice/app-flatpak-org.a.Notes-1234.scope\n", .init(.flatpak, user: 1000, "org.a.Notes")),
        ("0::/machine.slice/libpod-\(id).scope/container\n", .init(.podman, user: nil, id)),
        ("0::\(user)/user.slice/libpod-\(id).scope/container\n", .init(.podman, user: 1000, id)),
        ("0::/libpod_parent/libpod-\(id)\n", .init(.podman, user: nil, id)),
        ("0::/system.slice/docker-\(id).scope\n", .init(.docker, user: nil, id)),
        ("0::/docker/\(id)\n", .init(.docker, user: nil, id)),
        // A quadlet's unit starts its container again.
        ("0::/system.slice/web.service/libpod-payload-\(id)\n", .init(.systemd, user: nil, "web.service")),
        // The hierarchy of systemd beside those of the first version.
        ("2:pids:/x\n1:name=systemd:/system.slice/a.service\n0::/b.service\n", .init(.systemd, user: nil, "a.service")),
        ("1:name=systemd:/\n0::/system.slice/b.service\n", .init(.systemd, user: nil, "b.service")),
        ("4:memory:/docker/\(id)\n1:name=systemd:/docker/\(id)\n0::/\n", .init(.docker, user: nil, id)),
    ]

    @Test(arguments: managed) func findsTheManager(_ text: String, _ program: ManagedProgram) {
        #expect(ControlGroup(text, flatpakInfo: nil) == .managed(program))
    }

    @Test(arguments: [
        "0::/\n", "", "0::/user.slice/user-1000.slice/session-3.scope\n", "0::\(user)/init.scope\n",
        "0::\(user)/app.slice/app-gnome-notes-77.scope\n", "0::/kubepods/burstable/pod1\n",
        "0::/system.slice/app-flatpak-org.a.Notes-1234.scope\n", "0::/system.slice/data.mount\n",
    ])
    func namesWhatCannotBeStartedAgain(_ text: String) {
        guard case .unmanaged = ControlGroup(text, flatpakInfo: nil) else {
            Issue.record("\(ControlGroup(text, flatpakInfo: nil))")
            return
        }
    }

    @Test(arguments: [
        "[Application]\nname=org.a.Notes\n", "[Instance]\nname=b.c\n[Application]\nx=1\nname=org.a.Notes",
    ])
    func findsAFlatpakByItsRoot(_ info: String) {
        let group = "0::\(Self.user)/app.slice/dbus-org.a.Notes.service\n"
        #expect(ControlGroup(group, flatpakInfo: info) == .managed(ManagedProgram(.flatpak, user: 1000, "org.a.Notes")))
    }

    /// It would be an option of a command.
    @Test func aNameIsNoOption() {
        let group = "0::\(Self.user)/app.slice/notes.service\n"
        let unit = ControlGroup.managed(ManagedProgram(.systemd, user: 1000, "notes.service"))
        #expect(ControlGroup(group, flatpakInfo: "[Application]\nname=--all.x\n") == unit)
        #expect(ControlGroup(group, flatpakInfo: "[Application]\nname=a.b c\n") == unit)
    }
}
