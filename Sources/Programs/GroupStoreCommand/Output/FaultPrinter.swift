import AgentProtocol
import CommandSupport
import GroupStoreAgent
import SQLiteStore
import Synchronization

/// Prints the faults that a validation finds: a line for each rule that objects break, with the keys of all of them. A
/// relocation may try a migration more than once; each fault is printed once.
final class FaultPrinter: Sendable {
    private let output: Output
    private let printed = Mutex<[InvalidContent.Fault]>([])

    init(_ output: Output) { self.output = output }

    @Sendable func print(_ fault: InvalidContent.Fault) {
        let isNew = printed.withLock { printed in
            if printed.contains(fault) { return false }
            printed.append(fault)
            return true
        }
        guard isNew else { return }
        guard output.json else { return output.record([:], "fault: \(fault.sentence)") }
        for members in fault.members {
            var line: JSONObject = ["type": "fault"]
            for member in members.members { line[member.key] = member.value }
            output.record(line, "")
        }
    }
}
