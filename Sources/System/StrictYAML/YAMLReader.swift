/// Reads a YAML document into a tree, strictly: one document in UTF-8 whose keys are words and appear once in their
/// mapping. Tags and `<<` have no special meaning.
package struct YAMLReader: Sendable {
    package enum Aliases: Sendable {
        case refused
        /// Each alias stands for a copy of what its anchor marks. The limits count the copies.
        case copied
    }

    private let aliases: Aliases
    private let maximumBytes: Int
    private let maximumDepth: Int
    private let maximumNodes: Int

    /// Creates a reader with limits on the size of a document, on the depth of lists and mappings in each other, and on
    /// the number of scalars, lists and mappings.
    package init(aliases: Aliases, maximumBytes: Int, maximumDepth: Int, maximumNodes: Int = 1 << 20) {
        self.aliases = aliases
        self.maximumBytes = maximumBytes
        self.maximumDepth = maximumDepth
        self.maximumNodes = maximumNodes
    }

    /// Returns the document's root; nil if there is no document.
    package func root(of bytes: [UInt8]) throws(YAMLError) -> YAMLNode? {
        guard bytes.count <= maximumBytes else { throw YAMLError(.tooLarge(maximumBytes: maximumBytes)) }
        // libyaml guesses the encoding, and would accept UTF-16.
        guard String(validating: bytes, as: UTF8.self) != nil else { throw YAMLError(.notUTF8) }
        guard !Self.hasManyTagDirectives(bytes) else { throw YAMLError(.syntax("more than 64 %TAG directives")) }
        // An empty array may have no address, which libyaml requires.
        guard !bytes.isEmpty else { return nil }
        return try YAMLEvents.read(bytes) { (events) throws(YAMLError) in
            var composer = Composer(reader: self, events: events)
            return try composer.root()
        }
    }

    /// Returns true if the text may contain more than 64 `%TAG` directives. libyaml compares each with all others,
    /// before its first event.
    private static func hasManyTagDirectives(_ bytes: [UInt8]) -> Bool {
        let directive = Array("%TAG".utf8)
        var count = 0
        for index in bytes.indices where bytes[index] == directive[0] && bytes[index...].starts(with: directive) {
            count += 1
        }
        return count > 64
    }

    /// Composes the tree from libyaml's events. `yaml_parser_load`, which composes one too, has no limits and accepts
    /// duplicate keys.
    private struct Composer {
        private struct Anchored {
            let node: YAMLNode
            let height: Int
            let count: Int
        }

        private let reader: YAMLReader
        private let events: YAMLEvents
        private var anchors: [String: Anchored] = [:]
        private var count = 0

        init(reader: YAMLReader, events: YAMLEvents) {
            self.reader = reader
            self.events = events
        }

        mutating func root() throws(YAMLError) -> YAMLNode? {
            _ = try events.next()  // The start of the stream.
            guard try events.next().kind != .streamEnd else { return nil }
            let root = try node(events.next(), depth: 0).node
            _ = try events.next()  // The end of the document.
            let end = try events.next()
            guard end.kind == .streamEnd else { throw end.error(.syntax("but found another document")) }
            return root
        }

        /// Composes the node that begins with `event`, inside `depth` collections. Returns it with the number of
        /// collections that it consists of on its deepest path.
        private mutating func node(
            _ event: YAMLEvent, depth: Int
        ) throws(YAMLError) -> (node: YAMLNode, height: Int) {
            if case .alias(let anchor) = event.kind { return try copy(of: anchor, event, depth: depth) }
            let before = count
            try add(1, event)
            var content: YAMLNode.Content
            var height = 0
            switch event.kind {
            case .scalar(let scalar): content = .scalar(scalar)
            case .sequenceStart:
                try checkDepth(depth + 1, event)
                (content, height) = try sequence(depth: depth + 1)
            case .mappingStart:
                try checkDepth(depth + 1, event)
                (content, height) = try mapping(depth: depth + 1)
            default: throw event.error(.syntax("did not find expected node content"))
            }
            let node = YAMLNode(content: content, line: event.line, column: event.column)
            if let anchor = event.anchor, reader.aliases == .copied {
                anchors[anchor] = Anchored(node: node, height: height, count: count - before)
            }
            return (node, height)
        }

        private mutating func copy(
            of anchor: String, _ event: YAMLEvent, depth: Int
        ) throws(YAMLError) -> (node: YAMLNode, height: Int) {
            guard reader.aliases == .copied else { throw event.error(.alias) }
            guard let anchored = anchors[anchor] else { throw event.error(.syntax("found undefined alias")) }
            try checkDepth(depth + anchored.height, event)
            try add(anchored.count, event)
            return (anchored.node, anchored.height)
        }

        private mutating func sequence(depth: Int) throws(YAMLError) -> (YAMLNode.Content, height: Int) {
            var elements: [YAMLNode] = []
            var height = 0
            while true {
                let event = try events.next()
                if event.kind == .sequenceEnd { return (.sequence(elements), height + 1) }
                let element = try node(event, depth: depth)
                elements.append(element.node)
                height = max(height, element.height)
            }
        }

        private mutating func mapping(depth: Int) throws(YAMLError) -> (YAMLNode.Content, height: Int) {
            var members: [YAMLMember] = []
            var height = 0
            while true {
                let event = try events.next()
                if event.kind == .mappingEnd { break }
                // Refused before the key is composed: nested keys are the slowest documents.
                guard event.mayBeWord else { throw event.error(.keyIsNotAWord) }
                let key = try node(event, depth: depth).node
                guard let name = key.scalar?.text else { throw event.error(.keyIsNotAWord) }
                var value = try node(events.next(), depth: depth)
                value.node.keyLine = key.line
                members.append(YAMLMember(name: name, line: key.line, column: key.column, value: value.node))
                height = max(height, value.height)
            }
            try checkDuplicates(members)
            return (.mapping(members), height + 1)
        }

        private func checkDuplicates(_ members: [YAMLMember]) throws(YAMLError) {
            var first: [String: YAMLMember] = [:]
            var duplicates: [String: YAMLMember] = [:]
            for member in members {
                if let earlier = first[member.name] {
                    duplicates[earlier.name] = earlier
                } else {
                    first[member.name] = member
                }
            }
            let names = duplicates.keys.sorted()
            guard let name = names.first, let member = duplicates[name] else { return }
            throw YAMLError(
                .duplicateKeys(names), line: member.line, column: member.column, keyLine: member.line)
        }

        private mutating func add(_ nodes: Int, _ event: YAMLEvent) throws(YAMLError) {
            count += nodes
            guard count <= reader.maximumNodes else {
                throw event.error(.tooManyNodes(maximum: reader.maximumNodes))
            }
        }

        private func checkDepth(_ depth: Int, _ event: YAMLEvent) throws(YAMLError) {
            guard depth <= reader.maximumDepth else { throw event.error(.tooDeep(maximum: reader.maximumDepth)) }
        }
    }
}
