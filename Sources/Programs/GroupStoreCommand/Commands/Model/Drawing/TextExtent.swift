/// The width of text in the fonts that a browser may choose for `sans-serif`, estimated: a program that prints has no
/// fonts. The estimate is that of DejaVu Sans Bold, the widest of them.
enum TextExtent {
    /// Returns the width of the text in pixels.
    ///
    /// - Parameter size: The font's size in pixels.
    static func width(_ text: String, size: Int) -> Int {
        let thousandths = text.unicodeScalars.reduce(0) { $0 + width(of: $1) }
        return (thousandths * size + 999) / 1000
    }

    /// Returns the width of a character in thousandths of the font's size.
    private static func width(of scalar: Unicode.Scalar) -> Int {
        switch scalar {
        case "i", "j", "l", "I", "|", "!", ".", ",", ":", ";", "'", " ", "(", ")", "[", "]": 460
        case "r", "t", "f", "s", "-", "*", "/": 600
        case "m", "W", "M", "@", "%": 1110
        case "w", "→", "←": 930
        case "A"..."Z": 840
        case "0"..."9", "a"..."z": 720
        default: scalar.isASCII ? 840 : max(DisplayWidth.of(String(scalar)), 1) == 2 ? 1100 : 900
        }
    }
}
