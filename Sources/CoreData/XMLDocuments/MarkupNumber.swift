extension String {
    /// Parses a decimal number, “inf” or “nan”. Returns nil for a text that is none of these, and for a number beyond
    /// the type's range, which the type's own initializer turns into infinity or zero.
    package func number<Number: BinaryFloatingPoint & LosslessStringConvertible>(as type: Number.Type) -> Number? {
        guard let value = Number(self), !contains(where: { "xX".contains($0) }) else { return nil }
        if value.isInfinite, contains(where: \.isNumber) { return nil }
        if value.isZero, prefix(while: { !"eE".contains($0) }).contains(where: { ("1"..."9").contains($0) }) {
            return nil
        }
        return value
    }
}
