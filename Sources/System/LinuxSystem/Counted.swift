/// A number with its noun: "1 group", "2 groups", "0 entities".
package struct Counted: CustomStringConvertible {
    package let description: String

    /// - Parameters:
    ///   - noun: The noun's singular.
    ///   - plural: Its plural; nil if that is the singular with an "s".
    package init(_ count: some BinaryInteger, _ noun: String, _ plural: String? = nil) {
        description = "\(count) \(count == 1 ? noun : plural ?? noun + "s")"
    }
}
