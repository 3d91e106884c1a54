import LinuxSystem
import SystemPackage

/// A systemd service, as far as its settings decide which files it may write to (systemd.exec(5), "Paths" and
/// "Sandboxing").
///
/// The settings are read from the unit's files, because the service is stopped while its files move.
package struct ServiceUnit: Sendable {
    package let name: String
    private var values: [String: [String]] = [:]

    /// Reads a unit's file and then its drop-ins, in this order. Whatever isn't understood is left out.
    package init(name: String, texts: [String]) {
        self.name = name
        for text in texts { read(text.contains("\\\n") ? text.replacing("\\\n", with: " ") : text) }
    }

    private mutating func read(_ text: String) {
        var section = ""
        // Bytes: to find characters takes twenty times as long.
        for line in text.utf8.split(separator: 0x0A) {
            let line = Substring(line).trimmed
            if line.isEmpty || line.hasPrefix("#") || line.hasPrefix(";") { continue }
            if line.hasPrefix("[") {
                section = line
                continue
            }
            guard section == "[Service]", let equals = line.firstIndex(of: "=") else { continue }
            let (key, value) = (String(line[..<equals].trimmed), line[line.index(after: equals)...].trimmed)
            // An empty value takes back what was listed before.
            values[key] = value.isEmpty ? [] : values[key, default: []] + [value]
        }
    }

    // MARK: - Values

    /// The user's name or number; nil for root.
    var user: String? { values["User"]?.last }

    private func flag(_ key: String) -> String { values[key]?.last?.lowercased() ?? "no" }

    private func isOn(_ key: String) -> Bool { ["yes", "true", "1", "on"].contains(flag(key)) }

    private func words(_ key: String) -> [String] {
        values[key, default: []].flatMap { value -> [String] in
            var (words, word, quote): ([String], String, Character?) = ([], "", nil)
            for character in value {
                if let open = quote {
                    if character == open { quote = nil } else { word.append(character) }
                } else if character == "\"" || character == "'" {
                    quote = character
                } else if character.isWhitespace {
                    if !word.isEmpty { words.append(word) }
                    word = ""
                } else {
                    word.append(character)
                }
            }
            return word.isEmpty ? words : words + [word]
        }
    }

    private static let specifiers = [
        "%S": "/var/lib", "%C": "/var/cache", "%L": "/var/log", "%t": "/run", "%E": "/etc",
    ]

    /// True if something in the directory may be named without the directory's own name: by a specifier or by a setting
    /// such as `StateDirectory`.
    static func containsPlaces(_ directory: UnitPath) -> Bool {
        specifiers.values.contains { directory.contains(UnitPath($0)) }
    }

    /// Returns the absolute paths in a setting. Those that depend on the instance or the machine are left out.
    private func paths(_ key: String) -> [UnitPath] {
        words(key).compactMap { word in
            var text = String(word.drop { "-+!:@|".contains($0) })
            for (specifier, place) in Self.specifiers { text = text.replacing(specifier, with: place) }
            // `BindPaths=SOURCE:DESTINATION`: the destination is what the service sees.
            if key.hasPrefix("Bind"), let path = text.split(separator: ":").dropFirst().first { text = String(path) }
            return text.hasPrefix("/") && !text.contains("%") ? UnitPath(text) : nil
        }
    }

    private static let directories = [
        ("StateDirectory", "/var/lib"), ("CacheDirectory", "/var/cache"), ("LogsDirectory", "/var/log"),
        ("RuntimeDirectory", "/run"), ("ConfigurationDirectory", "/etc"),
    ]

    /// The directories that systemd makes for the service, with the setting that names each.
    private var ownDirectories: [(path: UnitPath, setting: String, word: String)] {
        Self.directories.flatMap { setting, parent in
            words(setting).compactMap { word in
                guard let name = word.split(separator: ":").first, !name.contains("%") else { return nil }
                return (UnitPath("\(parent)/\(name)"), setting, word)
            }
        }
    }

    // MARK: - Access

    enum Access: Equatable {
        case writable
        case readOnly(by: String)
        /// Nothing of it is seen. `isEmpty`: something can be mounted there.
        case hidden(by: String, isEmpty: Bool)
    }

    private var rules: [(path: UnitPath, access: Access)] {
        var rules: [(path: UnitPath, access: Access)] = []
        func add(_ paths: [UnitPath], _ access: Access) { rules += paths.map { ($0, access) } }
        let isDynamic = isOn("DynamicUser")
        switch isDynamic && values["ProtectSystem"] == nil ? "strict" : flag("ProtectSystem") {
        case "strict":
            add(["/"], .readOnly(by: "ProtectSystem=strict"))
            add(["/home", "/root", "/run/user", "/dev", "/proc", "/sys"], .writable)
        case "full": add(["/usr", "/boot", "/efi", "/etc"], .readOnly(by: "ProtectSystem=full"))
        case "yes", "true", "1", "on": add(["/usr", "/boot", "/efi"], .readOnly(by: "ProtectSystem=yes"))
        default: break
        }
        let homes: [UnitPath] = ["/home", "/root", "/run/user"]
        let home = isDynamic && values["ProtectHome"] == nil ? "read-only" : flag("ProtectHome")
        switch home {
        case "read-only": add(homes, .readOnly(by: "ProtectHome=read-only"))
        case "tmpfs": add(homes, .hidden(by: "ProtectHome=tmpfs", isEmpty: true))
        case "yes", "true", "1", "on": add(homes, .hidden(by: "ProtectHome=yes", isEmpty: false))
        default: break
        }
        if isOn("PrivateTmp") || isDynamic { add(["/tmp", "/var/tmp"], .hidden(by: "PrivateTmp=yes", isEmpty: true)) }
        for path in paths("TemporaryFileSystem") {
            add([path], .hidden(by: "TemporaryFileSystem=\(path.text)", isEmpty: true))
        }
        for path in paths("ReadOnlyPaths") { add([path], .readOnly(by: "ReadOnlyPaths=\(path.text)")) }
        add(paths("ReadWritePaths") + paths("BindPaths") + ownDirectories.map(\.path), .writable)
        for path in paths("InaccessiblePaths") {
            add([path], .hidden(by: "InaccessiblePaths=\(path.text)", isEmpty: false))
        }
        return rules
    }

    /// Returns what the service may do at a path. What is hidden for good stays so whatever is allowed below it; else
    /// the longest path counts.
    func access(to path: FilePath) -> Access {
        // Its paths are other files than those of the same name here.
        if values["RootDirectory"]?.last != nil || values["RootImage"]?.last != nil { return .writable }
        let path = UnitPath(path.string)
        let above = rules.filter { $0.path.contains(path) }
        for rule in above { if case .hidden(_, isEmpty: false) = rule.access { return rule.access } }
        // They contain each other, so the longest has the most components.
        let longest = above.map(\.path.text.utf8.count).max()
        return above.last { $0.path.text.utf8.count == longest }?.access ?? .writable
    }

    // MARK: - A move

    /// True if the settings show that the service uses the directory: they name it or something in it, or, for a
    /// service of its owner, a directory above it.
    func uses(_ directory: UnitPath, isOwners: Bool) -> Bool {
        let named =
            paths("ReadWritePaths") + paths("BindPaths") + paths("WorkingDirectory") + ownDirectories.map(\.path)
        if (named + paths("ExecStart")).contains(where: { directory.contains($0) }) { return true }
        return isOwners && named.contains { $0.text != "/" && $0.contains(directory) }
    }

    /// What keeps a service from a place.
    package struct Obstacle: Equatable, Sendable {
        /// The setting as the unit has it, or a sentence about it.
        package let reason: String
        /// The lines of a drop-in that let it in. Empty if none do.
        package let lines: [String]
    }

    /// Returns what would keep the service from a directory that moves, or whose store does.
    ///
    /// - Parameter leavesLink: True if a symbolic link to the new place takes the directory's name. systemd follows one
    ///   in `ReadWritePaths=`, but starts no service with one as its `StateDirectory=` (tried with version 252).
    package func obstacle(from directory: FilePath, to place: FilePath, leavesLink: Bool) -> Obstacle? {
        guard access(to: directory) == .writable else { return nil }
        let former = UnitPath(directory.string)
        var lines: [String] = []
        var reasons: [String] = []
        if leavesLink {
            for own in ownDirectories where own.path == former {
                reasons.append("\(own.setting)=\(own.word), which may not be a symbolic link")
                let others = words(own.setting).filter { $0 != own.word }
                lines += ["\(own.setting)="] + others.map { "\(own.setting)=\($0)" }
            }
        }
        let isLed = leavesLink && reasons.isEmpty && paths("ReadWritePaths").contains { former.contains($0) }
        let access = access(to: place)
        switch access {
        case .writable: break
        case .readOnly where isLed: break
        case .readOnly(let setting):
            reasons.append(setting)
            lines.append("ReadWritePaths=\(Self.word("-", place))")
        case .hidden(let setting, let isEmpty):
            reasons.append(setting)
            if setting == "ProtectHome=yes" { lines.append("ProtectHome=tmpfs") }
            guard isEmpty || setting == "ProtectHome=yes" else {
                return Obstacle(reason: reasons.joined(separator: "; "), lines: [])
            }
            lines.append("BindPaths=\(Self.word("-", place))")
        }
        return reasons.isEmpty ? nil : Obstacle(reason: reasons.joined(separator: "; "), lines: lines)
    }

    /// Returns a path as a word of a unit's file.
    private static func word(_ prefix: String, _ path: FilePath) -> String {
        let text = path.string.replacing("%", with: "%%")
        let isPlain = text.utf8.allSatisfy { byte in
            byte >= 0x80 || (byte | 0x20 >= 0x61 && byte | 0x20 <= 0x7A) || "0123456789/._-+,@%".utf8.contains(byte)
        }
        guard !isPlain else { return prefix + text }
        return "\"\(prefix)\(text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\""))\""
    }
}

/// A normalized absolute path, as a text: a unit has many, and there are hundreds of units.
struct UnitPath: Equatable, ExpressibleByStringLiteral {
    let text: String
    var lastComponent: String { String(text.split(separator: "/").last ?? "") }

    init(stringLiteral text: String) { self.init(text) }

    init(_ text: String) {
        let isPlain = !text.contains("//") && !text.contains("/.") && (text == "/" || !text.hasSuffix("/"))
        self.text = isPlain ? text : FilePath(text).lexicallyNormalized().string
    }

    /// True for the path itself and for those below it.
    func contains(_ path: UnitPath) -> Bool {
        text == "/" || path.text == text || path.text.hasPrefix(text + "/")
    }
}

extension StringProtocol {
    fileprivate var trimmed: String {
        let isBlank: (UInt8) -> Bool = { $0 == 0x20 || (9...13).contains($0) }
        let bytes = Array(utf8)
        guard let first = bytes.firstIndex(where: { !isBlank($0) }), let last = bytes.lastIndex(where: { !isBlank($0) })
        else { return "" }
        return String(decoding: bytes[first...last], as: UTF8.self)
    }
}
