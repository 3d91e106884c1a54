/// A number of bytes for people, in the unit that leaves at most four digits.
///
/// Hand-written because Foundation's byte counts need ICU and depend on the locale.
package struct ByteCount: CustomStringConvertible {
    private let bytes: Int64

    package init(_ bytes: some BinaryInteger) { self.bytes = Int64(clamping: bytes) }

    package var description: String {
        var value = Double(bytes)
        for unit in ["B", "KB", "MB", "GB"] {
            let rounded = (value * 10).rounded() / 10
            // What is rounded up to 1000 is 1 of the next unit.
            if rounded < 1000 { return unit == "B" ? "\(bytes) B" : "\(rounded) \(unit)" }
            value /= 1000
        }
        return "\((value * 10).rounded() / 10) TB"
    }
}
