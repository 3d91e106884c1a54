import AgentProtocol
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport

/// The programs under test, built beside this test bundle.
package enum Programs {
    /// The `groupstore` program. `$GROUPSTORE_PROGRAM` replaces it in an observed test run:
    /// `script/soak checkpoints --over`.
    package static let groupstore = Word(
        getenv("GROUPSTORE_PROGRAM").map { FilePath(String(cString: $0)) } ?? directory.appending("groupstore"))
    package static let relay = Word(directory.appending("groupstore-relay"))
    package static let legacyWriter = Word(directory.appending("LegacyWriter"))
    package static let legacyPresenter = Word(directory.appending("LegacyPresenter"))
    package static let notesApp = Word(directory.appending("NotesApp"))
    package static let notesWidget = Word(directory.appending("NotesWidget"))
    package static let notesUpgrade = Word(directory.appending("NotesUpgrade"))
    package static let fuzz = Word(directory.appending("Fuzz"))
    package static let claimWorker = Word(directory.appending("ClaimWorker"))
    package static let libraryActor = Word(directory.appending("LibraryActor"))
    package static let replicationActor = Word(directory.appending("ReplicationActor"))

    /// Returns a file of the package by its path from the root.
    package static func source(_ path: String) -> Word {
        Word(CodeBlock.root.appending(path))
    }

    /// Compiles C files of the package, named from its root, to a program or a library.
    package static func compile(_ sources: [String], to product: FilePath, options: [Word]) throws {
        let compiler = #"exec "$(command -v cc || command -v clang)" "$@""#
        let arguments = ["-c", Word(compiler), "cc"] + options + ["-o", Word(product)] + sources.map { source($0) }
        let compiled = try run("sh", arguments)
        guard compiled.status == 0 else { throw Unexpected(compiled.errors) }
    }

    /// The environment in which Python finds the package in `Clients/python`, and leaves no files there.
    package static let pythonClient = ["PYTHONPATH": "\(source("Clients/python"))", "PYTHONDONTWRITEBYTECODE": "1"]

    /// Runs a program under the same process identifier where it sees no mount that is made later. Only root's tests
    /// mount anything that others see.
    package static let withoutNewMounts: [Word] =
        geteuid() == 0 ? ["unshare", "--mount", "--propagation", "private"] : []

    /// True if strace may trace. It needs the right to do so, which containers often lack.
    package static let canTrace = (try? run("strace", ["-o", "/dev/null", "true"]))?.status == 0

    package static let directory: FilePath = {
        var buffer = [CChar](repeating: 0, count: 4096)
        let count = readlink("/proc/self/exe", &buffer, buffer.count - 1)
        let bundle = FilePath(bytes: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }) ?? "."
        return bundle.removingLastComponent()
    }()
}

/// Runs a `groupstore` command to its end. By default, the command contacts no agent.
@discardableResult
package func groupstore(
    _ arguments: Word..., options: [Word] = [], environment: [String: String] = [:],
    within limit: Duration = .seconds(120)
) throws -> FinishedProcess {
    try run(
        Programs.groupstore, arguments + options,
        environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"].merging(environment) { $1 }, within: limit)
}

extension FinishedProcess {
    /// The objects that `--json` printed.
    package var objects: [JSONObject] { lines.compactMap(JSONObject.init(line:)) }
    /// The last of `objects`.
    package var summary: JSONObject { lines.reversed().lazy.compactMap(JSONObject.init(line:)).first ?? [:] }
    package var outcome: String? { summary.string("outcome") }
}

extension JSONObject {
    package init?(line: String) {
        guard case .object(let object)? = try? JSONValue(parsing: line.utf8) else { return nil }
        self = object
    }

    package var type: String? { string("type") }
}
