import LinuxSystem

/// Metrics in the text format of OpenMetrics 1.0
/// (https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md).
///
/// Hand-written because a client library would bring an HTTP server for forty lines. Only counters and gauges are used:
/// the older text format of Prometheus has those too, and node_exporter's textfile collector reads that one.
struct OpenMetricsText {
    enum Kind: String {
        case counter
        case gauge
    }

    /// A finite number.
    enum Value: CustomStringConvertible {
        case integer(Int64)
        case number(Double)

        var description: String {
            switch self {
            case .integer(let value): "\(value)"
            case .number(let value): "\(value)"
            }
        }
    }

    /// One sample of a metric family.
    struct Sample {
        fileprivate let labels: [(name: String, value: String)]
        fileprivate let value: Value

        init(_ value: Value, _ labels: KeyValuePairs<String, String> = [:]) {
            self.value = value
            self.labels = labels.map { ($0.key, $0.value) }
        }

        init(_ value: some BinaryInteger, _ labels: KeyValuePairs<String, String> = [:]) {
            self.init(.integer(Int64(clamping: value)), labels)
        }
    }

    private var families: [String] = []

    /// Adds a family with all of its samples. A family without samples is left out.
    ///
    /// - Parameters:
    ///   - name: The family's name, without `_total`. It ends with the unit if there is one.
    ///   - unit: The unit, in the plural: a base unit such as `seconds` or `bytes`.
    mutating func add(_ name: String, _ kind: Kind, unit: String? = nil, help: String, _ samples: [Sample]) {
        guard !samples.isEmpty else { return }
        families.append("# TYPE \(name) \(kind.rawValue)")
        if let unit { families.append("# UNIT \(name) \(unit)") }
        families.append("# HELP \(name) \(Self.escaped(help))")
        let suffix = kind == .counter ? "_total" : ""
        for sample in samples {
            let labels = sample.labels.map { "\($0.name)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
            families.append(name + suffix + (labels.isEmpty ? "" : "{\(labels)}") + " \(sample.value)")
        }
    }

    /// Returns a path's bytes as the value of a label. A backslash always begins an escape, so two paths never have the
    /// same label.
    static func label(_ path: [UInt8]) -> String {
        let backslash = UInt8(ascii: "\\")
        return "\(PrintablePath(bytes: path.flatMap { $0 == backslash ? Array("\\x5c".utf8) : [$0] }))"
    }

    /// The lines of the exposition, which ends with `# EOF`.
    var lines: [String] { families + ["# EOF"] }

    /// Escapes what ends a label or a line in the format, and what would affect a terminal.
    private static func escaped(_ text: String) -> String {
        PrintableText(text).description.reduce(into: "") { escaped, character in
            if character == "\\" || character == "\"" { escaped.append("\\") }
            escaped.append(character)
        }
    }
}
