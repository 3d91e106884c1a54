/// A duration as people write it, on the command line and in configurations: a number with its unit, such as `500ms`,
/// `30s`, `1.5m`, `2h` or `7d`. A plain number is one of seconds.
package enum DurationText {
    /// The valid forms, for an error or a manual page.
    package static let forms =
        "a number with ms, s, m, h or d, such as 500ms, 30s, 10m, 2h, 7d; without a unit, seconds"
    /// The valid forms where the unit is required.
    package static let formsWithUnit = "a number with ms, s, m, h or d, such as 30m, 12h, 7d"

    private static let units: [(suffix: String, seconds: Double)] = [
        ("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600), ("d", 86_400),
    ]

    /// Returns the number of seconds; nil if the text has none of the forms.
    ///
    /// - Parameter isUnitRequired: True where a forgotten unit would do harm: in an age from which on something is
    ///   deleted.
    package static func seconds(_ text: String, isUnitRequired: Bool = false) -> Double? {
        for unit in units where text.hasSuffix(unit.suffix) {
            if let number = number(text.dropLast(unit.suffix.utf8.count)) {
                let seconds = number * unit.seconds
                return seconds.isFinite ? seconds : nil
            }
        }
        return isUnitRequired ? nil : number(text[...])
    }

    private static func number(_ text: Substring) -> Double? {
        guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) || $0 == UInt8(ascii: ".") }) else { return nil }
        return Double(text).flatMap { $0.isFinite ? $0 : nil }
    }
}
