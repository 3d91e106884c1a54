import StrictYAML
import SystemPackage
import TestSupport

/// The parts of a compose file that the tests need (compose-spec.io).
struct ComposeFile {
    struct Volume {
        /// The volume's name, or a path.
        let source: String
        let target: FilePath
        let options: Set<String>

        var isNamed: Bool { !source.contains("/") }
    }

    struct Service {
        let user: String
        let environment: [String: String]
        /// The command; empty for the image's own.
        let command: [String]
        let healthCheck: [String]
        let volumes: [Volume]
        /// The stage of the Dockerfile.
        let image: String
    }

    let services: [String: Service]
    let volumes: Set<String>

    /// Parses a compose file. Throws if it isn't YAML, or if a service lacks a section that each sample service has.
    init(_ text: String) throws {
        guard
            let root = try YAMLReader(aliases: .copied, maximumBytes: 1 << 20, maximumDepth: 32).root(
                of: Array(text.utf8))
        else { throw Unexpected("no compose file") }
        let sections = try root.dictionary("the file")
        guard let services = sections["services"], let volumes = sections["volumes"] else {
            throw Unexpected("no compose file")
        }
        self.services = try services.dictionary("services").mapValues(Service.init)
        self.volumes = Set(try volumes.members("volumes").map(\.name))
    }
}

extension ComposeFile.Service {
    fileprivate init(_ node: YAMLNode) throws {
        let section = try node.dictionary("a service")
        guard let user = section["user"], let environment = section["environment"], let volumes = section["volumes"],
            let image = try section["build"]?.dictionary("build")["target"]
        else { throw Unexpected("a service lacks a section: \(section.keys.sorted())") }
        self.user = try user.string("user")
        self.environment = try environment.dictionary("environment").mapValues { try $0.string("environment") }
        self.image = try image.string("target")
        self.volumes = try volumes.strings("volumes").map(ComposeFile.Volume.init)
        command = try section["command"]?.strings("command") ?? []
        let check = try section["healthcheck"]?.dictionary("healthcheck")["test"]?.strings("test") ?? []
        healthCheck = Array(check.drop { $0 == "CMD" })
    }

    /// Returns the volume mounted at `target`.
    func volume(at target: FilePath) -> ComposeFile.Volume? { volumes.first { $0.target == target } }
}

extension ComposeFile.Volume {
    /// Parses the short syntax, `SOURCE:TARGET[:OPTION,…]`.
    fileprivate init(_ text: String) throws {
        let parts = text.split(separator: ":").map(String.init)
        guard (2...3).contains(parts.count) else { throw Unexpected("no volume: \(text)") }
        source = parts[0]
        target = FilePath(parts[1])
        options = parts.count == 3 ? Set(parts[2].split(separator: ",").map(String.init)) : []
    }
}

/// The instructions of one stage of a Dockerfile.
struct DockerfileStage {
    let instructions: [(name: String, words: [String])]

    /// Parses a stage. Throws if the file has no such stage.
    init(_ name: String, of text: String) throws {
        let lines = text.replacing("\\\n", with: " ").split(separator: "\n").filter { !$0.hasPrefix("#") }
        let all = lines.compactMap { line -> (name: String, words: [String])? in
            let words = line.split { " \t\"[],".contains($0) }.map(String.init)
            return words.first.map { ($0, Array(words.dropFirst())) }
        }
        guard let start = all.firstIndex(where: { $0.name == "FROM" && $0.words.suffix(2) == ["AS", name] }) else {
            throw Unexpected("no stage \(name)")
        }
        instructions = Array(all[start...].prefix { $0.name != "FROM" || $0.words.last == name })
    }

    /// The arguments of each occurrence of an instruction.
    subscript(_ name: String) -> [[String]] { instructions.filter { $0.name == name }.map(\.words) }

    /// Returns the arguments of a command in `RUN`, up to the next `&&`.
    func arguments(of command: [String]) -> [String] {
        self["RUN"].flatMap { words -> [String] in
            words.split(separator: "&&").filter { $0.starts(with: command) }.flatMap { $0.dropFirst(command.count) }
        }
    }
}

extension YAMLNode {
    /// Returns the members by name, with those of the mapping under `<<` that aren't there themselves.
    func dictionary(_ key: String) throws -> [String: YAMLNode] {
        let own = Dictionary(try members(key).map { ($0.name, $0.value) }, uniquingKeysWith: { first, _ in first })
        guard let merged = own["<<"] else { return own }
        return own.merging(try merged.dictionary("<<")) { first, _ in first }.filter { $0.key != "<<" }
    }

    func strings(_ key: String) throws -> [String] { try elements(key).map { try $0.string(key) } }
}
