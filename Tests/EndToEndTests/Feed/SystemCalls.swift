import Glibc
import SystemPackage
import TestSupport
import Testing

/// Traces the process and returns its system calls, one line per kind. `file` is made.
func systemCalls(of pid: pid_t, for duration: Duration = .seconds(4), in file: FilePath) throws -> [String] {
    let strace = try RunningProcess("strace", ["-f", "-c", "-o", Word(file), "-p", "\(pid)"])
    try strace.line(.errors) { $0.contains("attached") }
    #expect(try !strace.hasEnded(within: duration))
    strace.signal(SIGINT)
    try strace.wait()
    let table = try run("cat", [Word(file)]).lines
    return table.filter { !$0.hasPrefix("%") && !$0.hasPrefix("-") && !$0.hasSuffix(" total") }
}
