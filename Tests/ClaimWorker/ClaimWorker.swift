import Foundation
import GroupStore

/// Claims one item at random, reading and writing, for a while, and prints what it saw. The tests run many workers at
/// once.
///
///     ClaimWorker GROUP_DIRECTORY SECONDS
///     ClaimWorker --create GROUP_ID     creates the group's container if needed, and prints its directory or the error
///
/// An independent witness checks that a writer is always alone: flock(2) on another file, shared while reading,
/// exclusive while writing, and never blocking.
@main
struct ClaimWorker {
    static func main() throws {
        if CommandLine.arguments.count == 3, CommandLine.arguments[1] == "--create" {
            return create(CommandLine.arguments[2])
        }
        guard CommandLine.arguments.count == 3, let seconds = Double(CommandLine.arguments[2]) else { exit(64) }
        let directory = URL(filePath: CommandLine.arguments[1])
        // Opened before any lock file, so that the kernel closes it before them when this process is killed.
        let witness = open(directory.appending(path: "witness").path, O_RDWR | O_CREAT, 0o600)
        let container = try GroupContainer(identifier: "group.com.example.claims", directory: directory)
        let item = directory.appending(path: "item")
        let end = ContinuousClock.now.advanced(by: .seconds(seconds))
        var (reads, writes, longest) = (0, 0, Duration.zero)
        while ContinuousClock.now < end {
            let coordinator = FileCoordinator(in: container)
            let asked = ContinuousClock.now
            if Int.random(in: 0..<4) == 0 {
                try coordinator.coordinate(writingItemAt: item, deadline: .seconds(60)) { _ in
                    longest = max(longest, asked.duration(to: .now))
                    work(witness, LOCK_EX)
                }
                writes += 1
            } else {
                try coordinator.coordinate(readingItemAt: item, deadline: .seconds(60)) { _ in
                    longest = max(longest, asked.duration(to: .now))
                    work(witness, LOCK_SH)
                }
                reads += 1
            }
            // This delay is the work between two accesses; the one below is the work within an access. Neither waits
            // for an event.
            usleep(UInt32.random(in: 0...2000))
        }
        let waited = Double(longest.components.seconds) + Double(longest.components.attoseconds) / 1e18
        printLine("reads \(reads) writes \(writes) longest \(waited)")
    }

    private static func create(_ identifier: String) {
        do throws(GroupStoreError) {
            printLine(try GroupContainer(identifier: identifier, creatingIfNeeded: true).url.path)
        } catch {
            printLine("\(error.code.rawValue): \(error)")
        }
    }

    private static func work(_ witness: CInt, _ kind: CInt) {
        if flock(witness, kind | LOCK_NB) != 0 { printLine("VIOLATION \(kind == LOCK_EX ? "writer" : "reader")") }
        usleep(UInt32.random(in: 0...1000))
        flock(witness, LOCK_UN)
    }
}

private func printLine(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }
