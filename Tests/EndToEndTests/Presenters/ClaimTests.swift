import EndToEndSupport
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Many processes claim one item. `GROUPSTORE_CLAIM_SECONDS` extends the test; the external check uses 60.
@Suite(.ownThreads) struct ClaimTests {
    private let seconds = ProcessInfo.processInfo.environment["GROUPSTORE_CLAIM_SECONDS"].flatMap(Double.init) ?? 5

    @Test(.soak) func writersAreAlwaysAlone() throws {
        let scratch = try TemporaryDirectory()
        func worker() throws -> RunningProcess {
            try RunningProcess(
                Programs.claimWorker, [Word(scratch.path), "\(seconds)"],
                environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        }
        var workers: [RunningProcess] = []
        for _ in 0..<50 { workers.append(try worker()) }
        // The test kills processes at random moments, and starts others.
        let deadline = Deadline(after: .seconds(seconds * 0.8))
        var killed = 0
        while !deadline.hasPassed {
            let place = Int.random(in: 0..<workers.count)
            guard try !workers[place].hasEnded(within: .milliseconds(Int.random(in: 10...100))) else { continue }
            try workers[place].killAtOnce()
            workers[place] = try worker()
            killed += 1
        }
        var (reads, writes, longest) = (0, 0, 0.0)
        for worker in workers {
            let done = try worker.wait(within: .seconds(seconds + 120))
            #expect(done.status == 0, "\(done.errors)")
            #expect(!done.output.contains("VIOLATION"))
            let words = (done.lines.last ?? "").split(separator: " ")
            guard words.count == 6 else { throw Unexpected("a worker said: \(done.output)") }
            reads += Int(words[1]) ?? 0
            writes += Int(words[3]) ?? 0
            longest = max(longest, Double(words[5]) ?? .infinity)
        }
        print("claims: \(reads) reads, \(writes) writes, \(killed) processes killed, longest wait \(longest) s")
        #expect(reads > 0 && writes > 0 && killed > 0)
        // A starved process waits for as long as others continue. The deadline of one claim is 60 s.
        #expect(longest < 60)
        #expect(
            try Directory(scratch.path.appending(".groupstore").appending("claims").appending("holders")).names().count
                <= killed)
    }
}
