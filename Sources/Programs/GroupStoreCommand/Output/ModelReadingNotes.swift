import AgentProtocol
import CommandSupport
import Glibc
import LinuxSystem
import ManagedObjectModels

extension Output {
    /// Reports the parts of a version's file that were ignored, which an app doesn't have either: as notes under
    /// `--json`, else on standard error.
    func report(ignoredIn version: ModelVersion?) {
        for note in version?.remarks ?? [] {
            if json {
                record(note.record)
            } else if !quiet, let version {
                let place = "\(PrintablePath(version.path))" + (note.line.map { ":\($0)" } ?? "")
                Self.write("warning: \(place): \(note.sentence) (\(note.remedy))", to: STDERR_FILENO)
            }
        }
    }
}

extension ModelReadingNote {
    var record: JSONObject {
        var object: JSONObject = ["type": "note", "text": .string(message), "remedy": .string(remedy)]
        object["entity"] = entity.map { .string($0) }
        object["property"] = property.map { .string($0) }
        return object
    }
}
