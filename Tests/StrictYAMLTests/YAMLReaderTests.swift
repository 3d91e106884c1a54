import StrictYAML
import Testing

struct YAMLReaderTests {
    private static let reader = YAMLReader(
        aliases: .copied, maximumBytes: 1 << 16, maximumDepth: 20, maximumNodes: 1000)

    private func root(_ text: String, _ reader: YAMLReader = reader) throws(YAMLError) -> YAMLNode? {
        try reader.root(of: Array(text.utf8))
    }

    private func error(_ text: String, _ reader: YAMLReader = reader) -> YAMLError? {
        do throws(YAMLError) {
            _ = try root(text, reader)
            return nil
        } catch {
            return error
        }
    }

    // MARK: Documents

    @Test(arguments: YAMLTable.all)
    func readsADocument(_ row: YAMLTable.Row) {
        do throws(YAMLError) {
            #expect((try root(row.document)?.notation ?? "nothing") == row.expected)
        } catch {
            #expect(error.description == row.expected)
        }
    }

    /// A reader of a configuration on Windows may end lines in another way than its writer.
    @Test(arguments: ["\r\n", "\r"])
    func lineEndsMakeNoDifference(_ end: String) throws {
        for row in YAMLTable.all where !row.document.contains("\r") {
            let other = row.document.replacing("\n", with: end)
            #expect(
                (try? root(other))?.notation == (try? root(row.document))?.notation, "\(row.document.debugDescription)")
        }
    }

    @Test func knowsThePlaceOfEachValue() throws {
        let text = "# c\na:\n  - é: 1\n    'b' : [x, {y: z}]\n  - |\n    text\n"
        let members = try #require(try root(text)).members("")
        #expect(members.map { [$0.line, $0.column] } == [[2, 1]])
        let list = members[0].value
        #expect([list.line, list.column, list.keyLine] == [3, 3, 2])
        let elements = try list.elements("")
        #expect(elements.map { [$0.line, $0.column, $0.keyLine] } == [[3, 5, nil], [5, 5, nil]])
        let pairs = try elements[0].members("")
        #expect(pairs.map { [$0.line, $0.column, $0.value.line, $0.value.column] } == [[3, 5, 3, 8], [4, 5, 4, 11]])
        #expect(pairs.map(\.value.keyLine) == [3, 4])
    }

    @Test func anErrorHasItsPlace() {
        let wrong = error("a: b\nc: [d\ne: f\n")
        #expect([wrong?.line, wrong?.column] == [3, 2])
        let control = error("é: b\nc: \u{1}\n")
        #expect([control?.line, control?.column] == [2, nil])
        let duplicate = error("a: b\n  \nc: d\nc: e\n")
        #expect([duplicate?.line, duplicate?.column] == [3, 1])
    }

    @Test(arguments: [
        [0xFF, 0xFE, 0x61, 0x00], [0xFE, 0xFF, 0x00, 0x61], [0x61, 0xC3], [0xC0, 0x80], [0xED, 0xA0, 0x80],
        [0xF4, 0x90, 0x80, 0x80], [0x61, 0x3A, 0x20, 0xE9],
    ])
    func refusesBytesThatAreNotUTF8(_ bytes: [UInt8]) {
        #expect(throws: YAMLError(.notUTF8)) { try Self.reader.root(of: bytes) }
    }

    // MARK: Limits

    @Test func limitsTheSize() throws {
        let reader = YAMLReader(aliases: .refused, maximumBytes: 4, maximumDepth: 1)
        #expect(try root("a: b", reader)?.notation == "{a: b}")
        #expect(error("a: bc", reader)?.reason == .tooLarge(maximumBytes: 4))
    }

    @Test func limitsTheDepth() throws {
        let reader = YAMLReader(aliases: .copied, maximumBytes: 100, maximumDepth: 2)
        #expect(try root("[[a], {b: c}]", reader)?.notation == "[[a], {b: c}]")
        for text in [
            "[[[]]]", "[{a: {}}]", "- - - a", "a:\n  b:\n    c: d", "- &x [a]\n- [*x]", "&x a: &y [b]\nc: [*y]",
        ] {
            #expect(error(text, reader)?.reason == .tooDeep(maximum: 2), "\(text)")
        }
    }

    /// Aliases of aliases would nest lists deeper than the text does.
    @Test func limitsTheDepthOfAliases() {
        var text = "- &a0 [x]\n"
        for number in 1..<100 { text += "- &a\(number) [*a\(number - 1)]\n" }
        let found = error(text)
        #expect(found?.reason == .tooDeep(maximum: 20))
        #expect(found?.line == 20)
    }

    @Test func limitsTheNodes() throws {
        let list = "[" + Array(repeating: "a", count: 999).joined(separator: ",")
        #expect(try root(list + "]")?.elements("").count == 999)
        #expect(error(list + ",b]")?.reason == .tooManyNodes(maximum: 1000))
    }

    /// Nine lists that each contain the one before nine times would expand to 387 million values.
    @Test func refusesAnAliasBomb() {
        var text = "a0: &a0 x\n"
        for number in 1...9 {
            text += "a\(number): &a\(number) [" + Array(repeating: "*a\(number - 1)", count: 9).joined(separator: ",")
            text += "]\n"
        }
        let found = error(text)
        #expect(found?.reason == .tooManyNodes(maximum: 1000))
        #expect(found?.line == 5)
    }

    @Test func refusesAliasesIfTheFormHasNone() {
        let reader = YAMLReader(aliases: .refused, maximumBytes: 100, maximumDepth: 4)
        #expect(error("a: &x b\nc: *x\n", reader) == YAMLError(.alias, line: 2, column: 4))
        #expect(error("*x : b\n", reader)?.reason == .alias)
        #expect(error("a: &x b\nc: '*x'\nd: a *x\ne: |\n  *x\n", reader) == nil)
    }

    /// libyaml takes a time that grows with the square of their number.
    @Test func limitsTheTagDirectives() throws {
        let directives = (0..<65).map { "%TAG !a\($0)! b\n" }
        #expect(try root(directives.dropFirst().joined() + "---\na: b\n")?.notation == "{a: b}")
        #expect(error(directives.joined() + "---\na: b\n")?.reason == .syntax("more than 64 %TAG directives"))
    }

    @Test(arguments: [
        "[", "{", "- ", "? ", "a: ", "[a, ", "{a: ", "!a ", "&a ", "*a ", "\"", "'\n", "a\n", "# a\n", "\n", "|\n ",
        "%TAG !a! b\n",
    ])
    func readsARepetitionInTime(_ part: String) {
        let reader = YAMLReader(aliases: .copied, maximumBytes: 1 << 20, maximumDepth: 64)
        let text = String(repeating: part, count: (1 << 17) / part.utf8.count)
        let time = ContinuousClock().measure { _ = try? root(text, reader) }
        #expect(time < .seconds(10))
    }

    // MARK: Typed access

    @Test func readsTypedValues() throws {
        let list = try #require(try root("[a, '', '~', 5, +5, 005, '6', -1, yes, No, TRUE, 'false']")).elements("")
        #expect(try list.map { try $0.string("k") }.count == 12)
        #expect(try list[3...7].map { try $0.integer("k") } == [5, 5, 5, 6, -1])
        #expect(try list[8...].map { try $0.boolean("k") } == [true, false, true, false])
    }

    @Test(arguments: ["~", "", "null", "[]", "{}"])
    func refusesNullAndCollectionsAsText(_ text: String) throws {
        let node = try #require(try root("k: \(text)\n")).members("")[0].value
        #expect(throws: YAMLError(.wrongType(key: "k", expected: .string), at: node)) { try node.string("k") }
        #expect(throws: YAMLError(.wrongType(key: "k", expected: .string), at: node)) { try node.integer("k") }
    }

    @Test(arguments: ["0x10", "1_000", "1.0", "1e3", "''", "9223372036854775808", "' 1'", "٣"])
    func refusesOtherNumbers(_ text: String) throws {
        let node = try #require(try root("[\(text)]")).elements("")[0]
        #expect(throws: YAMLError(.wrongType(key: "k", expected: .integer), at: node)) { try node.integer("k") }
    }

    @Test(arguments: ["on", "off", "y", "n", "1", "0"])
    func refusesOtherBooleans(_ text: String) throws {
        let node = try #require(try root("[\(text)]")).elements("")[0]
        #expect(throws: YAMLError(.wrongType(key: "k", expected: .boolean), at: node)) { try node.boolean("k") }
    }

    @Test func readsASection() throws {
        let node = try #require(try root("a: 1\nb: [c]\n"))
        let section = try YAMLSection(node, "s", keys: ["a", "b", "c"])
        #expect(try section.required("a").integer("a") == 1)
        #expect(section["c"] == nil)
        #expect(throws: YAMLError(.missingKey("c", subject: "s"), at: node)) { try section.required("c") }
        let unknown = #expect(throws: YAMLError.self) { try YAMLSection(node, "s", keys: ["d", "a"]) }
        #expect(unknown?.description == "line 2: unknown key b in s, which has a, d")
        let mismatch = #expect(throws: YAMLError.self) { try YAMLSection(#require(section["b"]), "b", keys: []) }
        #expect(mismatch?.description == "line 2: b is not a mapping")
    }
}

extension YAMLNode {
    /// The notation of ``YAMLTable``.
    fileprivate var notation: String {
        switch content {
        case .scalar(let scalar): scalar.mark + scalar.text.escaped + scalar.mark
        case .sequence(let elements): "[" + elements.map(\.notation).joined(separator: ", ") + "]"
        case .mapping(let members):
            "{" + members.map { $0.name.escaped + ": " + $0.value.notation }.joined(separator: ", ") + "}"
        }
    }
}

extension YAMLScalar {
    fileprivate var mark: String {
        switch style {
        case .plain: ""
        case .singleQuoted: "'"
        case .doubleQuoted: "\""
        case .literal: "|"
        case .folded: ">"
        }
    }
}

extension String {
    fileprivate var escaped: String {
        let escapes = [
            ("\\", "\\\\"), ("\n", "\\n"), ("\t", "\\t"), ("\0", "\\0"), ("\u{1B}", "\\e"), ("\u{FEFF}", "\\uFEFF"),
        ]
        return escapes.reduce(self) { $0.replacing($1.0, with: $1.1) }
    }
}
