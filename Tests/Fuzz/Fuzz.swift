import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// Feeds mutated inputs to the readers of external data:
/// `Fuzz [TARGET]... [--seed N] [--first N] [--rounds N] [--seconds S] [--print]`. The seed and the round's number
/// alone determine a round's input, so `--seed S --first N --rounds 1` repeats it. A round that crashes the process
/// reports itself first.
///
/// Exits with 1 if a reader accepted input that it doesn't write back as it read it, or took too long.
@main
struct Fuzz {
    /// The limit for an input of at most 64 KiB, in CPU time and in a debug build.
    private static let longest = Duration.seconds(10)

    private var targets = Target.allCases
    private var seed = UInt64.random(in: 0..<1 << 32)
    private var first = 0
    private var rounds = 20_000
    private var seconds: Int?
    private var printsInput = false

    static func main() throws {
        guard let fuzz = Fuzz(CommandLine.arguments.dropFirst()) else {
            printText("usage: Fuzz [TARGET]... [--seed N] [--first N] [--rounds N] [--seconds S] [--print]; targets: ")
            printText(Target.allCases.map(\.rawValue).joined(separator: ", ") + "\n")
            exit(64)
        }
        LastRound.report()
        let scratch = try TemporaryDirectory(in: "/dev/shm")
        printText("fuzz: seed \(fuzz.seed)\n")
        var findings = 0
        for target in fuzz.targets { findings += try fuzz.run(target, in: scratch.path) }
        // Exiting immediately would leave the directory behind.
        withExtendedLifetime(scratch) {}
        if findings > 0 { exit(1) }
    }

    private init?(_ arguments: ArraySlice<String>) {
        var rest = arguments
        var named: [Target] = []
        while let word = rest.popFirst() {
            if let target = Target(rawValue: word) {
                named.append(target)
                continue
            }
            if word == "--print" {
                printsInput = true
                continue
            }
            guard let text = rest.popFirst(), let number = Int(text), number >= 0 else { return nil }
            switch word {
            case "--seed": seed = UInt64(number)
            case "--first": first = number
            case "--rounds": rounds = number
            case "--seconds": (seconds, rounds) = (number, .max)
            default: return nil
            }
        }
        if !named.isEmpty { targets = named }
    }

    /// Returns the number of failed rounds.
    private func run(_ target: Target, in directory: FilePath) throws -> Int {
        let reader = try target.reader(in: directory)
        let deadline = Deadline(after: seconds.map { .seconds($0) } ?? .seconds(1 << 30))
        var (accepted, findings, done) = (0, 0, 0)
        while done < rounds, !deadline.hasPassed {
            let number = first + done
            var mutator = Mutator(seed: seed, round: number, words: target.words)
            let input = mutator.input(from: reader.examples)
            LastRound.begin(target, seed: seed, number)
            if printsInput { _ = input.withUnsafeBytes { write(1, $0.baseAddress, $0.count) } }
            let started = Self.processorTime()
            let verdict = reader.read(input)
            let took = Self.processorTime() - started
            if case .accepted = verdict { accepted += 1 }
            if case .wrong(let reason) = verdict {
                findings += 1
                Self.printText("FOUND \(target.rawValue), seed \(seed), round \(number): \(reason)\n")
            }
            if took > Self.longest {
                findings += 1
                Self.printText("SLOW \(target.rawValue), seed \(seed), round \(number): \(took)\n")
            }
            done += 1
        }
        Self.printText("fuzz: \(target.rawValue): \(done) inputs, \(accepted) accepted, \(findings) findings\n")
        return findings
    }

    private static func processorTime() -> Duration {
        var now = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
        return .seconds(now.tv_sec) + .nanoseconds(now.tv_nsec)
    }

    private static func printText(_ text: String) { _ = text.withCString { write(1, $0, strlen($0)) } }
}

/// The input being read, for the handler of the signal that a crash raises.
enum LastRound {
    /// Written by the one thread that reads, and read on that thread by its own signal handler.
    nonisolated(unsafe) private static var text: [CChar] = [0]

    static func begin(_ target: Target, seed: UInt64, _ number: Int) {
        text = Array("CRASH \(target.rawValue), seed \(seed), round \(number)\n".utf8CString)
    }

    static func report() {
        for number in [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT, SIGFPE] {
            signal(number) { number in
                LastRound.text.withUnsafeBufferPointer { _ = write(1, $0.baseAddress, $0.count - 1) }
                signal(number, SIG_DFL)
                raise(number)
            }
        }
    }
}
