import ManagedObjectModels
import StrictYAML

/// A mapping with a fixed set of keys.
struct YAMLMappingSection {
    private let section: YAMLSection

    /// Throws `MappingFault` for another type of node, and for a key that isn't in `keys`.
    init(_ value: YAMLMappingValue, _ subject: String, keys: Set<String>) throws(MappingFault) {
        var node = value.node
        // Another type is reported at the value, not at its key.
        node.keyLine = nil
        section = try MappingFault.valid { () throws(YAMLError) in try YAMLSection(node, subject, keys: keys) }
    }

    var line: Int { section.node.line }

    subscript(key: String) -> YAMLMappingValue? { section[key].map(YAMLMappingValue.init) }

    func required(_ key: String) throws(MappingFault) -> YAMLMappingValue {
        YAMLMappingValue(node: try MappingFault.valid { () throws(YAMLError) in try section.required(key) })
    }
}

/// A YAML value, read as the type expected at its place. The methods throw `MappingFault` for another type; `key` is
/// the value's name in the message.
struct YAMLMappingValue {
    let node: YAMLNode

    private var line: Int { node.keyLine ?? node.line }

    func text(_ key: String) throws(MappingFault) -> String {
        try MappingFault.valid { () throws(YAMLError) in try node.string(key) }
    }

    func integer(_ key: String) throws(MappingFault) -> Int {
        try MappingFault.valid { () throws(YAMLError) in try node.integer(key) }
    }

    func boolean(_ key: String) throws(MappingFault) -> Bool {
        try MappingFault.valid { () throws(YAMLError) in try node.boolean(key) }
    }

    func list(_ key: String) throws(MappingFault) -> [YAMLMappingValue] {
        try MappingFault.valid { () throws(YAMLError) in try node.elements(key).map(YAMLMappingValue.init) }
    }

    /// Returns the members in the order of the file.
    func members(_ key: String) throws(MappingFault) -> [(name: String, value: YAMLMappingValue)] {
        let members = try MappingFault.valid { () throws(YAMLError) in try node.members(key) }
        return members.map { ($0.name, YAMLMappingValue(node: $0.value)) }
    }

    func texts(_ key: String) throws(MappingFault) -> [String: String] {
        var found: [String: String] = [:]
        for (name, value) in try members(key) { found[name] = try value.text(name) }
        return found
    }

    func hash(_ key: String) throws(MappingFault) -> [UInt8] {
        guard let bytes = [UInt8](hexadecimal: try text(key)), bytes.count == 32 else {
            throw MappingFault(key, isNot: "a version hash of 64 hexadecimal digits", line: line)
        }
        return bytes
    }

    func expression(_ key: String) throws(MappingFault) -> MappingExpression {
        do { return try MappingExpression(format: try text(key)) } catch {
            throw Self.fault(error, key, line: line)
        }
    }

    func predicate(_ key: String) throws(MappingFault) -> MappingPredicate {
        do { return try MappingPredicate(format: try text(key)) } catch {
            throw Self.fault(error, key, line: line)
        }
    }

    private static func fault(_ error: any Error, _ key: String, line: Int) -> MappingFault {
        if let fault = error as? MappingFault { return fault }
        return MappingFault(
            "“\(key)” can't be read: \(error)", remedy: "see Documentation/MappingModels.md for the permitted values",
            line: line)
    }
}

extension MappingFault {
    /// Returns what `body` reads. Its error becomes a fault that says how to fix it.
    static func valid<Result>(_ body: () throws(YAMLError) -> Result) throws(MappingFault) -> Result {
        do throws(YAMLError) { return try body() } catch { throw MappingFault(error) }
    }

    fileprivate init(_ key: String, isNot expected: String, line: Int?) {
        self.init("“\(key)” is not \(expected)", remedy: "write \(expected) there", line: line)
    }

    private init(_ error: YAMLError) {
        let line = error.line
        switch error.reason {
        case .notUTF8: self.init("the file is not UTF-8", remedy: "name a mapping model")
        case .tooLarge(let maximum):
            self.init("the file is larger than \(maximum >> 20) MiB", remedy: "split it")
        case .syntax(let problem): self.init("this is not YAML: \(problem)", remedy: "fix the line", line: line)
        case .alias, .keyIsNotAWord, .tooDeep, .tooManyNodes:
            self.init("the file contains \(error.reason)", remedy: "write it out", line: line)
        case .duplicateKeys(let keys):
            self.init("\(keys.joined(separator: ", ")) appears twice", remedy: "keep one", line: line)
        case .wrongType(let key, let expected):
            self.init(key, isNot: Self.name(of: expected), line: error.keyLine ?? line)
        case .unknownKey(let key, let subject, let known):
            self.init(
                "\(subject) has no key “\(key)”", remedy: "the keys are " + known.joined(separator: ", "), line: line)
        case .missingKey(let key, _): self.init("“\(key)” is missing", remedy: "add \(key):", line: line)
        }
    }

    private static func name(of type: YAMLType) -> String {
        switch type {
        case .string: "text"
        case .integer: "a number"
        case .boolean: "yes or no"
        case .sequence: "a list"
        case .mapping: "a mapping of names to values"
        }
    }
}
