import EndToEndSupport
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The package in `Clients/python`: its own tests, its types and style, and what is built of it.
@Suite(.ownThreads, .timeLimit(.minutes(10))) struct PythonPackageTests {
    private static let directory = Programs.source("Clients/python")

    private static func canRun(_ words: Word...) -> Bool {
        (try? run("/usr/bin/env", words))?.status == 0
    }

    private static let hasTypeChecker = canRun("mypy", "--version")
    private static let hasLinter = canRun("ruff", "--version")
    private static let canBuild = canRun("/usr/bin/python3", "-c", "import setuptools, wheel")

    private static func testModules() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: "\(directory)/tests").filter {
            $0.hasPrefix("test_") && $0.hasSuffix(".py")
        }
    }

    private func inPackage(_ command: String) throws -> FinishedProcess {
        try run("sh", ["-c", Word("cd \"$0\" && \(command)"), Self.directory], within: .ample)
    }

    /// Tests against the real program, with the Python that `$PATH` names.
    @Test(arguments: try testModules())
    func passesItsOwnTests(_ module: String) throws {
        let done = try run(
            "python3",
            [
                "-W", "error::ResourceWarning", "-m", "unittest", "discover", "-p", Word(module),
                "-s", Self.directory + "/tests", "-t", Self.directory,
            ],
            environment: Programs.pythonClient.merging(["GROUPSTORE": "\(Programs.groupstore)"]) { $1 }, within: .ample)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
        #expect(!done.errors.contains("Ran 0 tests"))
    }

    @Test(.enabled(if: hasTypeChecker, "mypy isn't installed: pip install mypy"))
    func hasTypesThroughout() throws {
        let done = try inPackage("mypy --strict --cache-dir=/dev/null")
        #expect(done.status == 0, "\(done.output)\(done.errors)")
    }

    @Test(.enabled(if: hasLinter, "ruff isn't installed: pip install ruff"))
    func keepsItsStyle() throws {
        let done = try inPackage("ruff check --no-cache . && ruff format --no-cache --check .")
        #expect(done.status == 0, "\(done.output)\(done.errors)")
    }

    /// Twice, in directories of other names, times and permissions; the wheel then runs as it is.
    @Test(.enabled(if: canBuild, "needs python3-setuptools and python3-wheel"))
    func buildsTheSameBytes() throws {
        let places = try Places()
        var results: [[[UInt8]]] = []
        for (mask, name) in [("022", "first"), ("077", "second")] {
            let directory = places.scratch(name)
            let built = try inPackage("umask \(mask) && ./package '\(directory)'")
            try #require(built.status == 0, "\(built.output)\(built.errors)")
            #expect(built.lines.count == 2)
            results.append(try built.lines.map { try run("cat", [Word($0)]).outputBytes })
            let wheel = try #require(built.lines.first { $0.hasSuffix(".whl") })
            let version = try run(
                "python3", ["-m", "groupstore", "--version"],
                environment: ["PYTHONPATH": wheel, "PYTHONDONTWRITEBYTECODE": "1"])
            #expect(version.output == (try groupstore("--version").output))
        }
        #expect(results.first == results.last)
    }
}
