import Glibc
import LinuxSystem
import SystemPackage

/// A Python program that executes the lines that it is sent, each with an answer.
package struct SQLiteHolder {
    private let process: RunningProcess
    package var pid: pid_t { process.pid }

    /// Opens a store with `open()` as `c`, after which it is in WAL mode and has a commit.
    package init(_ path: FilePath) throws {
        let program = """
            import fcntl, mmap, os, sqlite3, sys
            for line in sys.stdin:
                exec(line)
                print("done", flush=True)
            """
        process = try RunningProcess("python3", ["-c", Word(program), Word(path)])
        try run("path = sys.argv[1]")
        try run("c = sqlite3.connect(path, isolation_level=None)")
    }

    package func run(_ line: String) throws {
        process.send(Word(line))
        let answer = try process.line()
        guard answer == "done" else {
            throw Unexpected("\(line): \(answer ?? "ended"), \(try process.line(.errors) ?? "without an error")")
        }
    }

    package func insert() throws { try run("c.execute('INSERT INTO t VALUES (1)')") }

    /// Ends the process as its program ends, which closes the store.
    package func end() throws {
        process.closeInput()
        _ = try process.wait()
    }

    /// Kills the process: nothing is closed.
    package func kill() throws {
        Glibc.kill(process.pid, SIGKILL)
        _ = try process.wait()
    }
}
