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
        // Programs that know no more than that it is an error show these.
        if errorDescription?.contains(fullMessage) != true || errorDescription?.contains(remedy) != true {
            defects.append("localizedDescription lacks the full message or the remedy")
        }
        if failureReason != fullMessage || recoverySuggestion != remedy {
            defects.append("the failure reason or the recovery suggestion isn't the error's")
        }
        return defects
    }
}
