import AgentProtocol
import EndToEndSupport
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// `groupstore move-app` by an ordinary user.
@Suite(.ownThreads) struct MoveAppAsUserTests {
    private static let user: [Word] = ["--reuid=12345", "--regid=12345", "--clear-groups"]
    private static let canBecomeAnother =
        geteuid() == 0 && (try? run("setpriv", user + [Programs.groupstore, "--version"]))?.status == 0

    /// A program's directory and a place for it, which belong to the user.
    private func makePlaces(_ fileSystem: Places.FileSystem) throws -> (places: Places, app: FilePath) {
        let places = try Places(fileSystem)
        let app = places.legacy.appending("app")
        try run("mkdir", ["-p", Word(app.appending("sub"))])
        try makeStore(app.appending("Notes.sqlite"), rows: 3)
        try write("text", to: app.appending("file"))
        for path in [places.legacy, places.group] {
            try run("chown", ["-R", "12345:12345", Word(path)])
            try run("chmod", ["0755", Word(path.removingLastComponent())])
        }
        return (places, app)
    }

    private func moveApp(_ app: FilePath, _ places: Places, _ options: Word...) throws -> FinishedProcess {
        try run(
            "setpriv",
            Self.user + [
                Programs.groupstore, "move-app", Word(app), Word(places.group.appending("new")), "--json",
            ] + options, environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock", "HOME": "/nonexistent"])
    }

    private func expectSame(_ app: FilePath, _ places: Places, status: Int32, code: String?) throws {
        let preview = try moveApp(app, places, "--dry-run")
        let done = try moveApp(app, places)
        for run in [preview, done] {
            #expect(run.status == status, "\(run.output)\(run.errors)")
            #expect(run.summary.object("error")?.string("code") == code, "\(run.output)")
        }
    }

    /// The copy would be of the user's group: other people could read it.
    @Test(
        .enabled(if: canBecomeAnother, "needs root and setpriv(1)"), arguments: ["file", "sub", "Notes.sqlite"],
        Places.FileSystem.allCases)
    func copiesNoFileOfAGroupThatTheUserIsNotIn(_ name: String, _ fileSystem: Places.FileSystem) throws {
        let (places, app) = try makePlaces(fileSystem)
        try run("chgrp", ["4", Word(app.appending(name))])
        try expectSame(
            app, places, status: fileSystem == .same ? 0 : 77, code: fileSystem == .same ? nil : "owner")
    }

    /// A rename needs no right to it.
    @Test(
        .enabled(if: canBecomeAnother, "needs root and setpriv(1)"),
        arguments: ["chmod 0 \"$1\"/file", "chown 0:0 \"$1\"/file"], Places.FileSystem.allCases)
    func copiesNoFileThatTheUserCannotReadOrOwn(_ script: String, _ fileSystem: Places.FileSystem) throws {
        let (places, app) = try makePlaces(fileSystem)
        try run("sh", ["-c", Word(script), "sh", Word(app)])
        let preview = try moveApp(app, places, "--dry-run")
        let done = try moveApp(app, places)
        #expect(preview.status == done.status, "\(preview.output)\(done.output)")
        #expect(done.status == (fileSystem == .same ? 0 : 77), "\(done.output)")
    }

    /// rename(2) refuses to give such a directory another parent, or the copy of it.
    @Test(.enabled(if: canBecomeAnother, "needs root and setpriv(1)"), arguments: Places.FileSystem.allCases)
    func namesTheOwnersPermissionThatARenameNeeds(_ fileSystem: Places.FileSystem) throws {
        let (places, app) = try makePlaces(fileSystem)
        try run("chmod", ["0555", Word(app)])
        try expectSame(app, places, status: 77, code: "not_writable")
        let hint = try moveApp(app, places).summary.object("error")?.string("hint")
        #expect(hint?.hasSuffix("chmod u+w \(app)") == true, "\(hint ?? "")")
        try run("chmod", ["u+w", Word(app)])
        #expect(try moveApp(app, places).outcome == "moved")
    }
}
