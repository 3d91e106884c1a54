import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import FileCoordination

@Suite(.timeLimit(.minutes(60))) struct ClaimTests {
    let rig: Rig

    init() throws { rig = try Rig() }

    private func claim(
        _ path: String, _ access: ClaimIntent.Access, purpose: String? = nil
    ) throws -> Claim {
        let item = ClaimedItem(container: rig.container.name, path: FilePath(path))
        return try Claim([ClaimIntent(item, access)], in: rig.container, purpose: purpose)
    }

    /// Returns true if the claim is granted at once.
    private func isFree(_ claim: Claim) throws -> Bool {
        let wait = ClaimWait(Deadline(after: .milliseconds(5)))
        do {
            try claim.joinQueue(wait)
            try claim.acquire(wait)
            return true
        } catch is ClaimWait.TimedOut {
            claim.release()
            return false
        }
    }

    struct Pair: Sendable, CustomTestStringConvertible {
        let held: (String, ClaimIntent.Access)
        let wanted: (String, ClaimIntent.Access)
        let isFree: Bool
        var testDescription: String { "\(held) then \(wanted)" }

        init(_ held: (String, ClaimIntent.Access), _ wanted: (String, ClaimIntent.Access), _ isFree: Bool) {
            self.held = held
            self.wanted = wanted
            self.isFree = isFree
        }
    }

    @Test(arguments: [
        Pair(("N", .read([])), ("N", .read([])), true),
        Pair(("N", .read([])), ("N", .write([])), false),
        Pair(("N", .write([])), ("N", .read([])), false),
        Pair(("N", .write([])), ("N", .write([])), false),
        Pair(("N", .write([])), ("M", .write([])), true),
        // A directory and its contents are separate until the directory is moved or deleted.
        Pair(("D", .write([])), ("D/I", .write([])), true),
        Pair(("D", .write(.forMoving)), ("D/I", .read([])), false),
        Pair(("D/I", .read([])), ("D", .write(.forDeleting)), false),
        Pair(("D/I/J", .write([])), ("D", .write(.forReplacing)), false),
        Pair(("D/I", .write(.forMoving)), ("D/J", .write(.forMoving)), true),
    ])
    func readersShareAndWritersDoNot(_ pair: Pair) throws {
        let held = try claim(pair.held.0, pair.held.1)
        #expect(try isFree(held))
        let wanted = try claim(pair.wanted.0, pair.wanted.1)
        #expect(try isFree(wanted) == pair.isFree)
        wanted.release()
        held.release()
        #expect(try isFree(claim(pair.wanted.0, pair.wanted.1)))
    }

    @Test func claimsADirectoryAndItsContents() throws {
        let items = ["D", "D/I", "N"].map { ClaimedItem(container: rig.container.name, path: FilePath($0)) }
        let claim = try Claim(
            [
                ClaimIntent(items[0], .write(.forMoving)), ClaimIntent(items[1], .read([])),
                ClaimIntent(items[2], .read([])), ClaimIntent(items[2], .write([])),
            ], in: rig.container)
        #expect(try isFree(claim))
        #expect(try !isFree(self.claim("N", .read([]))))
    }

    @Test func readersDoNotOvertakeAWaitingWriter() throws {
        let reader = try claim("N", .read([]))
        #expect(try isFree(reader))
        let writer = try claim("N", .write([]))
        try writer.joinQueue(ClaimWait(Deadline(after: .ample)))
        #expect(try !isFree(claim("N", .read([]))))
        reader.release()
        try writer.acquire(ClaimWait(Deadline(after: .ample)))
        #expect(try !isFree(claim("N", .read([]))))
    }

    @Test func equalPurposesDoNotConflict() throws {
        let one = try claim("N", .write([]), purpose: "p")
        let two = try claim("N", .write([]), purpose: "p")
        #expect(try isFree(one))
        #expect(try isFree(two))
        one.release()
        // The other claim of that purpose still holds it.
        #expect(try !isFree(claim("N", .read([]), purpose: "q")))
        two.release()
        #expect(try isFree(claim("N", .read([]), purpose: "q")))
    }

    @Test(.enabled(if: geteuid() == 0, "needs root, to become somebody who may not write"))
    func claimsReadingWithoutWritePermission() throws {
        #expect(chmod(rig.scratch.path.string, 0o755) == 0)
        try claim("N", .write([])).release()
        try asNobody { () throws in
            #expect(try isFree(claim("N", .read([]))))
            let refused = #expect(throws: FileCoordinationError.self) { _ = try claim("N", .write([])) }
            #expect(refused?.code == .notWritable)
            // This item has no lock file.
            let unknown = #expect(throws: FileCoordinationError.self) { _ = try claim("Other", .read([])) }
            #expect(unknown?.code == .notWritable)
            #expect(unknown?.remedy.contains("claim it once") == true)
        }
    }

    private func asNobody(_ body: () throws -> Void) throws {
        // Set for this thread only: other tests run in parallel.
        _ = setFileSystemUser(65_534)
        defer { _ = setFileSystemUser(0) }
        try body()
    }

    @Test func namesLockFilesUniquely() {
        let paths: [FilePath] = [
            "", "a", "a/b", "a%2Fb", "a b", FilePath(String(repeating: "x", count: 255)),
            FilePath(String(repeating: "y", count: 255)), FilePath("\u{1}\n"), "%root",
        ]
        let names = paths.map { ClaimLock.name(of: $0) }
        #expect(Set(names).count == names.count)
        #expect(names.allSatisfy { $0.bytes.count <= 255 })
        #expect(names[0].string == "%root.lock")
    }

    @Test func removesTheRecordWithItsClaim() throws {
        let held = try claim("N", .write([]))
        #expect(try isFree(held))
        #expect(rig.container.claimRecords().map(\.isGranted) == [true])
        held.release()
        #expect(rig.container.claimRecords().isEmpty)
    }
}

/// setfsuid(2), which the Glibc module doesn't export: sets the calling thread's user for file system access.
@_silgen_name("setfsuid")
private func setFileSystemUser(_ user: uid_t) -> CInt
