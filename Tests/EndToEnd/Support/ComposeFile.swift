import SystemPackage
import TestSupport
import Yams

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
        guard let root = try Yams.load(yaml: text) as? [String: Any],
            let services = root["services"] as? [String: [String: Any]], let volumes = root["volumes"] as? [String: Any]
        else { throw Unexpected("no compose file") }
        self.services = try services.mapValues(Service.init)
        self.volumes = Set(volumes.keys)
    }
}

extension ComposeFile.Service {
    fileprivate init(_ section: [String: Any]) throws {
        guard let user = section["user"] as? String, let environment = section["environment"] as? [String: String],
            let volumes = section["volumes"] as? [String],
            let image = (section["build"] as? [String: Any])?["target"] as? String
        else { throw Unexpected("a service lacks a section: \(section.keys.sorted())") }
        self.user = user
        self.environment = environment
        self.image = image
        self.volumes = try volumes.map(ComposeFile.Volume.init)
        command = section["command"] as? [String] ?? []
        let check = (section["healthcheck"] as? [String: Any])?["test"] as? [String] ?? []
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
