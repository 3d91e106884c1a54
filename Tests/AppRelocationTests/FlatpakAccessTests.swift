import Glibc
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

@testable import AppRelocation

/// The reach of Flatpak apps' sandboxes, as `flatpak info` tells it.
@Suite struct FlatpakAccessTests {
    private let directory: TemporaryDirectory
    private let data: FilePath
    private let place: FilePath

    init() throws {
        directory = try TemporaryDirectory()
        data = directory.path.pushing(".var/app/org.a.Notes/data")
        place = directory.path.appending("group")
        try run("mkdir", ["-p", Word(data), Word(place)])
    }

    private func managers(_ access: String, shared: String = "", status: Int32 = 0) -> ManagerCommands {
        ManagerCommands { words, _, _ in
            guard words.last == "org.a.Notes" else { return .init(status: 1, message: "not installed") }
            let isContext = words.contains("--show-permissions")
            return .init(status: status, output: isContext ? "[Context]\nfilesystems=\(shared);\n" : "\(access)\n")
        } file: { _, _ in
            nil
        }
    }

    private func refusal(_ path: FilePath, _ place: FilePath, _ managers: ManagerCommands) -> RelocationFailure? {
        do throws(RelocationFailure) {
            try FlatpakAccess.check(from: path, to: place, managers)
            return nil
        } catch {
            return error
        }
    }

    @Test(arguments: ["hidden", "read-only"]) func refusesWhatTheSandboxDoesNotReach(_ access: String) throws {
        let failure = refusal(data.appending("x.db"), place, managers(access))
        #expect(failure?.code == "app_locked_out" && failure?.kind == .notPermitted)
        #expect(failure?.remedy == "allow it: flatpak override --user '--filesystem=\(place)' org.a.Notes")
        var request = AppMoveRequest(source: data, destination: place.appending("data"))
        request.managers = managers(access)
        let refused = #expect(throws: RelocationFailure.self) { try AppRelocation(request).run() }
        #expect(refused?.code == "app_locked_out")
        let previewed = #expect(throws: RelocationFailure.self) { try AppRelocation(request).dryRun() }
        #expect(previewed?.message == refused?.message)
        // A new place that the app may have as soon as it exists.
        request.managers = managers(access, shared: "home;\(place)/data:create")
        if access == "hidden" { #expect(try AppRelocation(request).run().outcome == .moved) }
    }

    @Test func looksAtInstalledAppsOnly() {
        #expect(refusal(data, place, managers("read-write")) == nil)
        #expect(refusal(data, place, managers("hidden", status: 1)) == nil)
        #expect(refusal(data.removingLastComponent(), place, managers("hidden")) == nil)
        #expect(refusal(place, data, managers("hidden")) == nil)
        let odd = refusal(data, #"/a:b\c"#, managers("hidden"))?.remedy
        #expect(odd?.contains(#"'--filesystem=/a\:b\\c'"#) == true, "\(odd ?? "")")
        #expect(refusal(data, #"/a:b;\c"#, managers("hidden", shared: #"x;/a\\:b\;\\\\c"#)) == nil)
        #expect(refusal(data, "/new\nline", managers("hidden"))?.remedy.hasPrefix("name another place") == true)
        #expect(refusal(data, "/usr/share/x", managers("hidden"))?.remedy.hasPrefix("name another place") == true)
    }
}
