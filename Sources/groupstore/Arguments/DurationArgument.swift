import ArgumentParser

/// A duration on the command line: seconds as a plain number, or a number with its unit, such as `30s`, `500ms` or
/// `2m`.
struct DurationArgument: ExpressibleByArgument, CustomStringConvertible {
    let seconds: Double
    private let text: String

    static let hint = "a number of seconds, or with a unit: 500ms, 30s, 2m, 1h, 7d"

    init(seconds: Int) {
        self.seconds = Double(seconds)
        text = "\(seconds)s"
    }

    init?(argument: String) {
        guard let seconds = Double(argument).flatMap({ $0.isFinite ? $0 : nil }) ?? Self.withUnit(argument) else {
            return nil
        }
        self.seconds = seconds
        text = argument
    }

    var description: String { text }
    var defaultValueDescription: String { text }

    var duration: Duration { .milliseconds(Int64(seconds * 1000)) }

    /// Throws `ValidationError` unless a relocation may wait that long.
    func validateDeadline() throws {
        guard seconds >= 0, seconds <= 86_400 else { throw ValidationError("--deadline must be 0 to 86400 seconds") }
    }

    /// Parses a number followed by its unit and returns the seconds. Returns nil for anything else, even a plain
    /// number.
    static func withUnit(_ text: String) -> Double? {
        let units: [(suffix: String, seconds: Double)] = [
            ("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600), ("d", 86_400),
        ]
        for unit in units where text.hasSuffix(unit.suffix) {
            let digits = text.dropLast(unit.suffix.utf8.count)
            guard digits.utf8.allSatisfy({ (0x30...0x39).contains($0) || $0 == UInt8(ascii: ".") }),
                let number = Double(digits), (number * unit.seconds).isFinite
            else { continue }
            return number * unit.seconds
        }
        return nil
    }
}
