import AgentProtocol
import EndToEndSupport
import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// The code blocks of the README, the documentation, the DocC catalogues and the samples' pages.
@Suite(.ownThreads) struct CodeBlockTests {
    private static let root = CodeBlock.root.string

    /// Each block is a file of its own, so that it needs every import that it uses.
    @Test func everySwiftBlockCompiles() throws {
        let scratch = try TemporaryDirectory()
        let blocks = try CodeBlock.all().filter { $0.language == "swift" && !$0.isManifest && !$0.isProgram }
        #expect(blocks.count > 15)
        var files: [Word] = []
        for (number, block) in blocks.enumerated() {
            let imports = block.lines.filter { $0.hasPrefix("import ") }
            let body = block.lines.map { $0.hasPrefix("import ") ? "" : $0 }
            let text =
                imports + ["func block\(number)() async throws {"]
                + ["#sourceLocation(file: \"\(block.page)\", line: \(block.line))"] + body + [
                    "#sourceLocation()", "}", "",
                ]
            let file = scratch.path.appending("block\(number).swift")
            try text.joined(separator: "\n").write(toFile: file.string, atomically: true, encoding: .utf8)
            files.append(Word(file))
        }
        let done = try run("swiftc", Typecheck.options + ["-warnings-as-errors"] + files, within: .ample)
        #expect(done.status == 0, "\(done.output)\(done.errors)")
    }

    @Test func everySwiftProgramCompiles() throws {
        let blocks = try CodeBlock.all().filter(\.isProgram)
        #expect(blocks.contains { $0.page == "README.md" })
        for block in blocks {
            let scratch = try TemporaryDirectory()
            let file = scratch.path.appending("App.swift")
            try block.lines.joined(separator: "\n").write(toFile: file.string, atomically: true, encoding: .utf8)
            let done = try run(
                "swiftc", Typecheck.options + ["-parse-as-library", "-warnings-as-errors", Word(file)], within: .ample)
            #expect(done.status == 0, "\(block.page):\(block.line): \(done.output)\(done.errors)")
        }
    }

    /// SwiftPM reads each part of a manifest, and this package has the products that it names.
    @Test func everyManifestNamesProductsOfThePackage() throws {
        let manifests = try CodeBlock.all().filter(\.isManifest)
        #expect(manifests.count >= 3)
        let package = try Self.description(ofPackageAt: FilePath(Self.root))
        let products = Set(package.objects("products").compactMap { $0.string("name") })
        for block in manifests {
            let place: Comment = "\(block.page):\(block.line)"
            let app = try TemporaryDirectory()
            let isWhole = block.lines.first?.hasPrefix("// swift-tools-version") == true
            let text =
                isWhole
                ? block.lines + [""]
                : ["// swift-tools-version: 6.1", "import PackageDescription", "let package = Package(name: \"App\","]
                    + block.lines + [")", ""]
            try text.joined(separator: "\n").write(
                toFile: app.path.appending("Package.swift").string, atomically: true, encoding: .utf8)
            let manifest = try Self.description(ofPackageAt: app.path)
            let dependencies = manifest.objects("targets").flatMap { $0.objects("dependencies") }
            let named = dependencies.compactMap { dependency -> [JSONValue]? in
                if case .array(let words)? = dependency["product"] { return words }
                return nil
            }
            #expect(!named.isEmpty, place)
            // Without a name, it is the one of the clone's directory.
            for line in block.lines where line.contains("path:") {
                #expect(line.contains(#".package(name: "groupstore", path:"#), place)
            }
            for product in named {
                guard case .string(let name) = product[0] else { throw Unexpected("\(product)") }
                #expect(products.contains(name) && product[1] == "groupstore", place)
            }
        }
    }

    /// Returns what `swift package dump-package` prints. It builds elsewhere, because the tests' own build is locked.
    private static func description(ofPackageAt path: FilePath) throws -> JSONObject {
        let scratch = try TemporaryDirectory()
        let done = try run(
            "swift",
            ["package", "--package-path", Word(path), "--scratch-path", Word(scratch.path), "dump-package"])
        let line = done.output.replacing("\n", with: " ")
        guard let object = JSONObject(line: line) else { throw Unexpected("\(path): \(done.output)\(done.errors)") }
        return object
    }

    /// The five lines with which the README begins, and those that follow. The program is built already.
    @Test func firstBlocksOfTheReadmeRun() throws {
        let blocks = try CodeBlock.all().filter { $0.page == "README.md" }.prefix(2)
        let (first, second) = (try #require(blocks.first), try #require(blocks.last))
        #expect(first.lines.count == 5)
        #expect(first.lines[0].hasSuffix(#"export PATH="$PWD/.build/debug:$PATH" && cd "$(mktemp -d)""#))
        let scratch = try TemporaryDirectory()
        let change = try #require(second.lines.firstIndex { $0.hasPrefix("sqlite3 ") })
        // A person takes a moment to write the command after `watch`.
        var script: [String] = ["export PATH=\"\(Programs.directory):$PATH\"", "cd '\(scratch.path)'"]
        script += Array(first.lines.dropFirst())
        script += second.lines[..<change].map { $0.replacingOccurrences(of: " &", with: " > heard 2>&1 &") }
        script += ["trap 'kill $!' EXIT", "until grep -q watching heard; do sleep 0.02; done", second.lines[change]]
        script += ["until grep -q '  change  .*/shared/Notes.sqlite  ' heard; do sleep 0.02; done"]
        let done = try run(
            "bash", ["-e", "-c", Word(script.joined(separator: "\n"))],
            environment: ["GROUPSTORE_SOCKET": "/nonexistent/agent.sock"])
        #expect(done.status == 0, "\(done.errors)")
        #expect(done.lines.last == "still here")
        #expect(Array(second.lines[(change + 1)...]) == ["kill %1"])
    }

    /// The README's installation. script/try-packages runs these lines in bare Debians.
    @Test func installationOfTheReadmeNamesThePackage() throws {
        let page = try String(contentsOfFile: Self.root + "/README.md", encoding: .utf8).split(
            separator: "\n", omittingEmptySubsequences: false)
        let heading = try #require(page.firstIndex(of: "## Install it"))
        let block = try #require(CodeBlock.all().first { $0.page == "README.md" && $0.line > heading })
        #expect(try run("sh", ["-n", "-c", Word(block.lines.joined(separator: "\n"))]).status == 0)
        let commands = block.lines.map { line in
            line.split(separator: " ").prefix { !$0.hasPrefix("#") }.joined(separator: " ")
        }
        try #require(commands.count == 5)
        #expect(commands[0] == "script/package" && commands[3] == "groupstore watch app.db")
        for index in [2, 4] { #expect(commands[index].hasPrefix("sqlite3 app.db ")) }

        // The pattern matches the package that script/package makes, in the directory that it makes it in.
        let script = try String(contentsOfFile: Self.root + "/script/package", encoding: .utf8)
        #expect(script.contains("${1:-.build/packages}") && script.contains("\"$output/${1}_${version}_$2.deb\""))
        let scratch = try TemporaryDirectory()
        let packages = scratch.path.appending(".build").appending("packages")
        try run("mkdir", ["-p", Word(packages)])
        let version = ProgramVersion.current
        for name in ["groupstore_\(version)_amd64.deb", "python3-groupstore_\(version)_all.deb"] as [String] {
            try run("touch", [Word(packages.appending(name))])
        }
        let words = try run("sh", ["-c", Word("cd \(scratch.path) && printf '%s\\n' \(commands[1])")]).lines
        #expect(words == ["apt", "install", "./.build/packages/groupstore_\(version)_amd64.deb"])
    }

    @Test func everyScriptParses() throws {
        for block in try CodeBlock.all() where ["sh", "python"].contains(block.language) {
            let text = block.lines.joined(separator: "\n")
            let done =
                block.language == "sh"
                ? try run("bash", ["-n", "-c", Word(text)])
                : try run("python3", ["-c", "import ast, sys; ast.parse(sys.argv[1])", Word(text)])
            #expect(done.status == 0, "\(block.page):\(block.line): \(done.errors)")
        }
    }
}
