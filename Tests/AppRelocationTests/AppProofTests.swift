import AppRelocation
import Glibc
import GroupContainers
import LinuxSystem
import StoreRelocation
import SystemPackage
import TestSupport
import Testing

/// What is removed after a copy, or when one is taken back: nothing whose content the other place has lost meanwhile.
@Suite(.ownThreads) struct AppProofTests {
    /// What becomes of the files of a place. The last one leaves size and times as they were.
    enum Loss: String, CaseIterable {
        case removed = "rm \"$1\"/sparse \"$1\"/store.db"
        case truncated = ": >\"$1\"/sparse; : >\"$1\"/store.db"
        case overwritten = """
            for f in sparse store.db; do
                touch -r "$1"/$f "$1"/time; printf XXXX | dd of="$1"/$f conv=notrunc status=none
                touch -r "$1"/time "$1"/$f; rm "$1"/time
            done
            """

        func happen(to place: FilePath) throws {
            #expect(try run("sh", ["-c", Word(rawValue), "sh", Word(place)]).status == 0)
        }
    }

    private static let lost = ["sparse", "store.db"]

    private func kill(_ request: AppMoveRequest, at wanted: AppMoveStep, undoing: Bool = false) {
        let move = AppRelocation(request) {
            false
        } report: { _ in
        } step: { step in
            if step == wanted { throw AppRelocation.Abandonment() }
        }
        #expect(throws: RelocationFailure.self) { try undoing ? move.undo() : move.run() }
    }

    private func hidden(beside place: FilePath) throws -> FilePath {
        let parent = place.removingLastComponent()
        return parent.appending(try #require(try Directory(parent).names().first(where: AppRig.isHidden)))
    }

    private func expectKept(_ notes: [String], _ old: FilePath) throws {
        let note = try #require(notes.first { $0.hasPrefix("2 files stay in \(old)") }, "\(notes)")
        for name in Self.lost { #expect(note.contains("\(name) (missing or different at the new place)"), "\(note)") }
        #expect(try Directory(old).names().map(\.string).sorted() == Self.lost)
    }

    /// The commit point was passed, and the old files are all there.
    @Test(arguments: Loss.allCases, [true, false])
    func theNextRunKeepsWhatTheNewPlaceHasLost(_ loss: Loss, undoing: Bool) throws {
        let rig = try AppRig(.another)
        if undoing { _ = try AppRelocation(rig.request()).run() }
        kill(rig.request(), at: .receipt, undoing: undoing)
        let (old, new) = undoing ? (rig.destination, rig.source) : (rig.source, rig.destination)
        try loss.happen(to: new)
        let rest = try hidden(beside: old)
        let move = AppRelocation(rig.request())
        let summary = try undoing ? move.undo() : move.run()
        #expect(summary.outcome == (undoing ? .undone : .moved))
        try expectKept(summary.notes, rest)
        #expect(try rig.rows(rest) == "100")
    }

    @Test(arguments: Loss.allCases) func recoverKeepsWhatTheNewPlaceHasLost(_ loss: Loss) throws {
        let rig = try AppRig(.another)
        kill(rig.request(), at: .receipt)
        try loss.happen(to: rig.destination)
        try expectKept(try recover(rig), try hidden(beside: rig.source))
    }

    private func recover(_ rig: AppRig) throws -> [String] {
        let group = rig.destination.removingLastComponent()
        var notes: [String] = []
        let recovery = AppRelocation(AppMoveRequest(source: group, destination: group)) {
            false
        } report: { event in
            if case .note(let text) = event { notes.append(text) }
        }
        #expect(try recovery.recover() != nil)
        return notes
    }

    /// A program may start at the new place at once.
    @Test func aMoveKeepsWhatTheNewPlaceLosesMeanwhile() throws {
        let rig = try AppRig(.another)
        let move = AppRelocation(rig.request()) {
            false
        } report: { _ in
        } step: { step in
            if step == .receipt { try Loss.removed.happen(to: rig.destination) }
        }
        try expectKept(try move.run().notes, try hidden(beside: rig.source))
    }

    /// A store in which paths were changed differs from the old one, and is known as the move has left it.
    @Test(arguments: [AppMoveStep.copied, .receipt]) func aRewrittenStoreIsProved(_ step: AppMoveStep) throws {
        let rig = try AppRig(.another)
        try run("sqlite3", [Word(rig.source.pushing("sub/small.db")), "INSERT INTO t VALUES ('/old/place/x')"])
        var request = rig.request()
        request.rewrites = [try #require(PathRewrite(old: "/old/place", new: "/new/place"))]
        kill(request, at: step)
        #expect(try recover(rig) == [])
        #expect(try rig.leftovers() == [])
        #expect(try rig.isLink(rig.source) == (step == .receipt))
    }

    /// The copy is complete, and the old place then loses files: the copy may be all there is of them.
    @Test(arguments: Loss.allCases) func recoverKeepsTheCopyOfWhatTheOldPlaceHasLost(_ loss: Loss) throws {
        let rig = try AppRig(.another)
        kill(rig.request(), at: .copied)
        try loss.happen(to: rig.source)
        let notes = try recover(rig)
        let parent = rig.destination.removingLastComponent()
        let staged = try #require(try Directory(parent).names().first { $0.string.hasSuffix(".staged") })
        let copy = parent.appending(staged).appending("tree")
        let note = try #require(notes.first { $0.hasPrefix("2 files stay in \(copy)") }, "\(notes)")
        for name in Self.lost { #expect(note.contains("\(name) (missing or different at the old place)"), "\(note)") }
        #expect(try Directory(copy).names().map(\.string).sorted() == Self.lost)
        #expect(try rig.rows(copy) == "100")
        #expect(try Directory(parent.appending(staged)).names().count == 1)
        #expect(FileStatus(following: rig.destination) == nil)
    }

    /// A killed run may lose lines of its record: what of a file was copied is at the old place, as far as it goes.
    @Test func recoverRemovesAPartOfAFile() throws {
        let rig = try AppRig(.another)
        kill(rig.request(), at: .copied)
        let script = "cd \"$1\"/.groupstore-*.staged && : >manifest && chmod u+w tree/file && truncate -s 9 tree/file"
        let parent = rig.destination.removingLastComponent()
        #expect(try run("sh", ["-c", Word(script), "sh", Word(parent)]).status == 0)
        #expect(try recover(rig) == [])
        #expect(try rig.leftovers() == [])
    }

    @Test(.enabled(if: geteuid() == 0, "needs root")) func keepsSecurityAttributes() throws {
        let rig = try AppRig(.another)
        let names = "os.path.join(sys.argv[1], n) for n in ('sparse', 'sub')"
        let making = "import os, sys\nfor p in (\(names)): os.setxattr(p, 'security.custom', b'value')"
        guard try run("python3", ["-c", Word(making), Word(rig.source)]).status == 0 else { return }
        let summary = try AppRelocation(rig.request()).run()
        #expect(summary.notes.filter { $0.contains("lost the attribute") } == [])
        let reading = "import os, sys\nfor p in (\(names)): print(os.getxattr(p, 'security.custom').decode())"
        #expect(try run("python3", ["-c", Word(reading), Word(rig.destination)]).output == "value\nvalue\n")
    }
}
