import ArgumentParser

/// A duration on the command line: seconds as a plain number, or a number with its unit, such as `30s`, `500ms` or
/// `2m`.
package struct DurationArgument: ExpressibleByArgument, CustomStringConvertible {
    package let seconds: Double
    private let text: String

    package static let hint = "a number of seconds, or with a unit: 500ms, 30s, 2m, 1h, 7d"

    package init(seconds: Int) {
        self.seconds = Double(seconds)
        text = "\(seconds)s"
    }

    package init?(argument: String) {
        guard let seconds = Double(argument).flatMap({ $0.isFinite ? $0 : nil }) ?? Self.withUnit(argument) else {
            return nil
        }
        self.seconds = seconds
        text = argument
    }

    package var description: String { text }
    package var defaultValueDescription: String { text }

    package var duration: Duration { .milliseconds(Int64(seconds * 1000)) }

    /// Throws `ValidationError` unless the duration is in the range, in seconds, of the option.
    package func validate(_ option: String, in range: ClosedRange<Int>) throws {
        guard seconds >= Double(range.lowerBound), seconds <= Double(range.upperBound) else {
            throw ValidationError("\(option) must be \(range.lowerBound) to \(range.upperBound) seconds")
        }
    }

    /// Parses a number followed by its unit and returns the seconds. Returns nil for anything else, even a plain
    /// number.
    package static func withUnit(_ text: String) -> Double? {
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
