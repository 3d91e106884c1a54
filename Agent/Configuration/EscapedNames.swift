/// Names as one option of the command line has them: separated by commas; a comma that belongs to a name has a backslash before
/// it, and so has a backslash that stands before one of the two.
package enum EscapedNames {
    package static func names(_ text: String) -> [String] {
        var names: [String] = []
        var name = ""
        var rest = text[...]
        while let character = rest.popFirst() {
            switch character {
            case ",":
                names.append(name)
                name = ""
            case "\\" where rest.first == "," || rest.first == "\\": name.append(rest.removeFirst())
            default: name.append(character)
            }
        }
        return names + [name]
    }

    package static func text(_ names: [String]) -> String {
        names.map { $0.replacing("\\", with: "\\\\").replacing(",", with: "\\,") }.joined(separator: ",")
    }
}
