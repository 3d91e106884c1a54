extension String {
    /// The text as an attribute's value in an XML document, without the quotation marks. White space other than spaces
    /// is written as references, since a reader turns it into spaces (www.w3.org/TR/xml, section 3.3.3).
    package var escapedForMarkup: String {
        replacing("&", with: "&amp;").replacing("<", with: "&lt;").replacing(">", with: "&gt;")
            .replacing("\"", with: "&quot;").replacing("\r\n", with: "&#13;&#10;").replacing("\n", with: "&#10;")
            .replacing("\r", with: "&#13;").replacing("\t", with: "&#9;")
    }

    /// True if XML 1.0 permits each character, as itself or as a reference (section 2.2).
    package var isExpressibleInMarkup: Bool {
        unicodeScalars.allSatisfy { scalar in
            switch scalar.value {
            case 0x9, 0xA, 0xD, 0x20...0xD7FF, 0xE000...0xFFFD, 0x1_0000...0x10_FFFF: true
            default: false
            }
        }
    }
}
