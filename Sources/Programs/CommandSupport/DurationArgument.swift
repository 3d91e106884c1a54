import ArgumentParser
import LinuxSystem

/// A duration on the command line, in the syntax of `DurationText`.
package struct DurationArgument: CustomStringConvertible {
    package let seconds: Double
    package let description: String

    package init(seconds: Int) {
        self.seconds = Double(seconds)
        description = "\(seconds)s"
    }

    /// Parses a duration; a plain number is one of seconds. Throws `ValidationError`, which names the valid forms.
    package init(_ text: String) throws {
        guard let seconds = DurationText.seconds(text) else {
            throw ValidationError("write \(DurationText.forms)")
        }
        (self.seconds, description) = (seconds, text)
    }

    /// Parses an age from which on something is deleted: a plain number is refused, because somebody may mean days.
    /// Throws `ValidationError`, which names the valid forms.
    package static func age(_ text: String) throws -> DurationArgument {
        guard DurationText.seconds(text, isUnitRequired: true) != nil else {
            throw ValidationError("write \(DurationText.formsWithUnit)")
        }
        return try DurationArgument(text)
    }

    /// At most three million years: the clock counts no longer durations.
    package var duration: Duration { .milliseconds(Int64(min(seconds * 1000, 1e17))) }

    /// Throws `ValidationError` unless the duration is in the range, in seconds, of the option.
    package func validate(_ option: String, in range: ClosedRange<Double>) throws {
        guard range.contains(seconds) else {
            throw ValidationError(
                "\(option) must be \(Self.words(range.lowerBound)) to \(Self.words(range.upperBound))")
        }
    }

    /// Returns a limit in its largest whole unit.
    private static func words(_ seconds: Double) -> String {
        for (unit, name) in [(86_400.0, "d"), (3600, "h"), (60, "m"), (1, "s")] where seconds >= unit {
            if seconds.truncatingRemainder(dividingBy: unit) == 0 { return "\(Int64(seconds / unit))\(name)" }
        }
        return seconds == 0 ? "0s" : "\(Int64(seconds * 1000))ms"
    }
}
