import CYAML

/// A parsing event of libyaml, as a value.
struct YAMLEvent {
    enum Kind: Equatable {
        case streamStart, streamEnd, documentStart, documentEnd
        case alias(of: String)
        case scalar(YAMLScalar)
        case sequenceStart, sequenceEnd, mappingStart, mappingEnd
    }

    let kind: Kind
    let anchor: String?
    let line: Int
    let column: Int

    /// True for a scalar, and for an alias, which may stand for one.
    var mayBeWord: Bool {
        switch kind {
        case .scalar, .alias: true
        default: false
        }
    }

    func error(_ reason: YAMLError.Reason) -> YAMLError { YAMLError(reason, line: line, column: column) }
}

/// The events of one document, in order.
struct YAMLEvents {
    /// libyaml keeps this address, so that the parser can't be a Swift value.
    private let parser: UnsafeMutablePointer<yaml_parser_t>
    private let bytes: UnsafeBufferPointer<UInt8>

    /// Calls `body` with the events of the bytes. The parser is freed when `body` returns or throws.
    static func read<Result>(
        _ bytes: [UInt8], _ body: (YAMLEvents) throws(YAMLError) -> Result
    ) throws(YAMLError) -> Result {
        let parser = UnsafeMutablePointer<yaml_parser_t>.allocate(capacity: 1)
        defer { parser.deallocate() }
        // On failure libyaml has freed what it allocated.
        guard yaml_parser_initialize(parser) == 1 else { throw YAMLError(.syntax("out of memory")) }
        defer { yaml_parser_delete(parser) }
        return try bytes.withUnsafeBufferPointer { (bytes) throws(YAMLError) in
            yaml_parser_set_input_string(parser, bytes.baseAddress, bytes.count)
            return try body(YAMLEvents(parser: parser, bytes: bytes))
        }
    }

    func next() throws(YAMLError) -> YAMLEvent {
        var event = yaml_event_t()
        // A failed call leaves an empty event, which may be deleted as well.
        defer { yaml_event_delete(&event) }
        guard yaml_parser_parse(parser, &event) == 1 else { throw error() }
        let (kind, anchor) = Self.content(event)
        return YAMLEvent(
            kind: kind, anchor: anchor.map { String(cString: $0) }, line: event.start_mark.line + 1,
            column: event.start_mark.column + 1)
    }

    private static func content(_ event: yaml_event_t) -> (YAMLEvent.Kind, anchor: UnsafeMutablePointer<UInt8>?) {
        switch event.type {
        case YAML_STREAM_START_EVENT: (.streamStart, nil)
        case YAML_DOCUMENT_START_EVENT: (.documentStart, nil)
        case YAML_DOCUMENT_END_EVENT: (.documentEnd, nil)
        case YAML_ALIAS_EVENT:
            (.alias(of: event.data.alias.anchor.map { String(cString: $0) } ?? ""), nil)
        case YAML_SCALAR_EVENT: (.scalar(scalar(event)), event.data.scalar.anchor)
        case YAML_SEQUENCE_START_EVENT: (.sequenceStart, event.data.sequence_start.anchor)
        case YAML_SEQUENCE_END_EVENT: (.sequenceEnd, nil)
        case YAML_MAPPING_START_EVENT: (.mappingStart, event.data.mapping_start.anchor)
        case YAML_MAPPING_END_EVENT: (.mappingEnd, nil)
        // After the end libyaml returns empty events.
        default: (.streamEnd, nil)
        }
    }

    private static func scalar(_ event: yaml_event_t) -> YAMLScalar {
        let scalar = event.data.scalar
        let style: YAMLScalar.Style =
            switch scalar.style {
            case YAML_SINGLE_QUOTED_SCALAR_STYLE: .singleQuoted
            case YAML_DOUBLE_QUOTED_SCALAR_STYLE: .doubleQuoted
            case YAML_LITERAL_SCALAR_STYLE: .literal
            case YAML_FOLDED_SCALAR_STYLE: .folded
            default: .plain
            }
        // The text may contain NUL.
        let text = UnsafeBufferPointer(start: scalar.value, count: scalar.length)
        return YAMLScalar(text: String(decoding: text, as: UTF8.self), style: style)
    }

    private func error() -> YAMLError {
        let problem = parser.pointee.problem.map { String(cString: $0) } ?? "out of memory"
        switch parser.pointee.error {
        case YAML_READER_ERROR:
            // The parser's marks are behind: it reads the bytes in blocks.
            let before = bytes.prefix(parser.pointee.problem_offset)
            return YAMLError(
                .syntax(problem), line: String(decoding: before, as: UTF8.self).count(where: \.isNewline) + 1)
        case YAML_SCANNER_ERROR, YAML_PARSER_ERROR:
            let mark = parser.pointee.problem_mark
            return YAMLError(.syntax(problem), line: mark.line + 1, column: mark.column + 1)
        default: return YAMLError(.syntax(problem))
        }
    }
}
