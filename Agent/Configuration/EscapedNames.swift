/// A list of names in one command-line option: separated by commas, with a backslash before a comma in a name, and
/// before a backslash that precedes a comma or a backslash.
package enum EscapedNames {
    package static func names(_ text: String) -> [String] {
        var names: [String] = []
        var name = ""
        var remaining = text[...]
        while let character = remaining.popFirst() {
            switch character {
            case ",":
                names.append(name)
                name = ""
            case "\\" where remaining.first == "," || remaining.first == "\\": name.append(remaining.removeFirst())
            default: name.append(character)
            }
        }
        return names + [name]
    }

    package static func text(_ names: [String]) -> String {
        names.map { $0.replacing("\\", with: "\\\\").replacing(",", with: "\\,") }.joined(separator: ",")
    }
}
