import Glibc
import LinuxSystem

/// A command line for `/bin/sh`.
struct ShellCommand: Sendable {
    let words: String

    /// Runs the command to its end with these variables in addition to the inherited ones. Returns its exit status, 128
    /// plus the signal's number if a signal ended it, or 127 if it could not be started.
    func run(_ variables: [(String, [UInt8])]) -> Int32 {
        let names = variables.map { Array("\($0.0)=".utf8) }
        let inherited = Self.inherited.filter { entry in !names.contains { entry.starts(with: $0) } }
        let environment = inherited + zip(names, variables).map { $0 + $1.1 }
        var shell = SpawnedProgram("/bin/sh", ["/bin/sh", "-c", words].map { Array($0.utf8) })
        shell.environment = environment
        guard let pid = try? shell.start() else { return 127 }
        var status: CInt = 0
        guard (try? retrying("waitpid", { waitpid(pid, &status, 0) })) != nil else { return 127 }
        return status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
    }

    private static let inherited: [[UInt8]] = {
        var found: [[UInt8]] = []
        var entry = environ
        while let pointer = entry.pointee {
            let length = strlen(pointer)
            found.append(
                pointer.withMemoryRebound(to: UInt8.self, capacity: length) {
                    Array(UnsafeBufferPointer(start: $0, count: length))
                })
            entry += 1
        }
        return found
    }()
}
