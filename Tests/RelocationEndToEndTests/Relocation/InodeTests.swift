import EndToEndSupport
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Tests of a destination with too few inodes.
@Suite(.ownThreads, .enabled(if: Namespaces.areAvailable, "needs unshare(1) and the right to make user namespaces"))
struct InodeTests {
    /// Mounts a file system with so many inodes over the group's directory, runs a script there, and relocates.
    private func relocate(
        _ places: Places, inodes: Int, after script: String = ":", _ options: String = ""
    ) throws -> FinishedProcess {
        let script = """
            mount -t tmpfs -o nr_inodes=\(inodes + 1) tmpfs '\(places.group)' || exit 1
            cd '\(places.group)' && \(script)
            '\(Programs.groupstore)' relocate '\(places.legacy)/Notes.sqlite' '\(places.group)' --json \(options)
            status=$?
            echo "left $(ls -A | wc -l)"
            exit $status
            """
        return try run(
            "unshare", ["--user", "--map-root-user", "--mount", "sh", "-c", Word(script)],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
    }

    /// The numbers are the smallest with which a run succeeds.
    @Test(arguments: [true, false]) func aDryRunSaysWhatTheRunSays(hasExternalData: Bool) throws {
        func makePlaces() throws -> Places {
            let places = try Places()
            let store = try makeStore(places.legacy.appending("Notes.sqlite"), rows: 5)
            if !hasExternalData { try run("rm", ["-r", Word(store.support)]) }
            return places
        }
        let places = try makePlaces()
        let needed = try 12 + run("find", [Word(places.legacy), "-path", "*_SUPPORT*"]).lines.count
        for options in ["--dry-run", ""] {
            let refused = try relocate(places, inodes: needed - 1, options)
            #expect(refused.status == 74, "\(refused.output)\(refused.errors)")
            #expect(refused.output.contains("\"no_space\"") && refused.output.contains("inodes"), "\(refused.output)")
            #expect(refused.lines.last == "left 0")
        }
        let records = "mkdir -p .groupstore/claims .groupstore/staging .groupstore/receipts && : > .groupstore/lock"
        for (inodes, script) in [(needed, ":"), (needed + 1, records)] {
            let places = try makePlaces()
            for options in ["--dry-run", ""] {
                let done = try relocate(places, inodes: inodes, after: script, options)
                #expect(done.status == 0, "\(done.output)\(done.errors)")
            }
        }
    }
}
