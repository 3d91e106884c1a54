import LinuxSystem

extension ActionableError {
    /// The rules of an error's shape that this one breaks; none if it conforms.
    package var shapeDefects: [String] {
        var defects: [String] = []
        if errorCode.wholeMatch(of: /[A-Za-z0-9_]+/) == nil { defects.append("the code isn't a word: \(errorCode)") }
        for (name, line) in [("message", message), ("remedy", remedy)]
        where line.isEmpty || line.contains(where: \.isNewline) {
            defects.append("the \(name) isn't one line: \(line)")
        }
        if !fullMessage.contains(message) { defects.append("the full message lacks the message") }
        if !description.contains(fullMessage) { defects.append("the description lacks the full message") }
        return defects
    }
}
